// SPDX-License-Identifier: Apache-2.0
#include "streams/stream.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/fail_point.h"
#include "base/invariant.h"
#include "base/return_error.h"
#include "protocol/record_conversion.h"
#include "storage/record_check.h"

namespace forebay::server {

Stream::Stream(const StreamServices& services, ReservationSpace& space, std::uint64_t number,
               storage::StreamState state, std::shared_ptr<storage::Journal> journal, const JournalWaste& waste,
               AttributeSets sets)
    : services_(services),
      space_(space),
      number_(number),
      state_(std::move(state)),
      sets_(std::move(sets)),
      held_sets_(state_.held_attributes),
      journal_(space_, state_, std::move(journal), waste),
      followers_(*this, state_, space_, services.loop, services.readers),
      group_(*this, number_, state_, space_, services.loop, followers_),
      flusher_(*this) {
  space_.segments().add(*this);
}

Stream::~Stream() {
  space_.segments().remove(*this);
  if (grace_timer_) services_.loop.cancel(*grace_timer_);
}

void Stream::post(std::function<void()> task) {
  services_.loop.post([alive = std::weak_ptr<const bool>(alive_), task = std::move(task)] {
    if (!alive.expired()) task();
  });
}

Result<void> Stream::commit(journal::StepCommittedT step) {
  const std::uint64_t number = step.step;
  const std::uint64_t size_bytes = step.size_bytes;
  const StepKey key{step.epoch, number};
  fail_point("server.commit.before_append");
  RETURN_IF_ERROR(record(storage::RecordType::step_committed, std::move(step)));
  fail_point("server.commit.after_append");
  for (const auto* set : sets_of(state_.steps.at(number).committed)) sets_.add(*set);
  follow_held_sets(state_.durable_next);
  recent_commits_.note(key, monotonic_ns());
  followers_.serve_deferred();  // with the step before this one
  followers_.serve_first(size_bytes);
  apply_retention();
  group_.answer_commit();
  followers_.serve_rest_later();
  flusher_.request(group_.waits_for_durable() || followers_.waits_for_durable());
  committed_bytes_ += size_bytes;
  log::debug("stream {}: step {} committed", path(), number);
  return {};
}

template <class Record>
Result<void> Stream::record_withdrawal(storage::RecordType type, Record change, std::uint64_t first) {
  const std::uint64_t durable_before = state_.durable_next;
  std::vector<StepKey> gone;
  for (auto step = state_.steps.lower_bound(first); step != state_.steps.end(); ++step)
    gone.emplace_back(step->second.committed.epoch, step->first);
  RETURN_IF_ERROR(record(type, std::move(change)));
  fail_point("server.withdraw.after_append");
  flusher_.rewind(first);
  free_unheld(gone, durable_before);
  follow_held_sets(durable_before);
  followers_.rewound(first);
  space_.segments().lines.info("stream {}: steps from {} on withdrawn, epoch {}", path(), first, state_.epoch);
  // Before anybody is told of the new epoch: lost with the power and begun again, it would name other steps.
  if (auto synced = journal_.sync(); !synced) {
    fail_stream("the journal could not be synced: " + synced.error().message());
    return fail(ErrorCode::failed, state_.status_text, "stream " + path());
  }
  return {};
}

Result<void> Stream::withdraw(std::uint64_t first) {
  journal::StepsWithdrawnT withdrawn;
  withdrawn.first = first;
  withdrawn.epoch = state_.epoch + 1;
  return record_withdrawal(storage::RecordType::steps_withdrawn, std::move(withdrawn), first);
}

Result<void> Stream::form_group(journal::GroupFormedT formed) {
  const auto withdraws_from = formed.withdraws_from;
  auto runs_over = followers_.runs_that_end(formed);
  auto recorded = withdraws_from
                      ? record_withdrawal(storage::RecordType::group_formed, std::move(formed), *withdraws_from)
                      : record(storage::RecordType::group_formed, std::move(formed));
  if (!recorded) return recorded;
  follow_held_sets(state_.durable_next);
  followers_.end_runs(std::move(runs_over));
  // The group may have brought another retention.
  what_may_go_changed();
  return {};
}

Result<void> Stream::note_rank_closed(journal::RankClosedT closed) {
  return record(storage::RecordType::rank_closed, std::move(closed));
}

Result<void> Stream::note_cursor(journal::CursorMovedT moved) {
  return record(storage::RecordType::cursor_moved, std::move(moved));
}

void Stream::removed() {
  group_.removed();
  followers_.removed();
  flusher_.release_all();
}

Result<void> Stream::group_ended(std::uint32_t incarnation, StreamStatus status, const std::string& text) {
  journal::GroupEndedT ended;
  ended.incarnation = incarnation;
  ended.status = static_cast<std::uint8_t>(status);
  ended.text = text;
  ended.time_ns = wall_clock_ns();
  auto recorded = record(storage::RecordType::group_ended, ended);
  if (!recorded) {
    recorded.error().what =
        "the end of the group cannot be recorded, so a restarted server would wait for it: " + recorded.error().what;
    log::error("stream {}: {}", path(), recorded.error().message());
    (void)applied(state_.apply(ended));
  }
  follow_held_sets(state_.durable_next);
  if (OtherMembers* const others = space_.segments().others())
    others->fence(state_.uuid, incarnation, std::nullopt, {});
  if (status == StreamStatus::interrupted) {
    space_.segments().lines.warning("stream {}: {}: {}; {}", path(), to_string(status), text, describe_grace());
  } else {
    space_.segments().lines.info("stream {}: {}", path(), to_string(status));
  }
  flusher_.request(true);
  // Its segments are others' to take, too.
  what_may_go_changed();
  followers_.status_changed();
  return recorded;
}

void Stream::writer_refused(const std::string& run, const std::string& why) {
  space_.segments().lines.info("stream {}: a writer was refused: {}", path(), why);
  // Readers that waited for the stream to be made are let in first.
  post([this, run, why] {
    if (!group_.is_expected()) followers_.writer_refused(run, why);
  });
}

void Stream::fail_stream(const std::string& text) {
  if (state_.status == StreamStatus::failed) return;
  log::error("stream {} failed: {}", path(), text);
  journal::StreamFailedT failed;
  failed.text = text;
  if (auto recorded = record(storage::RecordType::stream_failed, std::move(failed)); !recorded) {
    log::error("{}", recorded.error().message());
    // Also where the journal has no room for it: the next sync's success must not count.
    state_.status = StreamStatus::failed;
    state_.status_text = text;
  }
  group_.fail_waiting({ErrorCode::failed, text, "stream " + path()});
  followers_.status_changed();
  space_.queue().changed(SpaceChange::less);
}

void Stream::set_damaged(const std::string& damage) {
  damage_ = damage;
  // A stream that has failed before says so no more.
  if (state_.status == StreamStatus::failed) log::error("stream {}: the journal is damaged: {}", path(), damage);
  fail_stream("the journal is damaged: " + damage);
}

void Stream::resume_grace() {
  const std::int64_t grace_ms = state_.group->grace_ms;
  if (state_.group_ended_ns <= 0) return;
  const std::int64_t passed_ms = std::max<std::int64_t>(0, wall_clock_ns() - state_.group_ended_ns) / 1'000'000;
  if (grace_ms < 0) {
    begin_grace(grace_ms);
  } else if (passed_ms < grace_ms) {
    begin_grace(grace_ms - passed_ms);
  }
}

bool Stream::writes_unsynced_in(std::uint32_t segment) const {
  if (group_.holds_space_in(segment)) return true;
  const auto lies_there = [segment](const std::vector<Extent>& extents) {
    return std::ranges::find(extents, segment, &Extent::segment) != extents.end();
  };
  for (auto step = state_.steps.lower_bound(state_.durable_next); step != state_.steps.end(); ++step) {
    if (lies_there(extents_of(step->second.committed))) return true;
  }
  return lies_there(sets_.extents_from(state_.durable_next));
}

bool Stream::is_read_by_others_in(std::uint32_t segment, const std::set<uid_t>& users) const {
  return std::ranges::any_of(followers_.pins().pinned(), [&](const StepKey& key) {
    const storage::StepState* const step = followers_.find_step(key);
    if (step == nullptr || followers_.is_held_only_by(key, users)) return false;
    const auto extents = extents_read(step->committed);
    return std::ranges::find(extents, segment, &Extent::segment) != extents.end();
  });
}

void Stream::begin_grace(std::int64_t grace_ms) {
  EventLoop& loop = services_.loop;
  if (grace_timer_) loop.cancel(*grace_timer_);
  grace_timer_.reset();
  const Deadline deadline = Deadline::after_ms(grace_ms);
  grace_over_ = false;
  if (deadline.is_never()) return;
  grace_timer_ = loop.at(deadline.at_ns(), [this] {
    grace_timer_.reset();
    grace_over_ = true;
    followers_.serve_all();
  });
}

std::string Stream::describe_grace() const {
  const std::int64_t grace_ms = state_.group ? state_.group->grace_ms : 0;
  if (grace_ms < 0) return "readers wait for a restart for ever (GraceSecs)";
  return fmt::format("readers wait up to {} s for a restart (GraceSecs)", static_cast<double>(grace_ms) / 1000);
}

Result<void> Stream::mark_staged(std::uint32_t epoch, const std::vector<std::uint64_t>& steps,
                                 const std::string& receipt) {
  if (receipt.size() > storage::receipt_bytes_max) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("a receipt's place can have at most {} bytes, this one has {}", storage::receipt_bytes_max,
                            receipt.size()),
                "stream " + path());
  }
  journal::StepsStagedT staged;
  staged.epoch = epoch;
  staged.receipt = receipt;
  for (std::uint64_t number : steps) {
    const auto found = state_.steps.find(number);
    if (found != state_.steps.end() && found->second.committed.epoch == epoch) staged.steps.push_back(number);
  }
  if (staged.steps.empty()) return {};
  RETURN_IF_ERROR(record(storage::RecordType::steps_staged, std::move(staged)));
  what_may_go_changed();
  return {};
}

std::uint64_t Stream::kept_bytes() const {
  std::uint64_t bytes = sets_.bytes();
  for (const auto& [number, step] : state_.steps) bytes += step.committed.size_bytes;
  return bytes;
}

std::vector<Extent> Stream::extents_of_steps() const {
  std::vector<Extent> extents = sets_.extents();
  const auto add = [&](const storage::StepState& step) {
    std::ranges::move(extents_of(step.committed), std::back_inserter(extents));
  };
  for (const auto& [number, step] : state_.steps) add(step);
  for (const auto& [key, step] : state_.retired) add(step);
  return extents;
}

StepSummary Stream::summary(const storage::StepState& step) const {
  StepSummary summary;
  summary.step = step.committed.step;
  summary.epoch = step.committed.epoch;
  summary.incarnation = step.committed.incarnation;
  summary.time_ns = step.committed.time_ns;
  summary.size_bytes = step.committed.size_bytes;
  summary.durable = step.committed.step < durable_next();
  summary.staged = step.staged;
  summary.precious = step.precious();
  summary.pins = followers_.pins().count({step.committed.epoch, step.committed.step});
  return summary;
}

StreamInfo Stream::info() const {
  StreamInfo info;
  info.name = state_.name;
  info.uuid = state_.uuid;
  info.epoch = state_.epoch;
  info.incarnation = state_.group ? state_.group->incarnation : 0;
  info.ranks = state_.group ? state_.group->ranks : 0;
  info.run = state_.group ? state_.group->run : std::string();
  info.original_name = state_.group ? state_.group->original_name : std::string();
  info.status = state_.status;
  info.status_text = state_.status_text;
  if (!state_.steps.empty()) info.oldest = state_.steps.begin()->first;
  if (state_.next_step > 0) info.committed = state_.next_step - 1;
  if (durable_next() > 0) info.durable = durable_next() - 1;
  info.staged = state_.newest_staged;
  info.steps = state_.steps.size();
  info.size_bytes = kept_bytes();
  info.committed_bytes = committed_bytes_;
  info.step_open = group_.step_open();
  info.retention = state_.retention;
  info.consumers = followers_.cursors().list();
  group_.describe_waits(info.waits);
  followers_.describe_waits(info.waits);
  if (info.waits.size() > waits_told_max) info.waits.resize(waits_told_max);
  info.epochs = state_.epochs;
  for (const storage::LostSteps& range : state_.lost) info.lost.push_back({range.first, range.last});
  return info;
}

std::vector<Extent> Stream::extents_held() const {
  std::vector<Extent> extents = extents_of_steps();
  group_.list_granted(extents);
  flusher_.list_to_release(extents);
  return extents;
}

std::size_t Stream::check() const {
  invariant(flusher_.durable_next() <= state_.durable_next,
            [this] { return "stream " + path() + ": steps count as durable before the journal says so"; });
  const bool certain = damage_.empty() && !end_cut_;
  return state_.check() + followers_.check_pins(certain) + group_.check() + journal_.check();
}

}  // namespace forebay::server
