// SPDX-License-Identifier: Apache-2.0
#include "writers/open_step.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/fail_point.h"
#include "base/return_error.h"
#include "protocol/carried_bytes.h"
#include "space/reservation_space.h"
#include "storage/record_check.h"
#include "writers/remote_window.h"
#include "writers/writer_session.h"

namespace forebay::server {
namespace {

/// All ranks give the step the same number.
Result<void> check_numbers(const std::vector<WriterRank>& ranks) {
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
    if (ranks[rank].part->step == ranks[0].part->step) continue;
    return fail(ErrorCode::invalid_argument,
                fmt::format("rank 0 numbers the step {}, rank {} numbers it {}: all ranks give the same number",
                            ranks[0].part->step, rank, ranks[rank].part->step));
  }
  return {};
}

}  // namespace

Result<void> OpenStep::add(WriterRank& rank, std::uint32_t request, const wire::PartT& part) {
  const std::uint32_t number = rank.session->rank;
  if (part.step != state_.next_step || rank.part)
    return forebay::fail(ErrorCode::protocol, fmt::format("step {} is next", state_.next_step));
  const std::uint64_t step = number_of(part);
  if (step < part.step || step >= storage::step_number_max)
    return forebay::fail(ErrorCode::protocol, fmt::format("a step is numbered {} where {} is next", step, part.step));
  if (const auto closed = incarnation_.first_closed()) {
    return forebay::fail(ErrorCode::invalid_argument,
                         fmt::format("rank {} has closed the stream: no further step can be whole", *closed));
  }
  if (rank.gives_up)
    return forebay::fail(ErrorCode::unavailable, *rank.gives_up + "; abort_step, then write the step again");
  const bool remote = rank.session->connection().is_remote();
  ASSIGN_OR_RETURN(const auto carried, protocol::carried_pieces(part.carried, part.bytes));
  if (!carried.empty() && !remote)
    return forebay::fail(ErrorCode::protocol, "a rank of this node writes its bytes itself");
  const auto held = state_.held_attributes.find(number);
  ASSIGN_OR_RETURN(journal::PartT checked,
                   rank.granted.take(space_.map(), space_.segments().layout(), number, part,
                                     held == state_.held_attributes.end() ? nullptr : &held->second));
  checked.storage_incarnation = stream_.storage_incarnation();
  const auto placed = check_members(part, checked);
  PendingPart pending{request, part.next_bytes, {}, std::move(checked), wall_clock_ns(), part.definitions, step};
  if (!placed) {
    rank.granted.add(pending.extents());
    return placed;
  }
  // First nobody else may write there: not even what an interrupted step of the rank's has left on its way.
  const bool is_its_own = follow_grants(rank);
  const auto written = is_its_own ? write_carried(space_.segments(), carried) : Result<void>();
  if (!is_its_own || !written) {
    rank.granted.add(pending.extents());
    follow_grants(rank);
    if (!written) return written;
    return forebay::fail(ErrorCode::protocol, "the part is still being written");
  }
  fail_point("server.part.received");
  rank.part = std::move(pending);
  if (remote && part.holder != 0) {
    take_back(rank);
    return forebay::fail(ErrorCode::protocol, "the part names a holder on another node");
  }
  if (part.holder == 0) return {};
  if (auto pinned = pin(rank, part.holder); !pinned) {
    take_back(rank);
    return pinned;
  }
  return {};
}

Result<void> OpenStep::check_members(const wire::PartT& part, journal::PartT& checked) const {
  const auto& segments = space_.segments();
  const auto is_elsewhere = [&](const journal::Extent& extent) { return !segments.is_own(extent.segment()); };
  if (std::ranges::any_of(checked.metadata, is_elsewhere) ||
      (checked.attributes && std::ranges::any_of(checked.attributes->extents, is_elsewhere)))
    return forebay::fail(ErrorCode::protocol, "metadata and attribute sets lie on the reservation's home");
  for (const journal::Extent& extent : checked.extents) {
    const std::uint16_t member = extent.member();
    if (!is_elsewhere(extent) ||
        std::ranges::find(checked.members, member, &journal::MemberStorage::member) != checked.members.end())
      continue;
    const auto told = std::ranges::find(part.members, member, &wire::MemberStorage::member);
    const std::uint64_t now = segments.others()->storage_incarnation(member);
    if (const std::string* away = segments.others()->absence(member)) {
      return forebay::fail(
          ErrorCode::unavailable,
          fmt::format("member {} of the reservation, which has a part of the step, cannot be used: {}; "
                      "abort_step, then write the step again",
                      member, *away));
    }
    if (told == part.members.end())
      return forebay::fail(ErrorCode::protocol, "the part does not say what it met on a member");
    if (told->incarnation() != now) {
      return forebay::fail(ErrorCode::unavailable,
                           fmt::format("member {} of the reservation lost its power while the step was written; "
                                       "abort_step, then write the step again",
                                       member));
    }
    checked.members.emplace_back(now, member, 0, 0);
  }
  return {};
}

Result<void> OpenStep::pin(WriterRank& rank, std::uint64_t holder) {
  // Before the commit, so that a server that is killed after it finds the pin in its table.
  const WriterPin pin{holder, rank.session->connection().peer().pid, {state_.epoch, rank.part->step}};
  RETURN_IF_ERROR(followers_.pin_for_writer(pin.session, pin.process, pin.key));
  rank.part->pin = pin;
  fail_point("server.part.pinned");
  return {};
}

void OpenStep::unpin(const std::optional<WriterPin>& pin) {
  if (pin) followers_.unpin_for_writer(pin->session, pin->key);
}

journal::StepCommittedT OpenStep::take_parts() {
  journal::StepCommittedT step;
  step.step = incarnation_.ranks().front().part->step;
  if (step.step != state_.next_step) step.leaves_out_from = state_.next_step;
  step.epoch = state_.epoch;
  step.incarnation = incarnation_.number();
  step.time_ns = wall_clock_ns();
  step.precious = state_.retention.precious_every != 0 && step.step % state_.retention.precious_every == 0;
  committing_.clear();
  for (WriterRank& rank : incarnation_.ranks()) {
    committing_.push_back({rank.part->request, rank.part->next_bytes, rank.part->pin, rank.part->extents()});
    for (const auto& extent : rank.part->part.extents) step.size_bytes += extent.length();
    // Once more: the holder may have come back on another connection, when there was no step to hold.
    if (const auto& pin = rank.part->pin) (void)followers_.pin_for_writer(pin->session, pin->process, pin->key);
    step.parts.push_back(std::make_unique<journal::PartT>(std::move(rank.part->part)));
    rank.part.reset();
  }
  return step;
}

void OpenStep::commit() {
  auto agreed = check_numbers(incarnation_.ranks());
  if (agreed) agreed = agreement_.check(space_.segments(), incarnation_.ranks());
  if (!agreed) {
    agreed.error().where = fmt::format("step {} of stream {} is refused", state_.next_step, stream_.path());
    fail(agreed.error());
    return;
  }
  journal::StepCommittedT step = take_parts();
  const std::uint64_t number = step.step;
  grants_.step_over();
  if (incarnation_.waits_till_durable()) {
    for (std::size_t rank = 0; rank < committing_.size(); ++rank)
      durable_waits_.add(*incarnation_.ranks()[rank].session, committing_[rank].request, number,
                         committing_[rank].next_bytes);
  }
  if (auto committed = stream_.commit(std::move(step)); !committed) undo_commit(number, committed.error());
}

void OpenStep::answer_commit(bool ahead) {
  fail_point("server.commit.before_answer");
  if (incarnation_.waits_till_durable()) return;
  const std::uint64_t step = state_.next_step - 1;
  for (std::size_t number = 0; number < committing_.size(); ++number) {
    WriterSession* const session = incarnation_.ranks()[number].session;
    const CommittingPart& part = committing_[number];
    if (session != nullptr) grants_.answer_committed(*session, part.request, step, part.next_bytes, ahead);
  }
}

void OpenStep::undo_commit(std::uint64_t step, const Error& error) {
  durable_waits_.drop(step);
  for (std::size_t number = 0; number < committing_.size(); ++number) {
    WriterRank& rank = incarnation_.ranks()[number];
    rank.granted.add(committing_[number].extents);
    follow_grants(rank);
    unpin(committing_[number].pin);
    if (rank.session != nullptr) rank.session->connection().answer_failure(committing_[number].request, error);
  }
}

void OpenStep::take_back(WriterRank& rank) {
  if (!rank.part) return;
  rank.granted.add(rank.part->extents());
  const auto pin = rank.part->pin;
  rank.part.reset();
  follow_grants(rank);
  unpin(pin);
}

void OpenStep::fail(const Error& error) {
  for (WriterRank& rank : incarnation_.ranks()) {
    if (!rank.part) continue;
    if (rank.session != nullptr) rank.session->connection().answer_failure(rank.part->request, error);
    take_back(rank);
  }
}

}  // namespace forebay::server
