// SPDX-License-Identifier: Apache-2.0
// Journal records that a server might have written next, given the state so far, and such that it never would.
#pragma once

#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "tests/fuzz/choices.h"
#include "tests/unit/storage/stream_records.h"

namespace forebay::fuzz {

using storage::RecordType;
using storage::StreamState;
using Record = std::pair<RecordType, std::vector<std::byte>>;

class RecordChoices {
 public:
  RecordChoices(Choices& choices, const StreamState& state) : choices_(choices), state_(state) {}

  static constexpr std::size_t kinds = 21;
  static constexpr std::size_t checkpoint_kind = 14;
  Record make(std::size_t kind) {
    switch (kind) {
      case 0:
        return group_formed();
      case 1:
        return segments_owned();
      case 2:
        return steps_dropped();
      case 3:
        return steps_withdrawn();
      case 4:
        return group_ended();
      case 5:
        return durable_to();
      case 6:
        return steps_staged();
      case 7:
        return cursor_moved();
      case 8:
        return cursor_removed();
      case 9:
        return retention_set();
      case 10:
        return precious_set();
      case 11:
        return stream_failed();
      case 12:
        return rank_closed();
      case 13:
        return segments_left();
      case checkpoint_kind:
        return checkpoint();
      case 15:
        return anything();
      case 16:
        return steps_lost();
      default:
        return step_committed();
    }
  }

 private:
  template <class RecordT>
  static Record packed(const RecordT& record) {
    return {storage::record_type_of<RecordT>, storage::body_of(record)};
  }
  std::uint32_t last_incarnation() const { return state_.group ? state_.group->incarnation : 0; }
  std::string consumer() {
    constexpr const char* names[] = {"viz", "render", "", "not/one"};
    return names[choices_.below(std::size(names))];
  }

  Record group_formed() {
    auto made = storage::group_formed(state_, choices_.near32(last_incarnation() + 1),
                                      1 + static_cast<std::uint32_t>(choices_.below(3)));
    if (choices_.seldom(16)) made.ranks = choices_.near32(made.ranks);
    if (choices_.seldom(3)) {
      made.withdraws_from = choices_.near(state_.next_step);
      made.next_step = choices_.near(*made.withdraws_from);
      made.epoch = choices_.near32(state_.epoch + 1);
    }
    if (choices_.seldom(4)) made.retention = "last:2,precious:2";
    made.grace_ms = static_cast<std::int64_t>(choices_.near(0));
    return packed(made);
  }
  Record segments_owned() {
    journal::SegmentsOwnedT made;
    made.incarnation = choices_.near32(last_incarnation());
    made.rank = choices_.near32(0);
    for (std::size_t count = 1 + choices_.below(4); count > 0; --count)
      made.segments.push_back(choices_.near32(static_cast<std::uint32_t>(count) - 1));
    return packed(made);
  }
  Record segments_left() {
    journal::SegmentsLeftT made;
    for (std::size_t count = 1 + choices_.below(3); count > 0; --count)
      made.segments.push_back(choices_.near32(static_cast<std::uint32_t>(count) - 1));
    return packed(made);
  }
  Record step_committed() {
    const std::uint32_t ranks = state_.group ? state_.group->ranks : 1;
    journal::StepCommittedT made;
    if (ranks <= 64) made = storage::step_committed(state_);
    if (choices_.seldom(4)) made.step = choices_.near(made.step);
    if (made.step > state_.next_step && made.step % 2 == 0) made.leaves_out_from = state_.next_step;
    if (choices_.seldom(8)) made.epoch = choices_.near32(made.epoch);
    if (choices_.seldom(8)) made.incarnation = choices_.near32(made.incarnation);
    made.precious = choices_.seldom(2);
    if (!made.parts.empty() && choices_.seldom(4)) {
      journal::PartT& part = *made.parts[choices_.below(made.parts.size())];
      part.rank = choices_.near32(part.rank);
      part.extents.front() = changed(part.extents.front());
      part.metadata.front() = changed(part.metadata.front());
      part.metadata_bytes = choices_.near(part.metadata_bytes);
      if (made.precious) add_sets(made, true);
    } else if (made.precious) {
      add_sets(made, false);
    }
    return packed(made);
  }
  /// New attribute sets, or in odd steps those that the ranks hold.
  void add_sets(journal::StepCommittedT& step, bool change) {
    for (auto& part : step.parts) {
      const auto held = state_.held_attributes.find(part->rank);
      const bool refers = step.step % 2 == 1 && held != state_.held_attributes.end();
      part->attributes = refers ? std::make_unique<journal::AttributeSetT>(held->second)
                                : storage::attribute_set(step.step, part->rank);
      if (!change) continue;
      journal::AttributeSetT& set = *part->attributes;
      set.step = choices_.near(set.step);
      set.bytes = choices_.near(set.bytes);
      set.crc = choices_.near32(set.crc);
      set.extents.front() = changed(set.extents.front());
    }
  }
  journal::Extent changed(const journal::Extent& extent) {
    return {choices_.near32(extent.segment()), static_cast<std::uint16_t>(choices_.near(extent.member())), 0,
            choices_.near(extent.offset()), choices_.near(extent.length())};
  }
  Record steps_dropped() {
    journal::StepsDroppedT made;
    for (std::size_t count = 1 + choices_.below(2); count > 0; --count) {
      const std::uint64_t first = choices_.near(state_.steps.empty() ? 0 : state_.steps.begin()->first);
      made.ranges.emplace_back(first, choices_.near(first));
    }
    return packed(made);
  }
  Record steps_lost() {
    journal::StepsLostT made;
    for (std::size_t count = 1 + choices_.below(2); count > 0; --count) {
      const bool again = !state_.retired.empty() && choices_.seldom(3);
      const std::uint64_t kept = state_.steps.empty() ? 0 : state_.steps.begin()->first;
      const std::uint64_t number = again ? state_.retired.begin()->first.second : kept;
      const auto step = state_.steps.find(number);
      const std::uint32_t of_kept = step == state_.steps.end() ? 1 : step->second.committed.epoch;
      const std::uint32_t epoch = again ? state_.retired.begin()->first.first : of_kept;
      made.steps.emplace_back(choices_.seldom(4) ? choices_.near32(epoch) : epoch,
                              choices_.seldom(2) ? choices_.near(number) : number);
    }
    return packed(made);
  }
  Record steps_withdrawn() {
    journal::StepsWithdrawnT made;
    made.first = choices_.near(state_.next_step);
    made.epoch = choices_.near32(state_.epoch + 1);
    return packed(made);
  }
  Record group_ended() {
    journal::GroupEndedT made;
    made.incarnation = choices_.near32(last_incarnation());
    made.status = static_cast<std::uint8_t>(choices_.near(static_cast<std::uint64_t>(StreamStatus::ended)));
    made.text = "rank 3 was lost";
    made.time_ns = static_cast<std::int64_t>(choices_.near(1'700'000'000'000'000'000));
    return packed(made);
  }
  Record durable_to() {
    journal::DurableToT made;
    made.step = choices_.near(state_.next_step == 0 ? 0 : state_.next_step - 1);
    made.epoch = choices_.near32(state_.epoch);
    if (choices_.seldom(4)) made.syncs.emplace_back(static_cast<std::uint16_t>(choices_.below(4)), choices_.near(9));
    return packed(made);
  }
  Record steps_staged() {
    journal::StepsStagedT made;
    made.epoch = choices_.near32(state_.epoch);
    for (std::size_t count = 1 + choices_.below(4); count > 0; --count) made.steps.push_back(choices_.near(count - 1));
    made.receipt = "receipt";
    return packed(made);
  }
  Record cursor_moved() {
    journal::CursorMovedT made;
    made.consumer = consumer();
    made.epoch = choices_.near32(state_.epoch);
    made.position = choices_.near(state_.next_step);
    return packed(made);
  }
  Record cursor_removed() {
    journal::CursorRemovedT made;
    made.consumer = consumer();
    return packed(made);
  }
  Record stream_failed() {
    journal::StreamFailedT made;
    made.text = "a sync failed";
    return packed(made);
  }
  Record retention_set() {
    constexpr const char* rules[] = {"all", "last:3", "consumers:viz+render", "last:1,consumers:viz,precious:2", "x"};
    journal::RetentionSetT made;
    made.retention = rules[choices_.below(std::size(rules))];
    return packed(made);
  }
  Record precious_set() {
    journal::PreciousSetT made;
    for (std::size_t count = 1 + choices_.below(4); count > 0; --count) made.steps.push_back(choices_.near(count - 1));
    made.precious = choices_.seldom(2);
    return packed(made);
  }
  Record rank_closed() {
    journal::RankClosedT made;
    made.incarnation = choices_.near32(last_incarnation());
    made.rank = choices_.near32(0);
    return packed(made);
  }
  Record checkpoint() {
    auto made = storage::checkpoint_of(state_);
    made.epoch = choices_.near32(made.epoch);
    made.next_step = choices_.near(made.next_step);
    made.durable_next = choices_.near(made.durable_next);
    made.staged_next = choices_.near(made.staged_next);
    made.status = static_cast<std::uint8_t>(choices_.near(made.status));
    if (!made.steps.empty() && choices_.seldom(2)) {
      auto& step = made.steps[choices_.below(made.steps.size())]->committed;
      step->step = choices_.near(step->step);
      step->epoch = choices_.near32(step->epoch);
      step->parts.resize(choices_.near(step->parts.size()) % 4);
      for (auto& part : step->parts) {
        if (!part) part = std::make_unique<journal::PartT>();
      }
    }
    return packed(made);
  }
  Record anything() {
    const auto type = static_cast<RecordType>(choices_.raw(1));
    const auto bytes = std::as_bytes(choices_.bytes(choices_.byte()));
    return {type, {bytes.begin(), bytes.end()}};
  }

  Choices& choices_;
  const StreamState& state_;
};

}  // namespace forebay::fuzz
