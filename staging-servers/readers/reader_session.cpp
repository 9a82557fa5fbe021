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
#include "readers/lone_reader.h"
#include "readers/reader_group.h"
#include "readers/reader_groups.h"
#include "readers/step_extents.h"
#include "space/reservation_space.h"
#include "storage/record_check.h"

namespace forebay::server {
namespace {

constexpr std::size_t pins_max = 65536;
constexpr std::size_t extents_max = 4096;
/// Files that one reader keeps open on members' nodes. It needs another one of a member after its home has lost power.
constexpr std::size_t presences_max = 16;
constexpr std::ptrdiff_t presences_of_member_max = 8;

}  // namespace

ReaderSession::ReaderSession(Connection& connection, StreamsToRead& streams, ReaderRegistry& registry)
    : connection_(connection), streams_(streams), registry_(registry) {}

ReaderSession::~ReaderSession() {
  registry_.remove_remote(*this);
  registry_.give_back_number(number);
}

void ReaderSession::take_number() {
  if (std::exchange(admitted_, false)) registry_.presence().forget(number);
  registry_.remove_remote(*this);
  registry_.give_back_number(number);
  // A living reader's number would give this one a say over the other's pins.
  const bool keeps = asked_.resume && asked_.session != 0;
  if (keeps && connection_.is_remote()) registry_.end_connection_before(asked_.session, *this);
  number = registry_.take_number(keeps ? asked_.session : random_number());
}

std::optional<Error> ReaderSession::refusal(const wire::ReaderOpenT& asked) const {
  const std::string where = "stream " + asked.reservation + "/" + asked.stream;
  const bool sane = is_valid_name(asked.stream) && asked.stream != "files" &&
                    (asked.consumer.empty() || is_valid_name(asked.consumer)) && asked.min_watermark >= 1 &&
                    asked.min_watermark <= 2 && asked.start_kind >= 1 && asked.start_kind <= 5 &&
                    asked.distribution <= 3 && asked.pins.size() <= pins_max &&
                    asked.run.size() <= storage::run_bytes_max &&
                    asked.ranks_source.size() <= storage::ranks_source_bytes_max && asked.on_reader_lost <= 1 &&
                    asked.on_unavailable <= 2;
  if (!sane) {
    return Error{ErrorCode::invalid_argument,
                 "not a valid name of a stream, consumer or run, or an option with an unknown value", where};
  }
  if (asked.group.size() > storage::group_bytes_max) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("a group id can have at most {} bytes, this one has {}", storage::group_bytes_max,
                             asked.group.size()),
                 where};
  }
  const bool shares_unnamed = consumer.empty() && asked.distribution > 1 && access.guest;
  if (!is_valid_name(consumer.empty() ? "x" : consumer) || shares_unnamed) {
    return Error{ErrorCode::invalid_argument,
                 shares_unnamed ? "who may only read shares steps out under a consumer's name: give one"
                                : "the consumer's name is too long: for who may only read it is stored as " + consumer,
                 where};
  }
  return std::nullopt;
}

void ReaderSession::open(const protocol::Message& message) {
  auto body = protocol::body_of<wire::ReaderOpen>(message);
  const bool repeated = followers_ != nullptr || (reader_ && reader_->is_opening());
  if (!body || repeated) {
    connection_.answer_failure(message.request, {ErrorCode::protocol, "malformed or repeated open of a reader", ""});
    connection_.close("protocol error");
    return;
  }
  const std::unique_ptr<wire::ReaderOpenT> asked((*body)->UnPack());
  if (reader_) std::exchange(reader_, nullptr)->closed(*this);
  asked_ = std::move(*asked);
  asked_bytes_ = message.body.size();
  // Who comes for the first time holds nothing, and its group has no turns.
  if (!asked_.resume) forget_lists();
  open_request_ = message.request;
  // What is refused is not kept.
  const auto refuse = [this](const Error& error) {
    connection_.answer_failure(open_request_, error);
    asked_ = {};
    asked_bytes_ = 0;
  };
  const auto found = streams_.find_to_read(connection_.peer(), asked_.reservation, asked_.stream);
  if (!found) {
    refuse(found.error());
    return;
  }
  access = streams_.rights_of(connection_.peer(), asked_.reservation);
  consumer = consumer_of_reader(access, connection_.peer().uid, asked_.consumer);
  if (const auto refused = refusal(asked_)) {
    refuse(*refused);
    return;
  }
  take_number();
  // A group is there for the Open and for turns: who comes back without following has neither.
  if (asked_.ranks > 1 && (asked_.follow || !asked_.resume)) {
    const auto admitted = registry_.groups().admit(*this, streams_);
    if (!admitted) {
      refuse(admitted.error());
      return;
    }
    reader_ = *admitted;
    reader_->come(*this, *found);
    return;
  }
  auto lone = std::make_shared<LoneReader>(*this, streams_, registry_);
  reader_ = lone;
  reader_->come(*this, *found);
}

std::size_t ReaderSession::kept_bytes() const {
  return asked_bytes_ + (reader_ ? reader_->kept_bytes() : 0);
}

void ReaderSession::forget_lists() {
  asked_.pins = {};
  asked_.gone = {};
  asked_.told = {};
  asked_.presences = {};
  asked_bytes_ = 0;
}

void ReaderSession::refuse_open(const Error& error) {
  connection_.answer_failure(open_request_, error);
}

void ReaderSession::rights_changed(const std::string& reservation) {
  const bool opening = reader_ && reader_->is_opening();
  if (reservation != asked_.reservation || (followers_ == nullptr && !opening)) return;
  const AccessRights now = streams_.rights_of(connection_.peer(), reservation);
  if (now.allow(access.rights)) return;
  const Error taken{ErrorCode::permission_denied,
                    "the right to read was taken away; ask the reservation's owner (`forebay share`)",
                    "stream " + asked_.reservation + "/" + asked_.stream};
  if (now.allow(Rights::read)) {
    // It comes back with what it still may, and with its pins.
    connection_.close("it may only read now");
    return;
  }
  shut_out_ = true;
  reader_->shut_out(*this, taken);
  connection_.close(taken.what);
}

void ReaderSession::enter(Followers& followers, const Follower& reader, const wire::ReaderOpenedT& place) {
  followers_ = &followers;
  followers.attach(*this);
  wire::ReaderOpenedT opened = place;
  opened.uuid = followers.state().uuid;
  opened.epoch = followers.state().epoch;
  opened.position = reader.position;
  opened.segment_bytes = followers.space().segments().record().segment_bytes;
  opened.member_segments = followers.space().segments().layout().member_segments();
  opened.session = number;
  opened.status = static_cast<std::uint8_t>(followers.state().status);
  opened.first_step = reader.first_step;
  if (asked_.resume) {
    std::vector<StepKey> wanted;
    for (const wire::StepKey& key : asked_.pins) wanted.emplace_back(key.epoch(), key.step());
    // The last step of its group may be wanted by other ranks, whether or not this one still has it.
    if (place.group_number != 0 && asked_.told && asked_.told->key)
      wanted.emplace_back(asked_.told->key->epoch(), asked_.told->key->step());
    // First, for they say how its pins are held.
    for (const wire::MemberPresence& presence : asked_.presences)
      if (may_map() && presences_.size() < presences_max) presences_.emplace(presence.member(), presence.number());
    const std::vector<StepKey> lost = followers.pins().resume(*this, wanted);
    for (const StepKey& key : lost) opened.lost_pins.emplace_back(key.second, key.first, 0);
    registry_.absent_returned(number);
    // It may have mapped those that it names, and no others.
    know_presences(std::ranges::none_of(asked_.pins, [&](const wire::StepKey& key) {
      return std::ranges::find(lost, StepKey(key.epoch(), key.step())) != lost.end();
    }));
  }
  admitted_ = true;
  if (connection_.is_remote()) registry_.add_remote(*this);
  forget_lists();
  std::vector<Descriptor> descriptors;
  if (!connection_.is_remote()) {
    const std::optional<ReaderPresence::GroupRank> rank =
        place.group_number == 0 ? std::nullopt
                                : std::optional<ReaderPresence::GroupRank>({place.group_number, asked_.rank});
    if (Descriptor presence = registry_.presence().admit(number, rank); presence.valid())
      descriptors.push_back(std::move(presence));
  }
  connection_.answer(protocol::MessageType::reader_opened, open_request_, opened, std::move(descriptors));
}

void ReaderSession::stream_removed() {
  followers_ = nullptr;
  pins.clear();
}

void ReaderSession::deliver(std::uint32_t request, const storage::StepState& step, wire::StepEventT event) {
  if (followers_ != nullptr) followers_->deliver(*this, request, step, std::move(event));
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
    case MessageType::step_wait: {
      ASSIGN_OR_RETURN(const auto wait, protocol::unpacked<wire::StepWait>(message));
      return reader_->ask(*this, message.request, *wait);
    }
    case MessageType::step_poll:
      connection_.answer(MessageType::step_event, message.request, reader_->poll());
      return {};
    case MessageType::steps_query: {
      ASSIGN_OR_RETURN(auto body, protocol::body_of<wire::StepsQuery>(message));
      ASSIGN_OR_RETURN(const auto steps, reader_->list(*this, body->first(), body->steps_max()));
      connection_.answer(MessageType::steps_answer, message.request, steps);
      return {};
    }
    case MessageType::step_get: {
      ASSIGN_OR_RETURN(auto body, protocol::body_of<wire::StepGet>(message));
      return followers_->get_step(*this, *reader_, message.request, body->step(), body->epoch());
    }
    case MessageType::cursor_move: {
      ASSIGN_OR_RETURN(const auto move, protocol::unpacked<wire::CursorMove>(message));
      RETURN_IF_ERROR(reader_->move_cursor(*this, *move));
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
          if (followers_->state().owners.contains(segment) && followers_->space().segments().is_own(segment))
            wanted.push_back(segment);
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
      // Readers ask this also of steps that they hold: after each read on another node, or of what lies there.
      RETURN_IF_ERROR(followers_->check_not_lost(key));
      if (!pins.contains(key)) RETURN_IF_ERROR(followers_->check(key));
      connection_.answer_done(message.request);
      return {};
    }
    case MessageType::member_query:
      return introduce_to_member(message);
    case MessageType::bytes_get: {
      ASSIGN_OR_RETURN(const auto asked, protocol::unpacked<wire::BytesGet>(message));
      return send_bytes(*asked);
    }
    default:
      return fail(ErrorCode::protocol,
                  std::string("unexpected message from a reader: ") + wire::EnumNameMessageType(message.type));
  }
}

Result<void> ReaderSession::introduce_to_member(const protocol::Message& message) {
  ASSIGN_OR_RETURN(auto body, protocol::body_of<wire::MemberQuery>(message));
  OtherMembers* const others = followers_->space().segments().others();
  if (others == nullptr) return fail(ErrorCode::protocol, "the reservation lies on one server");
  std::uint64_t presence = 0;
  if (body->maps()) {
    ASSIGN_OR_RETURN(presence, begin_mapping(body->member()));
  }
  const auto& remote = connection_.peer().remote;
  const auto introduced = others->introduce(body->member(), connection_.peer().uid, access.generation, false,
                                            remote ? remote->expires_ns : 0, presence);
  // Nobody can have it.
  if (!introduced && presence != 0) presences_.erase({body->member(), presence});
  if (!introduced) return fail(introduced.error());
  connection_.answer(protocol::MessageType::member_answer, message.request, *introduced);
  return {};
}

bool ReaderSession::may_map() const {
  const auto& remote = connection_.peer().remote;
  return !remote || remote->identified;
}

Result<std::uint64_t> ReaderSession::begin_mapping(std::uint16_t member) {
  if (!may_map()) return fail(ErrorCode::no_space, "who reads with a token maps nothing");
  const auto own = std::ranges::count(presences_, member, &MemberPresence::first);
  const std::uint64_t presence = random_number();
  presences_.emplace(member, presence);
  const bool few = own < presences_of_member_max && presences_.size() <= presences_max;
  if (few && followers_->pins().outlast_restarts(*this)) return presence;
  presences_.erase({member, presence});
  return fail(ErrorCode::no_space, "the server's table of pins is full, or this reader has mapped too much anew");
}

void ReaderSession::know_presences(bool kept_all) {
  OtherMembers* const others = followers_->space().segments().others();
  for (const wire::MemberPresence& presence : asked_.presences)
    if (others != nullptr && kept_all && presence.stale() == 0 &&
        presences_.contains({presence.member(), presence.number()}))
      others->know_presence(presence.member(), presence.number());
}

Result<void> ReaderSession::send_bytes(const wire::BytesGetT& asked) {
  fabric::ServerPath* const path = connection_.data_path();
  if (path == nullptr || !asked.key)
    return fail(ErrorCode::protocol, "bytes are asked for without a data path or a step");
  auto transfer = transfer_of(asked);
  const bool taken = transfer ? path->send(std::move(*transfer)) : path->refuse(asked.ticket, transfer.error());
  if (!taken) return fail(ErrorCode::protocol, "too many requests for bytes wait for the data path");
  return {};
}

Result<fabric::Transfer> ReaderSession::transfer_of(const wire::BytesGetT& asked) {
  RETURN_IF_ERROR(followers_->space().segments().check_stays());
  const StepKey key{asked.key->epoch(), asked.key->step()};
  const storage::StepState* step = followers_->find_step(key);
  if (step == nullptr) {
    return fail(ErrorCode::step_gone, "the step was dropped or withdrawn",
                "stream " + asked_.reservation + "/" + asked_.stream + ", step " + std::to_string(key.second));
  }
  if (asked.extents.empty() || asked.extents.size() > extents_max)
    return fail(ErrorCode::protocol, "a request for bytes names no extents, or too many");
  fabric::Transfer transfer;
  transfer.ticket = asked.ticket;
  if (!lie_in(step->committed, asked.extents))
    return fail(ErrorCode::protocol, "a request for bytes names an extent that the step does not have");
  std::map<std::uint32_t, std::shared_ptr<const File>> files;
  for (const wire::Extent& extent : asked.extents) {
    if (!followers_->space().segments().is_own(extent.segment()))
      return fail(ErrorCode::protocol, "a request for bytes names an extent of another member");
    auto& file = files[extent.segment()];
    if (!file) {
      ASSIGN_OR_RETURN(file, followers_->space().segments().shared_to_read(extent.segment()));
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
    reader_->left(*this);
    return;
  }
  if (message.type == protocol::MessageType::step_release) {
    auto body = protocol::body_of<wire::StepRelease>(message);
    if (!body || (*body)->steps() == nullptr) {
      connection_.close("malformed release");
      return;
    }
    std::vector<StepKey> keys;
    for (const wire::StepKey* key : *(*body)->steps()) keys.emplace_back(key->epoch(), key->step());
    followers_->pins().release(*this, keys);
    return;
  }
  if (auto answered = answer(message); !answered) {
    connection_.answer_failure(message.request, answered.error());
    if (answered.error().code == ErrorCode::protocol) connection_.close(answered.error().what);
  }
}

bool ReaderSession::is_succeeded_by(const ReaderSession& other) const {
  const Peer& mine = connection_.peer();
  const Peer& its = other.connection_.peer();
  return &other != this && mine.remote && its.remote && mine.remote->uid == its.remote->uid && mine.uid == its.uid &&
         asked_.reservation == other.asked_.reservation && asked_.stream == other.asked_.stream && asked_.ranks <= 1;
}

void ReaderSession::was_cut() {
  was_cut_ = true;
  closed("its client has come by another connection");
  registry_.remove_remote(*this);
  registry_.give_back_number(number);
  number = registry_.take_number(random_number());
  connection_.close("its client has come by another connection");
}

bool ReaderSession::is_cut() const {
  // A rank that is cut ends its group.
  return connection_.is_remote() && asked_.ranks <= 1 && (was_cut_ || connection_.ended_by_peer());
}

void ReaderSession::closed(const std::string&) {
  // A forked child has a copy of the presence, but not of a connection from after the fork; and a client may give a
  // connection up for another one.
  const bool holds_on = admitted_ && followers_ != nullptr && !shut_out_ && !pins.empty() &&
                        (maps() || is_cut() || registry_.presence().state(number) == ReaderPresence::State::present);
  Followers* const left = std::exchange(followers_, nullptr);
  const std::string stream_uuid = left == nullptr ? "" : left->state().uuid;
  if (const auto reader = std::exchange(reader_, nullptr)) reader->closed(*this);
  if (left != nullptr) left->detach(*this, holds_on);
  // It may be said twice: a consumer's next reader does not wait for the end to be handled.
  if (!std::exchange(admitted_, false)) return;
  if (holds_on && maps()) {
    registry_.watch_mapping(number, connection_.peer().pid, stream_uuid, presences_);
  } else if (holds_on && connection_.is_remote()) {
    registry_.watch_cut(number);
  } else if (holds_on) {
    registry_.watch_absent(number, connection_.peer().pid);
  } else {
    registry_.presence().forget(number);
  }
}

}  // namespace forebay::server
