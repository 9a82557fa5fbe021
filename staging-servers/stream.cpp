// SPDX-License-Identifier: Apache-2.0
#include "stream.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/fail_point.h"
#include "server.h"
#include "storage/framing.h"

namespace forebay::server {
namespace {

/// From how much on it is worth it to roll a journal that has to make room.
constexpr std::uint64_t roll_bytes_min = std::uint64_t{32} << 10;
/// The same for a record that was refused.
constexpr std::uint64_t roll_bytes_refused = std::uint64_t{8} << 10;

}  // namespace

std::vector<Extent> extents_of(const journal::StepCommittedT& step) {
  std::vector<Extent> extents;
  for (const auto& part : step.parts) {
    for (const journal::Extent& extent : part->extents)
      extents.push_back({extent.segment(), extent.offset(), extent.length()});
  }
  return extents;
}

Stream::Stream(Reservation& reservation, std::uint64_t number, storage::StreamState state,
               std::shared_ptr<storage::Journal> journal, const ToldSteps& told)
    : reservation_(reservation),
      number_(number),
      state_(std::move(state)),
      journal_(std::move(journal)),
      told_(told),
      group_(*this),
      followers_(*this),
      flusher_(*this) {}

Stream::~Stream() {
  if (grace_timer_) reservation_.server().loop().cancel(*grace_timer_);
}

void Stream::post(std::function<void()> task) {
  reservation_.server().loop().post([&server = reservation_.server(), reservation = reservation_.name(),
                                     stream = state_.name, number = number_, task = std::move(task)] {
    const auto found = server.reservations().find(reservation);
    const Stream* still = found == server.reservations().end() ? nullptr : found->second->find_stream(stream);
    if (still != nullptr && still->number() == number) task();
  });
}

Result<void> Stream::append(storage::RecordType type, std::span<const std::uint8_t> body) {
  fail_point("server.record.before_append");
  auto appended = journal_->append(type, body);
  // Records of what is no more may take the room for this one, which may be what makes room itself.
  const auto is_refused = [&] { return !appended && appended.error().code == ErrorCode::no_space; };
  if (is_refused() && roll_gives(roll_bytes_refused) && roll_journal()) appended = journal_->append(type, body);
  if (is_refused() && reservation_.roll_others(*this)) appended = journal_->append(type, body);
  if (!appended) {
    const ErrorCode code = appended.error().code;
    if (code == ErrorCode::no_space || code == ErrorCode::invalid_argument)
      return appended;  // the journal is as it was
    // The journal is broken: what was in it stays readable, nothing can be added.
    state_.status = StreamStatus::failed;
    state_.status_text = "the journal cannot be written: " + appended.error().message();
    log::error("stream {}: {}", path(), state_.status_text);
    const Error failed{ErrorCode::failed, state_.status_text, "stream " + path()};
    post([this, failed] {
      group_.fail_waiting(failed);
      followers_.status_changed();
    });
    return fail(failed);
  }
  told_.add(type, storage::frame_bytes(body.size()));
  fail_point("server.record.after_append");
  return {};
}

void Stream::post_roll() {
  if (std::exchange(roll_posted_, true)) return;
  post([this] {
    roll_posted_ = false;
    if (wants_roll()) (void)roll_journal();
  });
}

bool Stream::roll_gives(std::uint64_t bytes) const {
  const std::uint64_t gone = told_.gone_bytes(state_.steps.size() + state_.retired.size());
  return gone > std::max(bytes, roll_refused_below_);
}

bool Stream::wants_roll() const {
  // Where journals take segments of the space for data, one that tells of steps which are gone takes them for nothing.
  return journal_->wants_checkpoint() ||
         (reservation_.lends_segments() && roll_gives(std::max(journal_->size_bytes() / 2, roll_bytes_min)));
}

bool Stream::roll_pays(bool for_itself) const {
  const std::uint64_t reserve = reservation_.record().journal_reserve_bytes;
  const std::uint64_t size = std::min(journal_->size_bytes(), reserve);
  return roll_gives(for_itself ? std::max(roll_bytes_refused, size / 64) : std::max(roll_bytes_min, size / 16));
}

bool Stream::drops_shorten_journal() const {
  return told_.gone_bytes(0) > std::max(roll_bytes_refused, roll_refused_below_);
}

bool Stream::roll_journal() {
  // Its files go by name.
  if (reservation_.retiring || state_.status == StreamStatus::failed) return false;
  fail_point("server.roll.before");
  const auto checkpoint = state_.checkpoint_body();
  if (auto rolled = journal_->roll({checkpoint.data(), checkpoint.size()}); !rolled) {
    log::warning("stream {}: the journal could not be rolled: {}", path(), rolled.error().message());
    roll_refused_below_ = told_.gone_bytes(state_.steps.size() + state_.retired.size()) + roll_bytes_refused;
    return false;
  }
  fail_point("server.roll.after");
  roll_refused_below_ = 0;
  told_.begin_file(state_.steps.size() + state_.retired.size(), checkpoint.size());
  reservation_.journals_shrank();
  reservation_.space_changed();
  return true;
}

Result<void> Stream::applied(Result<void> result) {
  // The record was made here from the state at hand: a contradiction is a bug, and going on would make it worse.
  if (!result) {
    log::error("stream {}: a record of our own does not apply: {}", path(), result.error().message());
    std::abort();
  }
  return result;
}

Result<void> Stream::commit(journal::StepCommittedT step, const std::function<void()>& answer_writers) {
  const std::uint64_t number = step.step;
  const std::uint64_t size_bytes = step.size_bytes;
  fail_point("server.commit.before_append");
  if (auto recorded = record(storage::RecordType::step_committed, std::move(step)); !recorded) return recorded;
  fail_point("server.commit.after_append");
  followers_.step_committed(size_bytes, [&] {
    apply_retention();
    answer_writers();
  });
  flusher_.request(group_.waits_for_durable() || followers_.waits_for_durable());
  log::debug("stream {}: step {} committed", path(), number);
  return {};
}

template <class Record>
Result<void> Stream::record_withdrawal(storage::RecordType type, Record change, std::uint64_t first) {
  const std::uint64_t durable_before = state_.durable_next;
  std::vector<StepKey> gone;
  for (auto step = state_.steps.lower_bound(first); step != state_.steps.end(); ++step)
    gone.emplace_back(step->second.committed.epoch, step->first);
  if (auto recorded = record(type, std::move(change)); !recorded) return recorded;
  fail_point("server.withdraw.after_append");
  flusher_.rewind(first);
  for (const StepKey& key : gone) {
    if (followers_.pinned(key)) continue;
    const auto found = state_.retired.find(key);
    if (found == state_.retired.end()) continue;
    free_step(found->second, key.second < durable_before);
    state_.retire_done(key.first, key.second);
  }
  followers_.rewound(first);
  log::info("stream {}: steps from {} on withdrawn, epoch {}", path(), first, state_.epoch);
  // Before anybody is told of the new epoch: lost with the power and begun again, it would name other steps.
  if (auto synced = journal_->sync(); !synced) {
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
  auto recorded = withdraws_from
                      ? record_withdrawal(storage::RecordType::group_formed, std::move(formed), *withdraws_from)
                      : record(storage::RecordType::group_formed, std::move(formed));
  if (!recorded) return recorded;
  // The group may have brought another retention.
  apply_retention();
  reservation_.space_changed();
  return {};
}

void Stream::retired_unpinned(const StepKey& key) {
  const auto found = state_.retired.find(key);
  if (found == state_.retired.end()) return;
  // Whether the step was durable is not known any more: wait for the sync in any case.
  free_step(found->second, true);
  state_.retire_done(key.first, key.second);
  flusher_.request(false);
}

bool Stream::may_drop(const storage::StepState& step, bool when_full) const {
  const std::uint64_t number = step.committed.step;
  if (step.precious() || followers_.pinned({step.committed.epoch, number})) return false;
  if (when_full) return !followers_.any_cursor_needs(number);
  const Retention& retention = state_.retention;
  if (retention.keeps_all()) return false;
  if (retention.last && state_.next_step - number <= *retention.last) return false;
  return followers_.all_passed(retention.consumers, number);
}

void Stream::apply_retention() {
  followers_.serve_deferred();
  if (state_.retention.keeps_all() || state_.status == StreamStatus::failed) return;
  std::vector<std::uint64_t> droppable;
  for (const auto& [number, step] : state_.steps) {
    if (state_.retention.last && state_.next_step - number <= *state_.retention.last) break;
    // Who has not passed this one has not passed a later one either.
    if (!followers_.all_passed(state_.retention.consumers, number)) break;
    if (may_drop(step, false)) droppable.push_back(number);
  }
  (void)drop(droppable);
}

bool Stream::drop_oldest() {
  followers_.serve_deferred();
  if (state_.status == StreamStatus::failed) return false;
  for (const auto& [number, step] : state_.steps) {
    if (!may_drop(step, true)) continue;
    return drop({number});
  }
  return false;
}

bool Stream::drops_when_let_go() const {
  // A failed stream drops nothing.
  return state_.status != StreamStatus::failed &&
         std::ranges::any_of(state_.steps, [](const auto& entry) { return !entry.second.precious(); });
}

bool Stream::may_free_space() const {
  if (state_.status == StreamStatus::failed) return false;
  if (!state_.retired.empty()) return true;
  if (state_.steps.empty()) return false;
  const Retention& retention = state_.retention;
  // Only what would go by retention once somebody moves: a stream that keeps everything never frees by itself.
  if (retention.keeps_all()) {
    return false;
  }
  if (!retention.consumers.empty()) return true;
  return std::ranges::any_of(state_.steps, [&](const auto& entry) {
    return state_.next_step - entry.first > *retention.last;  // held by a pin or by preciousness only
  });
}

bool Stream::drop(const std::vector<std::uint64_t>& steps) {
  if (steps.empty()) return true;
  journal::StepsDroppedT dropped;
  for (std::uint64_t number : steps) {
    if (!dropped.ranges.empty() && dropped.ranges.back().last() + 1 == number) {
      dropped.ranges.back() = journal::StepRange(dropped.ranges.back().first(), number);
    } else {
      dropped.ranges.emplace_back(number, number);
    }
  }
  std::vector<storage::StepState> gone;
  for (std::uint64_t number : steps) gone.push_back(state_.steps.at(number));
  const std::uint64_t durable_next = state_.durable_next;
  if (auto recorded = record(storage::RecordType::steps_dropped, std::move(dropped)); !recorded) return false;
  fail_point("server.drop.after_append");
  for (const storage::StepState& step : gone) free_step(step, step.committed.step < durable_next);
  return true;
}

void Stream::free_step(const storage::StepState& step, bool durable) {
  std::vector<Extent> extents = extents_of(step.committed);
  // The next step gets this step's pieces in the same order: the newest released comes first.
  std::ranges::reverse(extents);
  if (durable) {
    unsynced_releases_.push_back(std::move(extents));
    flusher_.request(false);
    return;
  }
  for (const Extent& extent : extents) reservation_.release(extent);
}

std::vector<std::vector<Extent>> Stream::take_unsynced_releases() {
  return std::exchange(unsynced_releases_, {});
}

void Stream::put_back_unsynced_releases(std::vector<std::vector<Extent>> releases) {
  std::ranges::move(releases, std::back_inserter(unsynced_releases_));
}

void Stream::release_after_sync(std::vector<Extent> extents) {
  for (const Extent& extent : extents) reservation_.release(extent);
}

void Stream::removed() {
  group_.removed();
  followers_.removed();
  for (auto& extents : take_unsynced_releases()) release_after_sync(std::move(extents));
  for (auto& extents : flusher_.take_releases()) release_after_sync(std::move(extents));
}

Result<void> Stream::group_ended(std::uint32_t incarnation, StreamStatus status, const std::string& text) {
  journal::GroupEndedT ended;
  ended.incarnation = incarnation;
  ended.status = static_cast<std::uint8_t>(status);
  ended.text = text;
  ended.time_ns = wall_clock_ns();
  auto recorded = record(storage::RecordType::group_ended, ended);
  if (!recorded) {
    recorded.error().what = "the end of the group cannot be written down, so a restarted server would wait for it: " +
                            recorded.error().what;
    log::error("stream {}: {}", path(), recorded.error().message());
    (void)applied(state_.apply(ended));
  }
  log::info("stream {}: {}{}{}", path(), to_string(status), text.empty() ? "" : ": ", text);
  flusher_.request(true);
  apply_retention();
  followers_.status_changed();
  // Its segments are others' to take.
  reservation_.space_changed();
  return recorded;
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
}

void Stream::set_damaged(const std::string& damage) {
  damage_ = damage;
  // A stream that has failed before says so no more.
  if (state_.status == StreamStatus::failed) log::error("stream {}: the journal is damaged: {}", path(), damage);
  fail_stream("the journal is damaged: " + damage);
}

void Stream::give_way(const Extent& extent) {
  if (damage_.empty() && !end_cut_) return;
  journal::StepsDroppedT dropped;
  std::vector<std::uint64_t> numbers;
  std::vector<Extent> given_up;
  const auto claims = [&](const auto& entry) {
    const std::vector<Extent> extents = extents_of(entry.second.committed);
    const bool overlaps = std::ranges::any_of(extents, [&](const Extent& held) {
      return held.segment == extent.segment && held.offset < extent.offset + extent.length &&
             extent.offset < held.offset + held.length;
    });
    if (!overlaps) return false;
    const std::uint64_t number = entry.second.committed.step;
    log::warning("stream {}: step {} was dropped, and its space is another's", path(), number);
    followers_.revoke({entry.second.committed.epoch, number});
    given_up.insert(given_up.end(), extents.begin(), extents.end());
    return true;
  };
  std::erase_if(state_.retired, claims);
  for (const auto& entry : state_.steps) {
    if (!claims(entry)) continue;
    dropped.ranges.emplace_back(entry.first, entry.first);
    numbers.push_back(entry.first);
  }
  if (!numbers.empty()) {
    // A damaged journal takes no record, and a start finds the steps again, to be given up again.
    if (!damage_.empty() || !record(storage::RecordType::steps_dropped, std::move(dropped))) {
      for (const std::uint64_t number : numbers) state_.steps.erase(number);
    }
  }
  for (const Extent& held : given_up) reservation_.space().release(held);
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
  for (auto step = state_.steps.lower_bound(state_.durable_next); step != state_.steps.end(); ++step) {
    const auto extents = extents_of(step->second.committed);
    if (std::ranges::find(extents, segment, &Extent::segment) != extents.end()) return true;
  }
  return false;
}

void Stream::begin_grace(std::int64_t grace_ms) {
  EventLoop& loop = reservation_.server().loop();
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

std::uint64_t Stream::unsynced_bytes() const {
  std::uint64_t bytes = flusher_.bytes_in_release();
  for (const auto& extents : unsynced_releases_) {
    for (const Extent& extent : extents) bytes += extent.length;
  }
  return bytes;
}

wire::StepsAnswerT Stream::list_steps(std::uint64_t first, std::uint32_t steps_max) const {
  wire::StepsAnswerT answer;
  for (auto step = state_.steps.lower_bound(first); step != state_.steps.end(); ++step) {
    if (answer.steps.size() == steps_max) {
      answer.more = true;
      break;
    }
    const StepSummary line = summary(step->second);
    answer.steps.emplace_back(line.step, line.time_ns, line.size_bytes, line.epoch, line.incarnation, line.pins,
                              line.durable, line.staged, line.precious, 0);
  }
  return answer;
}

Result<void> Stream::mark_staged(std::uint32_t epoch, const std::vector<std::uint64_t>& steps,
                                 const std::string& receipt) {
  journal::StepsStagedT staged;
  staged.epoch = epoch;
  staged.receipt = receipt;
  for (std::uint64_t number : steps) {
    const auto found = state_.steps.find(number);
    if (found != state_.steps.end() && found->second.committed.epoch == epoch) staged.steps.push_back(number);
  }
  if (staged.steps.empty()) return {};
  if (auto recorded = record(storage::RecordType::steps_staged, std::move(staged)); !recorded) return recorded;
  apply_retention();
  reservation_.space_changed();
  return {};
}

std::uint64_t Stream::kept_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [number, step] : state_.steps) bytes += step.committed.size_bytes;
  return bytes;
}

std::vector<Extent> Stream::extents_of_steps() const {
  std::vector<Extent> extents;
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
  summary.pins = followers_.pin_count({step.committed.epoch, step.committed.step});
  return summary;
}

StreamInfo Stream::info() const {
  StreamInfo info;
  info.name = state_.name;
  info.uuid = state_.uuid;
  info.epoch = state_.epoch;
  info.incarnation = state_.group ? state_.group->incarnation : 0;
  info.ranks = state_.group ? state_.group->ranks : 0;
  info.status = state_.status;
  info.status_text = state_.status_text;
  if (!state_.steps.empty()) info.oldest = state_.steps.begin()->first;
  if (state_.next_step > 0) info.committed = state_.next_step - 1;
  if (durable_next() > 0) info.durable = durable_next() - 1;
  info.staged = state_.newest_staged;
  info.steps = state_.steps.size();
  info.size_bytes = kept_bytes();
  info.step_open = group_.step_open();
  info.retention = state_.retention;
  info.consumers = followers_.consumers();
  return info;
}

}  // namespace forebay::server
