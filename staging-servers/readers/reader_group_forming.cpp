// SPDX-License-Identifier: Apache-2.0
// How a reader group comes to be: its ranks open, join its stream as one, and come back after a restart of the server.
#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/uuid.h"
#include "readers/followers.h"
#include "readers/reader_group.h"
#include "readers/reader_groups.h"
#include "readers/reader_registry.h"
#include "readers/reader_session.h"

namespace forebay::server {
namespace {

constexpr std::int64_t rank_check_ms = 250;
constexpr std::int64_t rank_first_check_ms = 2;
constexpr std::uint32_t list_page_max = 4096;
constexpr std::uint32_t ranks_named_max = 16;
constexpr std::size_t turn_text_max = 4096;

/// The first option in which two ranks differ that must not; empty: none.
std::string_view difference(const wire::ReaderOpenT& left, const wire::ReaderOpenT& right) {
  if (left.start_kind != right.start_kind || left.start_step != right.start_step) return "the start";
  if (left.min_watermark != right.min_watermark) return "MinWatermark";
  if (left.latest_only != right.latest_only) return "whether only the latest step is wanted";
  if (left.distribution != right.distribution) return "StepDistributionMode";
  if (left.follow != right.follow) return "whether they follow";
  if (left.run != right.run) return "the run";
  if (left.wait_for_writer != right.wait_for_writer) return "WaitForWriter";
  if (left.first_step != right.first_step || left.epoch != right.epoch) return "the first step";
  if (left.on_reader_lost != right.on_reader_lost) return "OnReaderLost";
  if (left.turn_timeout_ms != right.turn_timeout_ms) return "TurnTimeoutSecs";
  if (left.lists != right.lists) return "whether they list steps";
  if (left.on_unavailable != right.on_unavailable) return "OnUnavailable";
  return {};
}

TurnAnswer answer_of(const wire::TurnT& turn) {
  TurnAnswer answer;
  if (turn.kind != 0) answer.kind = static_cast<NextStep::Kind>(turn.kind);
  const bool is_known = turn.code >= static_cast<std::uint8_t>(ErrorCode::invalid_argument) &&
                        turn.code <= static_cast<std::uint8_t>(ErrorCode::unavailable);
  if (is_known) answer.error = static_cast<ErrorCode>(turn.code);
  if (turn.key) answer.step = {turn.key->epoch(), turn.key->step()};
  answer.status = static_cast<StreamStatus>(turn.status);
  answer.text = turn.text.substr(0, turn_text_max);
  return answer;
}

}  // namespace

ReaderGroup::ReaderGroup(EventLoop& loop, StreamsToRead& streams, ReaderRegistry& registry, ReaderGroupName name,
                         const wire::ReaderOpenT& asked, std::uint64_t group_number)
    : Follower(loop, streams, registry),
      name_(std::move(name)),
      group_number_(group_number),
      returning_(asked.resume),
      turns_(asked.ranks, static_cast<OnReaderLost>(asked.on_reader_lost)) {
  number = registry.take_number(random_number());
}

std::optional<Error> ReaderGroup::refusal(const ReaderSession& session) {
  const auto self = shared_from_this();
  const wire::ReaderOpenT& asked = session.asked();
  // The end of the one before it may not have been handled yet.
  if (const auto before = members_.find(asked.rank);
      before != members_.end() && before->second.session->connection().peer_gone())
    before->second.session->closed("its connection ended");
  const auto two_processes = [&] {
    return Error{
        ErrorCode::busy,
        fmt::format("two processes are rank {} of {} of one reader group ({} and {}); ranks come from {}; give "
                    "each program another group id",
                    asked.rank, asked.ranks, members_.at(asked.rank).session->connection().peer().describe(),
                    session.connection().peer().describe(), asked.ranks_source),
        where()};
  };
  if (asked.ranks != turns_.ranks()) {
    const Error error{
        ErrorCode::invalid_argument,
        fmt::format("ranks of a reader group do not agree on their number: rank {} says {} (from {}), others say {}",
                    asked.rank, asked.ranks, asked.ranks_source, turns_.ranks()),
        where()};
    if (is_forming()) open_failed(error);
    return error;
  }
  if (is_forming() && !returning_) {
    std::optional<Error> error;
    if (members_.contains(asked.rank)) {
      error = two_processes();
    } else if (const auto what = members_.empty() ? std::string_view() : difference(asked_, asked); !what.empty()) {
      error =
          Error{ErrorCode::invalid_argument,
                fmt::format("ranks of a reader group do not agree on {} (rank {} and rank {}); give all of them the "
                            "same options",
                            what, members_.begin()->first, asked.rank),
                where()};
    }
    if (error) open_failed(*error);
    return error;
  }
  look_for_absent();
  if (turns_.ended()) {
    return Error{ErrorCode::group_broken,
                 "this rank was started alone, but its reader group has ended: " + turns_.ended()->what, where()};
  }
  if (members_.contains(asked.rank) && turns_.is_here(asked.rank)) return two_processes();
  if (asked.resume && turns_.is_awaited(asked.rank)) return std::nullopt;
  if (turns_.was_lost(asked.rank)) {
    if (turns_.awaited() == 0) return std::nullopt;
    // Until then nobody knows which turn comes next.
    return Error{ErrorCode::busy,
                 fmt::format("rank {} can join its reader group again when all others are back after a restart of the "
                             "server; it waits for {}",
                             asked.rank, describe_wait({})),
                 where()};
  }
  return Error{
      ErrorCode::group_broken,
      fmt::format("rank {} of this reader group {}; end all ranks and start them together", asked.rank,
                  turns_.is_awaited(asked.rank) ? "is expected back after a restart of the server" : "has closed it"),
      where()};
}

void ReaderGroup::come(ReaderSession& session, Followers* found) {
  const auto self = shared_from_this();
  const std::uint32_t rank = session.asked().rank;
  if (returning_ && turns_.is_awaited(rank)) {
    come_back(session, found);
    return;
  }
  if (!is_forming()) {
    turns_.join(rank);
    let_in(rank, session, turns_.turn());
    ranks_changed();
    return;
  }
  if (members_.empty()) {
    asked_ = session.asked();
    since_ns_ = monotonic_ns();
  }
  members_[rank].session = &session;
  const Deadline deadline = Deadline::after_ms(session.asked().open_timeout_ms);
  const bool earlier = !deadline.is_never() && deadline.at_ns() < open_deadline_.at_ns();
  if (earlier) open_deadline_ = deadline;
  if (members_.size() == turns_.ranks()) {
    form(found);
  } else if (earlier) {
    set(forming_timer_, open_deadline_.at_ns(), &ReaderGroup::give_up_forming);
  }
}

void ReaderGroup::form(Followers* found) {
  cancel(forming_timer_);
  const ReaderSession& first = *members_.begin()->second.session;
  const auto other = std::ranges::find_if(
      members_, [&](const auto& entry) { return entry.second.session->consumer != first.consumer; });
  if (other != members_.end()) {
    open_failed({ErrorCode::permission_denied,
                 fmt::format("rank {} of this reader group may only read, others may do more; give all ranks the same "
                             "rights",
                             first.access.guest ? members_.begin()->first : other->first),
                 where()});
    return;
  }
  access = first.access;
  consumer = first.consumer;
  open(asked_, found, open_deadline_);
}

void ReaderGroup::give_up_forming() {
  std::string missing;
  const auto count = static_cast<std::uint32_t>(turns_.ranks() - members_.size());
  std::uint32_t listed = 0;
  for (std::uint32_t rank = 0; rank < turns_.ranks() && listed < ranks_named_max; ++rank) {
    if (members_.contains(rank)) continue;
    missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
    ++listed;
  }
  if (count > listed) missing += fmt::format(" and {} more", count - listed);
  open_failed({ErrorCode::timeout,
               fmt::format("rank{} {} of {} of this reader group did not open within {} s (number of ranks from {}); "
                           "where only some ranks read, set Ranks=1",
                           count == 1 ? "" : "s", missing, turns_.ranks(),
                           static_cast<double>(asked_.open_timeout_ms) / 1000, asked_.ranks_source),
               where()});
}

void ReaderGroup::open_failed(const Error& error) {
  const auto self = shared_from_this();
  leave_opening();
  cancel(forming_timer_);
  over_ = true;
  for (const auto& [rank, member] : std::exchange(members_, {})) member.session->refuse_open(error);
  registry_.groups().forget(*this);
}

void ReaderGroup::enter(Followers& followers) {
  if (auto joined = followers.join(*this); !joined) {
    open_failed(joined.error());
    return;
  }
  followers_ = &followers;
  if (returning_) return;
  turns_.begin();
  followed_at_open_ = follow && followers.state().status != StreamStatus::ended;
  if (!follow || (asked_.lists && !followed_at_open_)) take_list();
  // A reader that does not follow was in the group for its Open; the next one of this name is another.
  if (!follow) registry_.groups().forget(*this);
  for (const auto& [rank, member] : members_) to_let_in_.push_back(rank);
  if (!serve_some()) registry_.serving().go_on(*this);
}

bool ReaderGroup::let_some_in(ServingTurns::Slice& slice) {
  if (to_let_in_.empty()) return true;
  while (!to_let_in_.empty()) {
    if (!slice.has_time()) return false;
    const std::uint32_t rank = to_let_in_.front();
    to_let_in_.pop_front();
    // It may have gone meanwhile.
    if (const auto found = members_.find(rank); found != members_.end()) let_in(rank, *found->second.session, 0);
  }
  if (follow) followers_->stream().readers_changed();
  return true;
}

std::size_t ReaderGroup::kept_bytes() const {
  constexpr std::size_t gone_bytes = 64;
  const std::size_t list = list_ ? list_->size() * sizeof(wire::StepSummary) / turns_.ranks() : 0;
  return list + turns_.gone_count() * gone_bytes;
}

void ReaderGroup::take_list() {
  list_.emplace();
  std::uint64_t from = 0;
  for (bool more = true; more;) {
    const wire::StepsAnswerT page = followers_->list_steps(from, list_page_max, this);
    list_->insert(list_->end(), page.steps.begin(), page.steps.end());
    more = page.more;
    if (more) from = page.steps.back().step() + 1;
  }
}

void ReaderGroup::let_in(std::uint32_t rank, ReaderSession& session, std::uint64_t turn) {
  members_[rank].session = &session;
  wire::ReaderOpenedT opened;
  opened.group_number = group_number_;
  opened.turn = turn;
  session.connection().end_with_process();
  session.enter(*followers_, *this, opened);
}

Result<wire::StepsAnswerT> ReaderGroup::list(ReaderSession& session, std::uint64_t first, std::uint32_t steps_max) {
  const auto member = find(session);
  // Ranks that follow have no list of the Open, and may ask at any time for the steps that there are.
  const bool follows_without = follow && (!session.asked().lists || followed_at_open_);
  if (!list_ && follows_without && member != members_.end() && followers_ != nullptr) {
    return followers_->list_steps(first, std::min(steps_max, list_page_max), this);
  }
  if (!list_ || member == members_.end()) {
    return fail(
        ErrorCode::not_found,
        "the list of this reader group's steps is gone, since the server was restarted while it opened; open it "
        "again",
        where());
  }
  wire::StepsAnswerT answer;
  const auto from = std::ranges::lower_bound(*list_, first, {}, [](const auto& step) { return step.step(); });
  const auto count = std::min<std::ptrdiff_t>(list_->end() - from, std::min(steps_max, list_page_max));
  answer.steps.assign(from, from + count);
  answer.more = from + count != list_->end();
  if (!answer.more) member->second.has_list = true;
  if (std::ranges::all_of(members_, [](const auto& entry) { return entry.second.has_list; })) list_.reset();
  return answer;
}

void ReaderGroup::come_back(ReaderSession& session, Followers* found) {
  const wire::ReaderOpenT& asked = session.asked();
  const std::uint32_t rank = asked.rank;
  if (followers_ == nullptr) {
    access = session.access;
    consumer = session.consumer;
    since_ns_ = monotonic_ns();
    members_[rank].session = &session;
    if (found == nullptr) {
      open_failed({ErrorCode::not_found, "the stream was removed while its server was down", where()});
      return;
    }
    open(asked, found, Deadline::never());
    if (followers_ == nullptr) return;
  }
  const wire::TurnT last = asked.told ? *asked.told : wire::TurnT();
  const bool later = last.number > turns_.turn();
  // Who lives, although it was gone when this rank last heard of it, has been started again since.
  std::vector<std::uint32_t> gone = asked.gone;
  if (!gone.empty()) {
    std::set<std::uint32_t> living;
    for (const auto& [other, lives] : registry_.ranks_of_before(group_number_)) {
      if (lives) living.insert(other);
    }
    std::erase_if(gone, [&](std::uint32_t other) { return living.contains(other); });
  }
  const auto known = turns_.come_back(rank, last.number, answer_of(last), gone);
  if (later) {
    followers_->move_back(*this, asked);
    // They hold the step of the turn before.
    let_go_of_held();
  }
  let_in(rank, session, last.number);
  if (last.key) {
    const StepKey key{last.key->epoch(), last.key->step()};
    if (session.pins.contains(key)) members_[rank].held = key;
    if (last.number < turns_.turn()) let_go_of_held(members_[rank]);
  }
  for (const std::uint32_t other : known.value_or(std::vector<std::uint32_t>())) {
    Member& member = members_.at(other);
    const std::uint32_t request = *std::exchange(member.wait_request, std::nullopt);
    if (auto repeated = give_answer(member, request, brought_now()); !repeated)
      member.session->connection().answer_failure(request, repeated.error());
  }
  if (!absent_timer_ && turns_.awaited() > 0)
    set(absent_timer_, monotonic_ns() + rank_first_check_ms * 1'000'000, &ReaderGroup::look_for_absent);
  ranks_changed();
}

// Costs system calls for each rank, so it is done now and then.
void ReaderGroup::look_for_absent() {
  cancel(absent_timer_);
  if (followers_ == nullptr || turns_.awaited() == 0) return;
  bool any_lost = false;
  std::set<std::uint32_t> living;
  for (const auto& [rank, lives] : registry_.ranks_of_before(group_number_)) {
    if (!turns_.is_awaited(rank)) continue;
    if (lives) {
      living.insert(rank);
    } else {
      lose(rank, "has ended while the server was restarted");
      any_lost = true;
    }
  }
  const std::int64_t grace_ms = registry_.restart_grace_ms();
  if (turns_.awaited() > living.size() && monotonic_ns() - since_ns_ >= grace_ms * 1'000'000) {
    const std::string why = fmt::format("did not come back within {} s after a restart of the server",
                                        static_cast<double>(grace_ms) / 1000);
    turns_.lose_awaited(why, living);
    any_lost = true;
  }
  if (turns_.awaited() > 0 && !turns_.ended())
    set(absent_timer_, monotonic_ns() + rank_check_ms * 1'000'000, &ReaderGroup::look_for_absent);
  if (any_lost) ranks_changed();
}

}  // namespace forebay::server
