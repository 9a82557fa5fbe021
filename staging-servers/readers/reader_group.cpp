// SPDX-License-Identifier: Apache-2.0
// Its turns. reader_group_forming.cpp has how it comes to be, and comes back.
#include "readers/reader_group.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/fail_point.h"
#include "base/log.h"
#include "base/return_error.h"
#include "readers/followers.h"
#include "readers/reader_groups.h"
#include "readers/reader_registry.h"
#include "readers/reader_session.h"

namespace forebay::server {
namespace {

constexpr std::size_t missing_listed_max = 16;

}  // namespace

ReaderGroup::~ReaderGroup() {
  registry_.give_back_number(number);
  registry_.serving().forget(*this);
  for (auto* timer : {&forming_timer_, &absent_timer_, &late_timer_, &not_ready_timer_}) cancel(*timer);
}

void ReaderGroup::cancel(std::optional<EventLoop::TimerId>& timer) {
  if (timer) loop_.cancel(*timer);
  timer.reset();
}

void ReaderGroup::set(std::optional<EventLoop::TimerId>& timer, std::int64_t at_ns, void (ReaderGroup::*task)()) {
  cancel(timer);
  timer = loop_.at(at_ns, [this, &timer, task] {
    timer.reset();
    // What it does may let go of the last connection.
    const auto self = shared_from_this();
    (this->*task)();
  });
}

ReaderGroup::Members::iterator ReaderGroup::find(const ReaderSession& session) {
  const auto found = members_.find(session.asked().rank);
  return found != members_.end() && found->second.session == &session ? found : members_.end();
}

std::string ReaderGroup::name() const {
  const std::string ranks = fmt::format("{} ranks", turns_.ranks());
  return consumer.empty() ? "reader group of " + ranks : fmt::format("consumer \"{}\" ({})", consumer, ranks);
}

std::string ReaderGroup::describe() const {
  std::string text =
      fmt::format("{}{} {} {}", consumer.empty() ? "the " : "", name(), peer().remote ? "at" : "of", peer().describe());
  if (followers_ != nullptr && !turns_.is_complete()) text += ", which waits for " + describe_wait({});
  return text;
}

std::string ReaderGroup::describe_wait(const std::string& step) const {
  if (turns_.is_complete()) return step;
  std::string ranks;
  const auto missing = turns_.missing(missing_listed_max + 1);
  for (std::size_t i = 0; i < std::min(missing.size(), missing_listed_max); ++i)
    ranks += (ranks.empty() ? "" : ", ") + std::to_string(missing[i]);
  if (ranks.empty()) ranks = "after many that have gone";
  if (missing.size() > missing_listed_max) ranks += " and more";
  return fmt::format("rank{} {} to {}", missing.size() == 1 ? "" : "s", ranks,
                     turns_.awaited() > 0 ? "come back after a restart of the server" : "ask for the next step");
}

const Peer& ReaderGroup::peer() const {
  return members_.empty() ? last_peer_ : members_.begin()->second.session->connection().peer();
}

bool ReaderGroup::end_if_gone() {
  const auto self = shared_from_this();
  std::vector<ReaderSession*> gone;
  for (const auto& [rank, member] : members_) {
    if (member.session->connection().peer_gone()) gone.push_back(member.session);
  }
  for (ReaderSession* const session : gone) session->closed("its connection ended");
  return followers_ == nullptr;
}

Result<void> ReaderGroup::ask(ReaderSession& session, std::uint32_t request, const wire::StepWaitT& wait) {
  const auto found = find(session);
  if (found == members_.end()) return fail(ErrorCode::group_broken, "this rank has left its reader group", where());
  if (!follow && !turns_.ended())
    return fail(ErrorCode::invalid_argument, "this reader was opened for random access only", where());
  auto& [rank, member] = *found;
  auto decided = turns_.ask(rank, wait.turn, wait.timeout_ms);
  if (!decided) {
    if (decided.error().where.empty()) decided.error().where = where();
    return fail(std::move(decided.error()));
  }
  if (*decided == GroupTurns::Asked::answered) return give_answer(member, request, brought_now());
  member.wait_request = request;
  wait_since_ns = wall_clock_ns();
  if (turns_.is_complete()) {
    go_on();
  } else {
    wait_for_ranks();
  }
  return {};
}

void ReaderGroup::go_on() {
  if (!waits()) return;
  const auto self = shared_from_this();
  cancel(late_timer_);
  let_go_of_held();
  fail_point("server.turn.before_answer");
  followers_->serve(*this);
  if (!waits()) return;
  const std::int64_t timeout_ms = turns_.timeout_ms();
  if (timeout_ms == 0) {
    answer_not_ready();
  } else if (timeout_ms > 0) {
    set(not_ready_timer_, Deadline::after_ms(timeout_ms).at_ns(), &ReaderGroup::answer_not_ready);
  }
}

void ReaderGroup::answer_not_ready() {
  if (!waits()) return;
  tell(not_ready(followers_));
}

void ReaderGroup::decide(TurnAnswer decided, Brought brought) {
  cancel(not_ready_timer_);
  brought_ = std::move(brought);
  const std::vector<std::uint32_t> ranks = turns_.decide(std::move(decided));
  unanswered_.assign(ranks.begin(), ranks.end());
  if (serve_some()) return;
  followers_->begin_answering(*this);
  registry_.serving().go_on(*this);
}

bool ReaderGroup::serve_some() {
  const auto self = shared_from_this();
  ServingTurns::Slice slice(registry_.serving());
  if (!let_some_in(slice)) return false;
  while (!unanswered_.empty()) {
    if (!slice.has_time()) return false;
    const auto found = members_.find(unanswered_.front());
    unanswered_.pop_front();
    // It may have gone meanwhile.
    if (found == members_.end() || !found->second.wait_request) continue;
    Member& member = found->second;
    const std::uint32_t request = *std::exchange(member.wait_request, std::nullopt);
    if (auto given = give_answer(member, request, brought_); !given)
      member.session->connection().answer_failure(request, given.error());
    fail_point("server.turn.between_answers");
  }
  if (followers_ != nullptr) followers_->end_answering(*this);
  return true;
}

void ReaderGroup::give(const storage::StepState& step, bool rewound_before, std::uint64_t skipped_before) {
  TurnAnswer decided;
  decided.kind = NextStep::Kind::step;
  decided.step = {step.committed.epoch, step.committed.step};
  Brought brought = brought_now();
  brought.rewound = rewound_before;
  brought.skipped = skipped_before;
  decide(std::move(decided), std::move(brought));
}

void ReaderGroup::tell(wire::StepEventT event) {
  TurnAnswer decided;
  decided.kind = static_cast<NextStep::Kind>(event.kind);
  decided.status = static_cast<StreamStatus>(event.status);
  decided.text = event.text;
  decide(std::move(decided), brought_now());
}

void ReaderGroup::refuse(const Error& error) {
  TurnAnswer decided;
  decided.error = error.code;
  decided.text = error.what;
  decide(std::move(decided), brought_now());
}

Result<void> ReaderGroup::give_answer(Member& member, std::uint32_t request, const Brought& brought) {
  const TurnAnswer& answer = turns_.answer();
  if (!answer.kind) return fail(answer.error, answer.text, where());
  wire::StepEventT event;
  event.turn = turns_.turn();
  event.gone = brought.gone;
  event.status = static_cast<std::uint8_t>(answer.status);
  event.text = answer.text;
  if (*answer.kind != NextStep::Kind::step) {
    event.kind = static_cast<std::uint8_t>(*answer.kind);
    member.session->connection().answer(protocol::MessageType::step_event, request, event);
    return {};
  }
  event.rewound = brought.rewound;
  event.skipped = brought.skipped;
  if (const storage::StepState* step = followers_->find_step(answer.step)) {
    member.session->deliver(request, *step, std::move(event));
    return {};
  }
  const Error gone{ErrorCode::step_gone,
                   fmt::format("step {}, which other ranks of this reader group have, was dropped meanwhile; start all "
                               "ranks anew",
                               answer.step.second),
                   where()};
  turns_.end(gone);
  loop_.post([alive = weak_from_this()] {
    if (const auto self = alive.lock()) self->ranks_changed();
  });
  return fail(gone);
}

void ReaderGroup::let_go_of_held() {
  for (auto& [rank, member] : members_) let_go_of_held(member);
}

void ReaderGroup::let_go_of_held(Member& member) {
  if (const auto held = std::exchange(member.held, std::nullopt))
    followers_->pins().release(*member.session, {&*held, 1});
}

void ReaderGroup::turn_is_late() {
  if (turns_.is_complete() || turns_.ended()) return;
  const std::string why = fmt::format("did not ask for its next step within {} s (TurnTimeoutSecs)",
                                      static_cast<double>(asked_.turn_timeout_ms) / 1000);
  for (const std::uint32_t rank : turns_.late()) lose(rank, why);
  turns_.lose_awaited(why);
  ranks_changed();
}

void ReaderGroup::lose(std::uint32_t rank, const std::string& why) {
  const auto found = members_.find(rank);
  const std::string process =
      found == members_.end() ? "" : "(" + found->second.session->connection().peer().describe() + ") ";
  turns_.lose(rank, process + why);
}

void ReaderGroup::drop_wait() {
  for (auto& [rank, member] : members_) {
    if (member.wait_request) member.session->connection().drop_request();
    member.wait_request.reset();
  }
}

void ReaderGroup::stop_reading() {
  cancel(late_timer_);
  cancel(not_ready_timer_);
  cancel(absent_timer_);
  over_ = true;
  unanswered_.clear();
  const std::deque<std::uint32_t> opening = std::exchange(to_let_in_, {});
  registry_.serving().forget(*this);
  if (turns_.ended()) {
    Error error = *turns_.ended();
    if (error.where.empty()) error.where = where();
    for (const std::uint32_t rank : opening) {
      if (const auto found = members_.find(rank); found != members_.end()) found->second.session->refuse_open(error);
    }
    for (auto& [rank, member] : members_) {
      if (member.wait_request)
        member.session->connection().answer_failure(*std::exchange(member.wait_request, std::nullopt), error);
    }
  }
  if (followers_ != nullptr) {
    let_go_of_held();
    std::exchange(followers_, nullptr)->leave(*this);
  }
}

void ReaderGroup::ranks_changed() {
  const auto self = shared_from_this();
  // With nobody connected nothing is kept, although others may come back after a restart of the server.
  if (followers_ != nullptr && (turns_.ended() || turns_.is_over() || members_.empty())) stop_reading();
  if (followers_ == nullptr) {
    // Until all of them have gone, a rank that is started anew alone is refused.
    if (over_ && (members_.empty() || !turns_.ended())) registry_.groups().forget(*this);
    return;
  }
  if (auto moved = acknowledge(); !moved) log::warning("{}", moved.error().message());
  if (turns_.is_complete()) {
    go_on();
  } else {
    wait_for_ranks();
  }
}

void ReaderGroup::wait_for_ranks() {
  cancel(not_ready_timer_);
  if (late_timer_ || turns_.is_idle() || asked_.turn_timeout_ms < 0) return;
  set(late_timer_, Deadline::after_ms(asked_.turn_timeout_ms).at_ns(), &ReaderGroup::turn_is_late);
}

void ReaderGroup::left(ReaderSession& session) {
  const auto found = find(session);
  if (found == members_.end()) return;
  if (found->second.wait_request) {
    session.connection().drop_request();
    found->second.wait_request.reset();
  }
  turns_.leave(found->first);
  ranks_changed();
}

void ReaderGroup::closed(ReaderSession& session) {
  const auto found = find(session);
  if (found == members_.end()) return;
  const auto self = shared_from_this();
  const std::uint32_t rank = found->first;
  last_peer_ = session.connection().peer();
  if (is_forming() && !returning_) {
    leave_opening();
    members_.erase(found);
    if (members_.empty()) {
      over_ = true;
      cancel(forming_timer_);
      registry_.groups().forget(*this);
    } else if (!forming_timer_ && !open_deadline_.is_never()) {
      set(forming_timer_, open_deadline_.at_ns(), &ReaderGroup::give_up_forming);
    }
    return;
  }
  if (follow) {
    if (turns_.is_here(rank)) lose(rank, "ended without closing it");
  } else {
    turns_.leave(rank);
  }
  members_.erase(rank);
  ranks_changed();
}

void ReaderGroup::shut_out(ReaderSession& session, const Error& error) {
  const auto self = shared_from_this();
  if (is_forming() && !returning_) {
    leave_opening();
    open_failed(error);
    return;
  }
  if (const auto found = find(session); found != members_.end() && found->second.wait_request)
    session.connection().answer_failure(*std::exchange(found->second.wait_request, std::nullopt), error);
  turns_.end(error);
  ranks_changed();
}

void ReaderGroup::stream_removed() {
  const auto self = shared_from_this();
  turns_.end({ErrorCode::not_found, "the stream was removed", where()});
  ranks_changed();
}

Result<void> ReaderGroup::move_cursor(ReaderSession& session, const wire::CursorMoveT& move) {
  if (move.seek) {
    return fail(ErrorCode::unsupported,
                "a rank of a reader group cannot seek, which would move the others; open the group with a start",
                where());
  }
  const auto found = find(session);
  if (found == members_.end() || followers_ == nullptr)
    return fail(
        turns_.ended().value_or(Error{ErrorCode::group_broken, "this rank has left its reader group", where()}));
  if (consumer.empty()) return followers_->move_cursor(*this, move);
  Acknowledged& own = found->second.acknowledged;
  own = std::max(own, Acknowledged(move.epoch, move.position));
  return acknowledge();
}

Result<void> ReaderGroup::acknowledge() {
  std::optional<Acknowledged> least;
  for (const auto& [rank, member] : members_) {
    if (turns_.is_here(rank)) least = least ? std::min(*least, member.acknowledged) : member.acknowledged;
  }
  if (!least || *least <= acknowledged_ || turns_.awaited() > 0) return {};
  acknowledged_ = *least;
  wire::CursorMoveT move;
  std::tie(move.epoch, move.position) = acknowledged_;
  return followers_->move_cursor(*this, move);
}

}  // namespace forebay::server
