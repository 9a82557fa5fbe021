// SPDX-License-Identifier: Apache-2.0
#include "readers/lone_reader.h"

#include <utility>

#include <fmt/format.h>

#include "readers/followers.h"
#include "readers/reader_session.h"

namespace forebay::server {

LoneReader::LoneReader(ReaderSession& session, StreamsToRead& streams, ReaderRegistry& registry)
    : Follower(session.connection().loop(), streams, registry), session_(session) {
  number = session.number;
  access = session.access;
  consumer = session.consumer;
}

void LoneReader::come(ReaderSession& session, Followers* found) {
  open(session.asked(), found, Deadline::after_ms(session.asked().open_timeout_ms));
}

void LoneReader::enter(Followers& followers) {
  if (auto joined = followers.join(*this); !joined) {
    session_.refuse_open(joined.error());
    return;
  }
  followers_ = &followers;
  wire::ReaderOpenedT opened;
  opened.rewound = rewound;
  session_.enter(followers, *this, opened);
  // A writer may wait for its readers.
  if (follow) followers.stream().readers_changed();
}

void LoneReader::open_failed(const Error& error) {
  session_.refuse_open(error);
}

void LoneReader::drop_wait() {
  if (wait_request_) session_.connection().drop_request();
  wait_request_.reset();
}

bool LoneReader::closing() const {
  return session_.connection().closing();
}

std::string LoneReader::name() const {
  return consumer.empty() ? "reader" : fmt::format("consumer \"{}\"", consumer);
}

std::string LoneReader::describe() const {
  return fmt::format("{}{} {} {}", consumer.empty() ? "the " : "", name(), peer().remote ? "at" : "of",
                     peer().describe());
}

const Peer& LoneReader::peer() const {
  return session_.connection().peer();
}

void LoneReader::end_with_process() {
  session_.connection().end_with_process();
}

bool LoneReader::end_if_gone() {
  if (!session_.connection().peer_gone()) return false;
  session_.closed("its connection ended");
  return true;
}

void LoneReader::give(const storage::StepState& step, bool rewound_before, std::uint64_t skipped_before) {
  wire::StepEventT event;
  event.rewound = rewound_before;
  event.skipped = skipped_before;
  session_.deliver(*std::exchange(wait_request_, std::nullopt), step, std::move(event));
}

void LoneReader::tell(wire::StepEventT event) {
  const std::uint32_t request = *std::exchange(wait_request_, std::nullopt);
  session_.connection().answer(protocol::MessageType::step_event, request, event);
}

void LoneReader::refuse(const Error& error) {
  session_.connection().answer_failure(*std::exchange(wait_request_, std::nullopt), error);
}

void LoneReader::stream_removed() {
  followers_ = nullptr;
  if (!wait_request_) return;
  wire::StepEventT event;
  event.kind = static_cast<std::uint8_t>(NextStep::Kind::end_of_stream);
  event.status = static_cast<std::uint8_t>(StreamStatus::failed);
  event.text = "the stream was removed";
  tell(std::move(event));
}

Result<void> LoneReader::ask(ReaderSession&, std::uint32_t request, const wire::StepWaitT&) {
  if (wait_request_) return fail(ErrorCode::protocol, "a wait for a step is outstanding already");
  if (!follow) return fail(ErrorCode::invalid_argument, "this reader was opened for random access only");
  wait_request_ = request;
  wait_since_ns = wall_clock_ns();
  followers_->serve(*this);
  return {};
}

wire::StepEventT LoneReader::poll() {
  followers_->serve(*this);
  return not_ready(followers_);
}

Result<void> LoneReader::move_cursor(ReaderSession&, const wire::CursorMoveT& move) {
  return followers_->move_cursor(*this, move);
}

Result<wire::StepsAnswerT> LoneReader::list(ReaderSession&, std::uint64_t first, std::uint32_t steps_max) {
  return followers_->list_steps(first, steps_max, this);
}

void LoneReader::left(ReaderSession&) {
  followers_->stop_following(*this);
  followers_->serve_all();
}

void LoneReader::closed(ReaderSession&) {
  leave_opening();
  if (Followers* const joined = std::exchange(followers_, nullptr)) joined->leave(*this);
}

void LoneReader::shut_out(ReaderSession&, const Error& error) {
  if (is_opening()) stop_opening(error);
  if (wait_request_) refuse(error);
}

}  // namespace forebay::server
