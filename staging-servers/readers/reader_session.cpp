// SPDX-License-Identifier: Apache-2.0
#include "readers/reader_session.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <forebay/address.h>

#include "base/bounds.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/return_error.h"
#include "base/uuid.h"
#include "protocol/unpacked.h"
#include "readers/reader_registry.h"
#include "space/reservation_space.h"
#include "storage/record_check.h"

namespace forebay::server {
namespace {

constexpr std::size_t pins_max = 65536;
constexpr std::size_t extents_max = 4096;

/// A part's space may be several extents that lie one behind another.
bool lies_in(const journal::StepCommittedT& step, const wire::Extent& wanted) {
  std::uint64_t from = wanted.offset();
  const auto end = checked_add(from, wanted.length());
  if (!end || wanted.length() == 0) return false;
  for (const auto& part : step.parts) {
    for (const journal::Extent& extent : part->extents) {
      const bool begins = extent.segment() == wanted.segment() && extent.member() == wanted.member() &&
                          extent.offset() <= from && from - extent.offset() < extent.length();
      if (!begins) continue;
      if (range_within(from - extent.offset(), *end - from, extent.length())) return true;
      from = extent.offset() + extent.length();
    }
  }
  return false;
}

}  // namespace

ReaderSession::ReaderSession(Connection& connection, StreamsToRead& streams, ReaderRegistry& registry)
    : connection_(connection), streams_(streams), registry_(registry) {}

ReaderSession::~ReaderSession() {
  if (open_timer_) connection_.loop().cancel(*open_timer_);
  registry_.give_back_number(number);
}

void ReaderSession::take_number() {
  if (std::exchange(admitted_, false)) registry_.presence().forget(number);
  registry_.give_back_number(number);
  // A living reader's number would give this one a say over the other's pins.
  const bool keeps = wish_.resume && wish_.session != 0;
  number = registry_.take_number(keeps ? wish_.session : random_number());
}

void ReaderSession::open(const protocol::Message& message) {
  auto body = protocol::body_of<wire::ReaderOpen>(message);
  if (!body || followers_ != nullptr || is_waiting()) {
    connection_.answer_failure(message.request, {ErrorCode::protocol, "malformed or repeated open of a reader", ""});
    connection_.close("protocol error");
    return;
  }
  const std::unique_ptr<wire::ReaderOpenT> wish((*body)->UnPack());
  wish_ = std::move(*wish);
  open_request_ = message.request;
  const std::string where = "stream " + wish_.reservation + "/" + wish_.stream;
  const auto found = streams_.find_to_read(connection_.peer(), wish_.reservation, wish_.stream);
  if (!found) {
    connection_.answer_failure(open_request_, found.error());
    return;
  }
  access = streams_.rights_of(connection_.peer(), wish_.reservation);
  const bool sane = is_valid_name(wish_.stream) && wish_.stream != "files" &&
                    (wish_.consumer.empty() || is_valid_name(wish_.consumer)) && wish_.min_watermark >= 1 &&
                    wish_.min_watermark <= 2 && wish_.start_kind >= 1 && wish_.start_kind <= 5 &&
                    wish_.distribution <= 3 && wish_.pins.size() <= pins_max &&
                    wish_.run.size() <= storage::run_bytes_max;
  if (!sane) {
    connection_.answer_failure(
        open_request_, {ErrorCode::invalid_argument,
                        "not a valid name of a stream, consumer or run, or an option with an unknown value", where});
    return;
  }
  consumer = consumer_of_reader(access, connection_.peer().uid, wish_.consumer);
  const bool shares_unnamed = consumer.empty() && wish_.distribution > 1 && access.guest;
  if (!is_valid_name(consumer.empty() ? "x" : consumer) || shares_unnamed) {
    connection_.answer_failure(
        open_request_,
        {ErrorCode::invalid_argument,
         shares_unnamed ? "who may only read shares steps out under a consumer's name: give one"
                        : "the consumer's name is too long: for who may only read it is stored as " + consumer,
         where});
    return;
  }
  min_watermark = static_cast<Watermark>(wish_.min_watermark);
  latest_only = wish_.latest_only;
  distribution = static_cast<StepDistribution>(wish_.distribution);
  follow = wish_.follow;
  take_number();
  wait_since_ns = wall_clock_ns();
  if (const Deadline deadline = Deadline::after_ms(wish_.open_timeout_ms); !deadline.is_never())
    open_timer_ = connection_.loop().at(deadline.at_ns(), [this] { give_up_waiting(); });
  wait(*found);
}

void ReaderSession::wait(Followers* found) {
  if (found == nullptr) {
    waiting_for_stream_ = true;
    registry_.add_stream_waiter(*this, wanted_path());
    return;
  }
  waiting_in_ = found;
  if (found->writer_waits().has_writer_for(wish_)) {
    writer_came();
    return;
  }
  found->writer_waits().add(*this);
  // It may be this reader that the writer waits for.
  found->stream().readers_changed();
}

void ReaderSession::leave_waiting() {
  if (std::exchange(waiting_for_stream_, false)) registry_.remove_stream_waiter(*this);
  if (waiting_in_ != nullptr) std::exchange(waiting_in_, nullptr)->writer_waits().remove(*this);
  if (open_timer_) connection_.loop().cancel(*open_timer_);
  open_timer_.reset();
}

void ReaderSession::give_up_waiting() {
  open_timer_.reset();
  const bool there = waiting_in_ != nullptr;
  const std::string of_run = wish_.run.empty() ? "" : " of run " + quoted_run(wish_.run);
  const std::string what = there ? waiting_in_->writer_waits().describe(wish_)
                                 : "no such stream, and no writer" + of_run +
                                       " made it within the time given; `forebay streams " + wish_.reservation +
                                       "` lists what is there";
  const ErrorCode code = !there && wish_.open_timeout_ms == 0 ? ErrorCode::not_found : ErrorCode::timeout;
  stop_waiting({code, what, "stream " + wanted_path()});
}

void ReaderSession::stream_made() {
  waiting_for_stream_ = false;
  // Null if it was removed again meanwhile: the next one of this name is waited for.
  wait(streams_.find_to_read(connection_.peer(), wish_.reservation, wish_.stream).value_or(nullptr));
}

void ReaderSession::writer_came() {
  followers_ = waiting_in_;
  leave_waiting();
  join();
}

void ReaderSession::awaited_stream_removed() {
  waiting_in_ = nullptr;
  wait(nullptr);
}

void ReaderSession::stop_waiting(const Error& error) {
  leave_waiting();
  connection_.answer_failure(open_request_, error);
}

void ReaderSession::reservation_destroyed() {
  stop_waiting({ErrorCode::not_found, "the reservation was destroyed", "reservation " + wish_.reservation});
}

void ReaderSession::writer_refused(const std::string& run, const std::string& why) {
  if (wish_.open_timeout_ms >= 0 && wants_run(run)) stop_waiting(refused_writer(wanted_path(), why));
}

void ReaderSession::rights_changed(const std::string& reservation) {
  if (reservation != wish_.reservation || (followers_ == nullptr && !is_waiting())) return;
  const AccessRights now = streams_.rights_of(connection_.peer(), reservation);
  if (now.allow(access.rights)) return;
  const Error taken{ErrorCode::permission_denied,
                    "the right to read was taken away; ask the reservation's owner (`forebay share`)",
                    "stream " + wanted_path()};
  if (now.allow(Rights::read)) {
    // It comes back with what it still may, and with its pins.
    connection_.close("it may only read now");
    return;
  }
  shut_out_ = true;
  if (is_waiting()) stop_waiting(taken);
  if (wait_request) connection_.answer_failure(*std::exchange(wait_request, std::nullopt), taken);
  connection_.close(taken.what);
}

void ReaderSession::join() {
  if (auto joined = followers_->join(*this, wish_); !joined) {
    followers_ = nullptr;
    connection_.answer_failure(open_request_, joined.error());
    return;
  }
  wire::ReaderOpenedT opened;
  opened.uuid = followers_->state().uuid;
  opened.epoch = followers_->state().epoch;
  opened.position = position;
  opened.segment_bytes = followers_->space().segments().record().segment_bytes;
  opened.member_segments = followers_->space().segments().layout().member_segments();
  opened.session = number;
  opened.status = static_cast<std::uint8_t>(followers_->state().status);
  opened.first_step = first_step;
  opened.rewound = rewound;
  if (wish_.resume) {
    std::vector<StepKey> wanted;
    for (const wire::StepKey& key : wish_.pins) wanted.emplace_back(key.epoch(), key.step());
    for (const StepKey& key : followers_->pins().resume(*this, wanted))
      opened.lost_pins.emplace_back(key.second, key.first, 0);
  }
  admitted_ = true;
  std::vector<Descriptor> descriptors;
  if (!connection_.is_remote()) {
    if (Descriptor presence = registry_.presence().admit(number); presence.valid())
      descriptors.push_back(std::move(presence));
  }
  connection_.answer(protocol::MessageType::reader_opened, open_request_, opened, std::move(descriptors));
  // A writer may wait for its readers.
  if (follow) followers_->stream().readers_changed();
}

void ReaderSession::stream_removed() {
  followers_ = nullptr;
  pins.clear();
  if (!wait_request) return;
  wire::StepEventT event;
  event.kind = static_cast<std::uint8_t>(NextStep::Kind::end_of_stream);
  event.status = static_cast<std::uint8_t>(StreamStatus::failed);
  event.text = "the stream was removed";
  connection_.answer(protocol::MessageType::step_event, *wait_request, event);
  wait_request.reset();
}

std::vector<Descriptor> ReaderSession::descriptors_for(const std::vector<std::uint32_t>& wanted,
                                                       std::vector<std::uint32_t>& segments) {
  std::vector<Descriptor> descriptors;
  if (connection_.is_remote()) return descriptors;
  for (std::uint32_t segment : wanted) {
    if (descriptors.size() == protocol::descriptors_max) break;
    if (connection_.segments_sent.contains(segment)) continue;
    auto descriptor = followers_->space().segments().open_to_read(segment);
    if (!descriptor) {
      followers_->space().segments().lines.error("{}", descriptor.error().message());
      break;
    }
    connection_.segments_sent.insert(segment);
    segments.push_back(segment);
    descriptors.push_back(std::move(*descriptor));
  }
  return descriptors;
}

Result<void> ReaderSession::answer(const protocol::Message& message) {
  using protocol::MessageType;
  switch (message.type) {
    case MessageType::step_wait:
      if (wait_request) return fail(ErrorCode::protocol, "a wait for a step is outstanding already");
      if (!follow) return fail(ErrorCode::invalid_argument, "this reader was opened for random access only");
      wait_request = message.request;
      wait_since_ns = wall_clock_ns();
      followers_->serve(*this);
      return {};
    case MessageType::step_poll:
      followers_->serve(*this);
      connection_.answer_done(message.request);
      return {};
    case MessageType::steps_query: {
      auto body = protocol::body_of<wire::StepsQuery>(message);
      if (!body) return fail(std::move(body.error()));
      connection_.answer(MessageType::steps_answer, message.request,
                         followers_->list_steps((*body)->first(), (*body)->steps_max(), this));
      return {};
    }
    case MessageType::step_get: {
      ASSIGN_OR_RETURN(auto body, protocol::body_of<wire::StepGet>(message));
      return followers_->get_step(*this, message.request, body->step());
    }
    case MessageType::cursor_move: {
      ASSIGN_OR_RETURN(const auto move, protocol::unpacked<wire::CursorMove>(message));
      RETURN_IF_ERROR(followers_->move_cursor(*this, *move));
      connection_.answer_done(message.request);
      return {};
    }
    case MessageType::segments_get: {
      RETURN_IF_ERROR(followers_->space().segments().check_stays());
      ASSIGN_OR_RETURN(auto body, protocol::body_of<wire::SegmentsGet>(message));
      std::vector<std::uint32_t> wanted;
      if (body->segments() != nullptr) {
        // A segment that this stream has never written is none of the reader's business.
        for (std::uint32_t segment : *body->segments()) {
          if (followers_->state().owners.contains(segment)) wanted.push_back(segment);
          connection_.segments_sent.erase(segment);
        }
      }
      wire::SegmentsAnswerT segments;
      auto descriptors = descriptors_for(wanted, segments.segments);
      connection_.answer(MessageType::segments_answer, message.request, segments, std::move(descriptors));
      return {};
    }
    case MessageType::step_check: {
      ASSIGN_OR_RETURN(auto body, protocol::body_of<wire::StepCheck>(message));
      if (body->key() == nullptr) return fail(ErrorCode::protocol, "a step check without a key");
      const StepKey key{body->key()->epoch(), body->key()->step()};
      // A remote reader asks this after every read, also of steps that it holds.
      if (!connection_.is_remote() || !pins.contains(key)) {
        RETURN_IF_ERROR(followers_->check(key));
      }
      connection_.answer_done(message.request);
      return {};
    }
    case MessageType::bytes_get: {
      ASSIGN_OR_RETURN(const auto wish, protocol::unpacked<wire::BytesGet>(message));
      return send_bytes(*wish);
    }
    default:
      return fail(ErrorCode::protocol,
                  std::string("unexpected message from a reader: ") + wire::EnumNameMessageType(message.type));
  }
}

Result<void> ReaderSession::send_bytes(const wire::BytesGetT& wish) {
  fabric::ServerPath* const path = connection_.data_path();
  if (path == nullptr || !wish.key)
    return fail(ErrorCode::protocol, "bytes are asked for without a data path or a step");
  auto transfer = transfer_of(wish);
  const bool taken = transfer ? path->send(std::move(*transfer)) : path->refuse(wish.ticket, transfer.error());
  if (!taken) return fail(ErrorCode::protocol, "too many requests for bytes wait for the data path");
  return {};
}

Result<fabric::Transfer> ReaderSession::transfer_of(const wire::BytesGetT& wish) {
  RETURN_IF_ERROR(followers_->space().segments().check_stays());
  const StepKey key{wish.key->epoch(), wish.key->step()};
  const storage::StepState* step = followers_->find_step(key);
  if (step == nullptr) {
    return fail(ErrorCode::step_gone, "the step was dropped or withdrawn",
                "stream " + wish_.reservation + "/" + wish_.stream + ", step " + std::to_string(key.second));
  }
  if (wish.extents.empty() || wish.extents.size() > extents_max)
    return fail(ErrorCode::protocol, "a request for bytes names no extents, or too many");
  fabric::Transfer transfer;
  transfer.ticket = wish.ticket;
  std::map<std::uint32_t, std::shared_ptr<const File>> files;
  for (const wire::Extent& extent : wish.extents) {
    if (!lies_in(step->committed, extent))
      return fail(ErrorCode::protocol, "a request for bytes names an extent that the step does not have");
    auto& file = files[extent.segment()];
    if (!file) {
      ASSIGN_OR_RETURN(auto opened, followers_->space().segments().open_file(extent.segment(), OpenMode::read));
      file = std::move(opened);
    }
    transfer.pieces.push_back({file, extent.offset(), extent.length()});
  }
  return transfer;
}

void ReaderSession::handle(protocol::Message message) {
  if (message.type == protocol::MessageType::reader_open) {
    open(message);
    return;
  }
  if (followers_ == nullptr) {
    if (message.request != 0)
      connection_.answer_failure(
          message.request, {ErrorCode::not_found, "the stream was removed, or not opened by this connection", ""});
    return;
  }
  if (message.type == protocol::MessageType::reader_leave) {
    followers_->stop_following(*this);
    followers_->serve_all();
    return;
  }
  if (message.type == protocol::MessageType::step_release) {
    auto body = protocol::body_of<wire::StepRelease>(message);
    if (!body || (*body)->steps() == nullptr) {
      connection_.close("malformed release");
      return;
    }
    for (const wire::StepKey* key : *(*body)->steps()) followers_->pins().release(*this, {key->epoch(), key->step()});
    return;
  }
  if (auto answered = answer(message); !answered) {
    connection_.answer_failure(message.request, answered.error());
    if (answered.error().code == ErrorCode::protocol) connection_.close(answered.error().what);
  }
}

void ReaderSession::closed(const std::string&) {
  leave_waiting();
  if (!admitted_) return;
  // A forked child has a copy of the presence, but not of a connection from after the fork; and a client may give a
  // connection up for another one.
  const bool holds_on = followers_ != nullptr && !shut_out_ && !pins.empty() &&
                        registry_.presence().state(number) == ReaderPresence::State::present;
  if (followers_ != nullptr) followers_->leave(*this, holds_on);
  if (holds_on) {
    registry_.watch_absent(number, connection_.peer().pid);
  } else {
    registry_.presence().forget(number);
  }
  // It may be said twice: a consumer's next reader does not wait for the end to be handled.
  admitted_ = false;
  followers_ = nullptr;
}

StreamWait reader_wait(const ReaderSession& session, StreamWait::Kind kind, std::string wanted, std::int64_t since_ns) {
  const Peer& peer = session.connection().peer();
  const std::string name = session.consumer.empty() ? "reader" : fmt::format("consumer \"{}\"", session.consumer);
  return {kind, fmt::format("{}, {}", name, peer.describe()), peer.remote ? 0 : static_cast<std::uint32_t>(peer.pid),
          std::move(wanted), since_ns};
}

}  // namespace forebay::server
