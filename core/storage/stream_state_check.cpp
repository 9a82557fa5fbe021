// SPDX-License-Identifier: Apache-2.0
// What holds of a stream's state whatever records were applied.
#include <fmt/format.h>

#include "base/invariant.h"
#include "storage/stream_state.h"

namespace forebay::storage {
namespace {

std::size_t check_step(const StreamState& state, std::uint64_t number, const StepState& step) {
  const auto name = [&](const char* what) { return fmt::format("stream {}, step {}: {}", state.name, number, what); };
  invariant(step.committed.step == number, [&] { return name("stands under another number"); });
  invariant(step.committed.epoch >= 1 && step.committed.epoch <= state.epoch,
            [&] { return name("is of an epoch that has not begun"); });
  std::size_t extents = 0;
  for (const auto& part : step.committed.parts) {
    invariant(part != nullptr, [&] { return name("has no part"); });
    extents += part->extents.size();
  }
  return 1 + extents;
}

}  // namespace

std::size_t StreamState::check() const {
  const auto about = [&](const char* what) { return fmt::format("stream {}: {}", name, what); };
  invariant(durable_next <= next_step, [&] { return about("steps are durable that are not committed"); });
  invariant(steps.empty() || steps.rbegin()->first < next_step, [&] { return about("the next step exists already"); });
  std::size_t items = 1;
  std::uint32_t epoch_before = 0;
  for (const auto& [number, step] : steps) {
    items += check_step(*this, number, step);
    invariant(step.committed.epoch >= epoch_before,
              [&] { return about("a step is of an older epoch than the one before it"); });
    epoch_before = step.committed.epoch;
  }
  for (const auto& [key, step] : retired) {
    items += check_step(*this, key.second, step);
    invariant(step.committed.epoch == key.first && (key.first < epoch || (step.lost && key.first == epoch)),
              [&] { return about("a step of the present epoch counts as withdrawn"); });
  }
  invariant(closed_ranks.empty() || (group && *closed_ranks.rbegin() < group->ranks),
            [&] { return about("a rank has closed that the group does not have"); });
  invariant(group || status == StreamStatus::waiting || status == StreamStatus::failed,
            [&] { return about("it is written, and has no group"); });
  for (const auto& [segment, owner] : owners) {
    invariant(group && owner.incarnation <= group->incarnation,
              [&] { return about("a segment belongs to a group that has not formed"); });
  }
  for (std::size_t i = 0; i < epochs.size(); ++i) {
    const bool grows =
        i == 0 || (epochs[i - 1].epoch < epochs[i].epoch && epochs[i - 1].first_step < epochs[i].first_step);
    invariant(grows && epochs[i].epoch <= epoch, [&] { return about("the epochs are out of order"); });
  }
  for (std::size_t i = 0; i < lost.size(); ++i) {
    invariant(lost[i].first <= lost[i].last && (i == 0 || lost[i - 1].last < lost[i].first),
              [&] { return about("lost steps are out of order"); });
  }
  invariant(lost.empty() || lost.back().last < next_step, [&] { return about("the next step is lost already"); });
  return items + owners.size() + epochs.size() + lost.size();
}

}  // namespace forebay::storage
