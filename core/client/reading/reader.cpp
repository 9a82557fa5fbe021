// SPDX-License-Identifier: Apache-2.0
// The public calls of Reader.
#include <algorithm>
#include <deque>
#include <functional>
#include <utility>

#include <forebay/admin.h>
#include <forebay/reader.h>

#include "base/return_error.h"
#include "client/connection/pool.h"
#include "client/connection/steps_listing.h"
#include "client/reading/reader_link.h"
#include "client/reading/step_impl.h"

namespace forebay {

using client::ReaderLink;
using protocol::Message;
using protocol::MessageType;

namespace {

// Removed segments are looked for this often.
constexpr std::uint64_t steps_between_sweeps = 64;
// A server that does not answer a poll in this time is busy; the step comes with a later call.
constexpr std::int64_t poll_answer_ms = 100;
// Requests for steps that are on their way at once; each answer is a pin.
constexpr std::size_t steps_asked_max = 64;

using StepVisitor = std::function<Result<void>(std::shared_ptr<const Step>)>;

}  // namespace

struct Reader::Impl {
  std::shared_ptr<ReaderLink> link;
  std::unique_ptr<Admin> admin;       // for lists; opened when first needed
  std::uint32_t wait_request = 0;     // the outstanding StepWait, or 0
  std::uint64_t wait_generation = 0;  // of the connection that it went to
  std::uint32_t last_incarnation = 0;
  std::uint64_t steps_seen = 0;
  bool untold_rewound = false;                     // came with steps that could not be read: told with the next one
  std::uint64_t untold_skipped = 0;                // likewise
  std::optional<Deadline> reconnect_deadline;      // while the server is away
  std::optional<std::vector<StepSummary>> listed;  // of a rank of a reader group: the steps of the group's Open

  Result<Admin*> lists() {
    RETURN_IF_ERROR(link->opening_process().check());
    if (!admin) {
      ASSIGN_OR_RETURN(admin, Admin::connect_to(link->current().connection->place(), link->options().interrupt,
                                                link->options().reconnect_timeout_ms));
    }
    return admin.get();
  }

  auto guard() {
    return client::ConnectionGuard([this] { link->give_up(); });
  }
  /// All kept ones, or those that this reader takes.
  Result<std::vector<StepSummary>> list_steps();
  /// step_gone if another step than the one that was listed has this number now.
  Result<void> check_listed(const Step& step) const;
  Result<NextStep> take_event(Message message, std::uint64_t generation, bool moves);
  Result<Message> poll(client::Connection& connection, NextStep& not_ready);
  void release_unwanted();
  Result<std::shared_ptr<const Step>> step_of(Message message, std::uint64_t generation);
  Result<std::shared_ptr<const Step>> step(std::uint64_t number, std::uint32_t epoch = 0);
  Result<std::shared_ptr<const Step>> take_step(std::uint32_t request, const ReaderLink::Current& asked);
  Result<void> visit_steps(std::span<const std::uint64_t> numbers, const StepVisitor& visit, ReaderLink::Current& now);
  void tidy_segments(const NextStep& next);
};

// What StepWait or StepGet brought. `moves`: the reader's position follows, once nothing needs memory any more. Where
// there is none the step comes again (but for one that was this reader's share of a consumer's steps).
Result<NextStep> Reader::Impl::take_event(Message message, std::uint64_t generation, bool moves) {
  ASSIGN_OR_RETURN(auto body, protocol::body_of<wire::StepEvent>(message));
  const wire::StepEvent& event = *body;
  NextStep next;
  next.kind = static_cast<NextStep::Kind>(event.kind());
  next.rewound = event.rewound();
  next.skipped = event.skipped();
  next.status = static_cast<StreamStatus>(event.status());
  // The server does not say it again with the step.
  if (moves && next.kind == NextStep::Kind::step) untold_rewound |= next.rewound;
  RETURN_IF_ERROR(link->segments().add(event.segments(), std::move(message.descriptors)));
  next.text = protocol::text_of(event.text());
  if (next.kind == NextStep::Kind::step) {
    if (event.step() == nullptr || event.step()->summary() == nullptr)
      return fail(ErrorCode::protocol, "the server delivered a step without saying which", link->where());
    const wire::StepSummary& summary = *event.step()->summary();
    auto pin = link->delivered(summary.step(), summary.epoch(), event.step()->pinned(), generation);
    if (link->is_remote()) {
      ASSIGN_OR_RETURN(auto carried, client::CarriedStep::of(*event.step()));
      if (carried) pin->carry(std::move(carried));
    }
    auto state = client::StepState::load(std::move(pin), *event.step());
    if (state) next.step = std::make_shared<const Step>(std::make_unique<Step::Impl>(Step::Impl{std::move(*state)}));
    if (moves) {
      // A server that comes back meanwhile does not know that it has given the step, and gives it again.
      if (!link->step_given(summary.epoch(), summary.step(), generation)) return NextStep{};
      link->turn_answered(event);
      untold_rewound |= link->take_rewound();
      untold_skipped += next.skipped;
    }
    if (!state) return fail(std::move(state.error()));
    if (moves) {
      next.rewound = std::exchange(untold_rewound, false);
      next.skipped = std::exchange(untold_skipped, 0);
    }
  }
  if (moves && next.kind != NextStep::Kind::step) link->turn_answered(event);
  tidy_segments(next);
  return next;
}

Result<std::vector<StepSummary>> Reader::Impl::list_steps() {
  if (listed) return *listed;
  if (!link->is_limited() && !link->in_group()) {
    ASSIGN_OR_RETURN(auto all, lists());
    return all->steps(link->address());
  }
  return client::list_steps(link->address(), [this](const wire::StepsQueryT& query) {
    return link->ask(MessageType::steps_query, query, MessageType::steps_answer);
  });
}

Result<void> Reader::Impl::check_listed(const Step& step) const {
  if (!listed) return {};
  const auto found = std::ranges::lower_bound(*listed, step.number(), {}, &StepSummary::step);
  if (found == listed->end() || found->step != step.number() || found->epoch == step.epoch()) return {};
  return fail(ErrorCode::step_gone,
              "the step was withdrawn and written anew since this reader group was opened; open it again",
              link->where() + ", step " + std::to_string(step.number()));
}

// A segment goes to other writers only when nobody holds its descriptor, so those of earlier incarnations are let go; a
// step that still refers to one asks for it again.
void Reader::Impl::tidy_segments(const NextStep& next) {
  if (next.step) {
    const std::uint32_t incarnation = next.step->summary().incarnation;
    if (last_incarnation != 0 && incarnation != last_incarnation) link->segments().drop_idle();
    last_incarnation = incarnation;
    if (++steps_seen % steps_between_sweeps == 0) link->segments().drop_removed();
  } else if (next.kind != NextStep::Kind::not_ready) {
    link->segments().drop_idle();
  }
}

// Steps that a call asked for before it was interrupted are pinned for this reader, and nobody will read them.
void Reader::Impl::release_unwanted() {
  const ReaderLink::Current now = link->current();
  for (Message& message : now.connection->take_unwanted_steps())
    (void)take_event(std::move(message), now.generation, false);
}

Reader::Reader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Reader::~Reader() {
  impl_->link->leave();
}

Result<std::unique_ptr<Reader>> Reader::open(const Address& address, const ReaderOptions& options) {
  ASSIGN_OR_RETURN(auto place, client::home_of(address, options.server, options.interrupt));
  ASSIGN_OR_RETURN(auto link, ReaderLink::open(address, options, place));
  auto impl = std::make_unique<Impl>();
  impl->link = std::move(link);
  // At once: the server keeps the list until all ranks have it, and not over a restart.
  const bool had_ended = impl->link->status_at_open() == StreamStatus::ended;
  if (impl->link->in_group() && (!options.follow || (options.lists && had_ended))) {
    ASSIGN_OR_RETURN(impl->listed, impl->list_steps());
  }
  return std::unique_ptr<Reader>(new Reader(std::move(impl)));
}

// The outstanding wait's answer, or timeout, with what the server says of it in `not_ready`. The server may not have
// read the wait yet: a step that was committed before somebody polls is to be found, so it is asked to say that it has.
Result<Message> Reader::Impl::poll(client::Connection& connection, NextStep& not_ready) {
  ASSIGN_OR_RETURN(auto asked, connection.start(MessageType::step_poll, wire::StepPollT()));
  if (auto said = connection.wait(asked, Deadline::after_ms(poll_answer_ms))) {
    const auto body = protocol::body_of<wire::StepEvent>(*said);
    if (body && said->type == MessageType::step_event) {
      not_ready.status = static_cast<StreamStatus>((*body)->status());
      not_ready.text = protocol::text_of((*body)->text());
    }
  } else {
    connection.forget(asked);
    if (said.error().code != ErrorCode::timeout) return fail(std::move(said.error()));
  }
  return connection.wait(wait_request, Deadline::after_ms(0));
}

Result<NextStep> Reader::next(std::int64_t timeout_ms) {
  ReaderLink& link = *impl_->link;
  RETURN_IF_ERROR(link.opening_process().check());
  if (!link.options().follow) {
    return fail(ErrorCode::invalid_argument,
                "this reader was opened for random access (follow=false); read steps by number", link.where());
  }
  const auto guard = impl_->guard();
  impl_->release_unwanted();
  // The server says when a rank of a group is to wait no longer: all of them at once.
  const Deadline deadline = link.in_group() ? Deadline::never() : Deadline::after_ms(timeout_ms);
  while (true) {
    const ReaderLink::Current now = link.current();
    const std::uint64_t last_turn = link.turn();
    if (impl_->wait_request == 0 || impl_->wait_generation != now.generation) {
      wire::StepWaitT request;
      if (link.in_group()) {
        request.turn = last_turn + 1;
        request.timeout_ms = timeout_ms;
      }
      auto started = now.connection->start(MessageType::step_wait, request);
      impl_->wait_request = started ? *started : 0;
      impl_->wait_generation = now.generation;
      if (!started && !now.connection->is_broken()) return fail(std::move(started.error()));
    }
    if (impl_->wait_request != 0) {
      auto answer = now.connection->wait(impl_->wait_request, deadline);
      NextStep not_ready;
      // Over several servers, the step may be there and wait for one of them: that is worth a question.
      const bool asks = !link.in_group() && (timeout_ms == 0 || link.segments().has_others());
      if (!answer && asks && answer.error().code == ErrorCode::timeout)
        answer = impl_->poll(*now.connection, not_ready);
      if (answer) {
        impl_->wait_request = 0;
        impl_->reconnect_deadline.reset();
        auto event = client::Connection::expect(std::move(*answer), MessageType::step_event);
        if (!event) {
          link.turn_failed(event.error());
          if (event.error().where.empty()) event.error().where = link.where();
          return fail(std::move(event.error()));
        }
        auto taken = impl_->take_event(std::move(*event), now.generation, true);
        // Not by the server, but since the connection was lost while the step was read.
        if (taken && taken->kind == NextStep::Kind::not_ready && link.turn() == last_turn) continue;
        return taken;
      }
      if (!now.connection->is_broken()) {
        if (answer.error().code == ErrorCode::timeout) return not_ready;
        return fail(std::move(answer.error()));
      }
    }
    // The server is away: it is waited for as long as the options say, or for this call's timeout if that is shorter.
    impl_->wait_request = 0;
    if (!impl_->reconnect_deadline) impl_->reconnect_deadline = Deadline::after_ms(link.options().reconnect_timeout_ms);
    const bool give_up_first = impl_->reconnect_deadline->at_ns() <= deadline.at_ns();
    auto resumed = link.resume(*now.connection, give_up_first ? *impl_->reconnect_deadline : deadline);
    if (resumed) {
      impl_->reconnect_deadline.reset();
    } else if (resumed.error().code == ErrorCode::disconnected && !impl_->reconnect_deadline->passed()) {
      return NextStep{};
    } else {
      return fail(std::move(resumed.error()));
    }
  }
}

Result<std::shared_ptr<const Step>> Reader::Impl::step_of(Message message, std::uint64_t generation) {
  ASSIGN_OR_RETURN(auto event, take_event(std::move(message), generation, false));
  if (!event.step) return fail(ErrorCode::protocol, "the server answered without the step", link->where());
  RETURN_IF_ERROR(check_listed(*event.step));
  return event.step;
}

// The answer to a StepGet.
Result<std::shared_ptr<const Step>> Reader::Impl::take_step(std::uint32_t request, const ReaderLink::Current& asked) {
  auto answer = asked.connection->wait(request, asked.connection->request_deadline());
  if (!answer) {
    asked.connection->forget(request);
    return fail(std::move(answer.error()));
  }
  auto message = client::Connection::expect(std::move(*answer), MessageType::step_event);
  if (!message) {
    if (message.error().where.empty()) message.error().where = link->where();
    return fail(std::move(message.error()));
  }
  return step_of(std::move(*message), asked.generation);
}

Result<std::shared_ptr<const Step>> Reader::Impl::step(std::uint64_t number, std::uint32_t epoch) {
  release_unwanted();
  wire::StepGetT request;
  request.step = number;
  request.epoch = epoch;
  while (true) {
    std::uint64_t generation = 0;
    ASSIGN_OR_RETURN(auto answer, link->ask(MessageType::step_get, request, MessageType::step_event, &generation));
    auto found = step_of(std::move(answer), generation);
    // Where the connection has ended meanwhile, the step is not held.
    if (link->is_current(generation)) return found;
  }
}

// `now`: the connection that the requests of the moment went to.
Result<void> Reader::Impl::visit_steps(std::span<const std::uint64_t> numbers, const StepVisitor& visit,
                                       ReaderLink::Current& now) {
  std::deque<std::uint32_t> asked;  // requests for the first of `numbers`
  Result<void> done;
  while (done && !numbers.empty()) {
    if (auto current = link->current(); current.generation != now.generation) {
      // The server was restarted under `visit`: pins that the old connection brought are lost.
      asked.clear();
      now = std::move(current);
    }
    while (asked.size() < std::min(numbers.size(), steps_asked_max)) {
      wire::StepGetT request;
      request.step = numbers[asked.size()];
      auto started = now.connection->start(MessageType::step_get, request);
      if (!started) break;
      asked.push_back(*started);
    }
    const bool was_asked = !asked.empty();
    auto next = was_asked ? take_step(asked.front(), now) : step(numbers.front());
    if (was_asked && (next ? !link->is_current(now.generation) : now.connection->is_broken())) {
      // The ordinary way waits for the server.
      asked.clear();
      next = step(numbers.front());
    } else if (was_asked) {
      asked.pop_front();
    }
    numbers = numbers.subspan(1);
    if (next) {
      done = visit(std::move(*next));
    } else if (listed) {
      // For one rank it may be gone, for another not yet: it is never left out.
      done = fail(std::move(next.error()));
    } else if (next.error().code == ErrorCode::not_found) {
      // No such step; or the stream is no more, and the steps that are left are not to look like none.
      done = link->confirm();
    } else if (next.error().code != ErrorCode::step_gone) {
      done = fail(std::move(next.error()));
    }
  }
  // What is still to come are pins: taken, so that they are released - later, if somebody wants to stop.
  bool interrupted = false;
  for (const std::uint32_t request : asked) {
    if (interrupted) {
      now.connection->forget(request);
    } else if (auto last = take_step(request, now); !last) {
      interrupted = last.error().code == ErrorCode::cancelled;
    }
  }
  return done;
}

Result<std::shared_ptr<const Step>> Reader::step(std::uint64_t number, std::uint32_t epoch) {
  const auto guard = impl_->guard();
  return impl_->step(number, epoch);
}

Result<void> Reader::for_each_step(std::span<const std::uint64_t> numbers, const StepVisitor& visit) {
  RETURN_IF_ERROR(impl_->link->opening_process().check());
  const auto guard = impl_->guard();
  impl_->release_unwanted();
  ReaderLink::Current now = impl_->link->current();
  return impl_->visit_steps(numbers, visit, now);
}

Result<std::vector<StepSummary>> Reader::steps() {
  auto steps = impl_->list_steps();
  if (steps && impl_->link->options().min_watermark == Watermark::durable) {
    std::erase_if(*steps, [](const StepSummary& summary) { return !summary.durable; });
  }
  return steps;
}

Result<StreamInfo> Reader::info() {
  ASSIGN_OR_RETURN(auto lists, impl_->lists());
  return lists->stream(impl_->link->address());
}

Result<void> Reader::acknowledge(const Step& step) {
  ReaderLink& link = *impl_->link;
  if (link.options().consumer.empty()) {
    return fail(ErrorCode::invalid_argument,
                "a reader without a consumer name has no cursor; open it with a name to acknowledge steps",
                link.where());
  }
  wire::CursorMoveT request;
  request.epoch = step.epoch();
  request.position = step.number() + 1;
  RETURN_IF_ERROR(link.ask(MessageType::cursor_move, request, MessageType::done));
  return {};
}

Result<void> Reader::seek(std::uint64_t step) {
  const auto guard = impl_->guard();
  ReaderLink& link = *impl_->link;
  wire::CursorMoveT request;
  request.epoch = link.epoch();
  request.position = step;
  request.seek = true;
  RETURN_IF_ERROR(link.ask(MessageType::cursor_move, request, MessageType::done));
  link.set_position(request.epoch, step);
  // The server has ended a wait from before; a step that it brought is let go of.
  const ReaderLink::Current now = link.current();
  if (impl_->wait_request != 0 && impl_->wait_generation == now.generation) now.connection->forget(impl_->wait_request);
  impl_->wait_request = 0;
  return {};
}

std::uint64_t Reader::position() const {
  return impl_->link->position();
}

const Address& Reader::address() const {
  return impl_->link->address();
}

const std::string& Reader::stream_uuid() const {
  return impl_->link->stream_uuid();
}

StreamStatus Reader::status_at_open() const {
  return impl_->link->status_at_open();
}

std::uint64_t Reader::first_step() const {
  return impl_->link->first_step();
}

std::uint32_t Reader::epoch() const {
  return impl_->link->epoch();
}

}  // namespace forebay
