// SPDX-License-Identifier: Apache-2.0
#include "members/member_session.h"

#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/return_error.h"
#include "fabric/data_path.h"
#include "protocol/unpacked.h"

namespace forebay::server {

using protocol::MessageType;

namespace {

tl::unexpected<Error> unexpected_message(MessageType type) {
  return fail(ErrorCode::protocol,
              std::string("unexpected or malformed message to a member: ") + wire::EnumNameMessageType(type));
}

}  // namespace

MemberSession::~MemberSession() {
  if (share_ != nullptr) share_->detach(*this);
}

void MemberSession::closed(const std::string&) {
  if (share_ != nullptr) std::exchange(share_, nullptr)->detach(*this);
}

void MemberSession::end(const std::string& why) {
  // Before the loop comes to close the connection: nothing that is on its way is written any more.
  if (connection_.is_remote()) connection_.use_data_path(nullptr);
  if (window_) window_->close();
  if (share_ != nullptr) std::exchange(share_, nullptr)->detach(*this);
  connection_.close(why);
}

void MemberSession::share_gone() {
  share_ = nullptr;
  end("the reservation's share is gone");
}

void MemberSession::handle(protocol::Message message) {
  if (auto answered = answer(message); !answered) {
    connection_.answer_failure(message.request, answered.error());
    // Who asks for bytes waits for no answer here.
    if (answered.error().code == ErrorCode::protocol || message.request == 0) connection_.close(answered.error().what);
  }
}

Result<void> MemberSession::answer(const protocol::Message& message) {
  if (message.type == MessageType::member_open) return open(message);
  if (share_ == nullptr || !permit_)
    return fail(ErrorCode::unavailable, "the reservation's share is gone, or no permit was shown");
  switch (message.type) {
    case MessageType::segments_get:
      return send_segments(message);
    case MessageType::bytes_get:
      return send_bytes(message);
    default:
      return unexpected_message(message.type);
  }
}

Result<void> MemberSession::open(const protocol::Message& message) {
  ASSIGN_OR_RETURN(const auto body, protocol::body_of<wire::MemberOpen>(message));
  const fabric::TokenKey* const key = host_.pool_key();
  if (key == nullptr || body->permit() == nullptr)
    return fail(ErrorCode::permission_denied, "this server belongs to no pool, or no permit was shown");
  ASSIGN_OR_RETURN(const auto permit, fabric::unseal(std::span(body->permit()->data(), body->permit()->size()), *key));
  MemberShare* const share = host_.find_share(permit.reservation_id);
  if (share == nullptr) return fail(ErrorCode::unavailable, "this server has no share of the reservation");
  RETURN_IF_ERROR(share->check(permit, connection_.peer().uid));
  const bool same = !permit_ || (permit_->reservation_id == permit.reservation_id && permit_->stream == permit.stream &&
                                 permit_->incarnation == permit.incarnation && permit_->rank == permit.rank);
  if (!same) return fail(ErrorCode::protocol, "a connection to a member is for one reader or one rank of one group");
  if (!permit_) permit_ = permit;
  share_ = share;
  share_->attach(*this, permit);
  wire::MemberOpenedT opened;
  opened.storage_incarnation = share_->storage_incarnation();
  std::vector<Descriptor> descriptors;
  if (permit.writes()) RETURN_IF_ERROR(open_to_write(permit, opened.segments, descriptors));
  if (!permit.writes() && permit.presence != 0) {
    if (connection_.is_remote()) return fail(ErrorCode::protocol, "only a reader on this node can map what lies here");
    ASSIGN_OR_RETURN(auto presence, share_->admit_mapping(permit.presence, permit.uid));
    descriptors.push_back(std::move(presence));
  }
  connection_.answer(MessageType::member_opened, message.request, opened, std::move(descriptors));
  return {};
}

Result<void> MemberSession::open_to_write(const fabric::Permit& permit, std::vector<std::uint32_t>& segments,
                                          std::vector<Descriptor>& descriptors) {
  ReservationSpace& space = share_->space();
  if (!connection_.is_remote()) {
    for (const std::uint32_t segment : permit.segments) {
      if (descriptors.size() == protocol::descriptors_max) break;
      ASSIGN_OR_RETURN(auto descriptor, space.open_to_write(segment, connection_.peer().uid));
      segments.push_back(segment);
      descriptors.push_back(std::move(descriptor));
    }
    return {};
  }
  window_ = connection_.window();
  const auto& window = window_;
  for (const std::uint32_t segment : permit.segments) {
    if (!window->has_segment(segment)) {
      ASSIGN_OR_RETURN(auto file, space.segments().open_for_client(segment, OpenMode::read_write));
      window->add_segment(segment, std::move(file));
    }
    window->allow({segment, 0, space.segments().record().segment_bytes});
  }
  return {};
}

Result<void> MemberSession::check_reads() const {
  if (!permit_->writes()) return {};
  return fail(ErrorCode::permission_denied, "the permit is to write");
}

Result<void> MemberSession::send_segments(const protocol::Message& message) {
  RETURN_IF_ERROR(check_reads());
  ASSIGN_OR_RETURN(const auto body, protocol::body_of<wire::SegmentsGet>(message));
  wire::SegmentsAnswerT answer;
  std::vector<Descriptor> descriptors;
  for (const std::uint32_t segment : protocol::numbers_of(body->segments())) {
    RETURN_IF_ERROR(share_->check_own(segment));
    if (connection_.is_remote() || descriptors.size() == protocol::descriptors_max) continue;
    ASSIGN_OR_RETURN(auto descriptor, share_->space().segments().open_to_read(segment));
    answer.segments.push_back(segment);
    descriptors.push_back(std::move(descriptor));
  }
  connection_.answer(MessageType::segments_answer, message.request, answer, std::move(descriptors));
  return {};
}

Result<void> MemberSession::send_bytes(const protocol::Message& message) {
  ASSIGN_OR_RETURN(const auto asked, protocol::unpacked<wire::BytesGet>(message));
  fabric::ServerPath* const path = connection_.data_path();
  if (path == nullptr) return fail(ErrorCode::protocol, "bytes are asked for without a data path");
  auto transfer = transfer_of(*asked);
  const bool taken = transfer ? path->send(std::move(*transfer)) : path->refuse(asked->ticket, transfer.error());
  if (!taken) return fail(ErrorCode::protocol, "too many requests for bytes wait for the data path");
  return {};
}

Result<fabric::Transfer> MemberSession::transfer_of(const wire::BytesGetT& asked) {
  RETURN_IF_ERROR(check_reads());
  const Segments& segments = share_->space().segments();
  RETURN_IF_ERROR(segments.check_stays());
  RETURN_IF_ERROR(share_->check_own(asked.extents));
  fabric::Transfer transfer;
  transfer.ticket = asked.ticket;
  std::map<std::uint32_t, std::shared_ptr<const File>> files;
  for (const wire::Extent& extent : asked.extents) {
    auto& file = files[extent.segment()];
    if (!file) {
      ASSIGN_OR_RETURN(file, segments.shared_to_read(extent.segment()));
    }
    transfer.pieces.push_back({file, extent.offset(), extent.length()});
  }
  return transfer;
}

// The home's

void HomeSession::handle(protocol::Message message) {
  if (auto answered = answer(message); !answered) {
    connection_.answer_failure(message.request, answered.error());
    if (answered.error().code == ErrorCode::protocol) connection_.close(answered.error().what);
  }
}

Result<MemberShare*> HomeSession::share(const std::string& reservation) {
  if (MemberShare* const found = host_.find_share(reservation)) {
    found->heard();
    return found;
  }
  return fail(ErrorCode::not_found, "this server has no share of the reservation", "reservation " + reservation);
}

Result<void> HomeSession::answer(const protocol::Message& message) {
  if (!connection_.peer().administrator)
    return fail(ErrorCode::permission_denied, "only the reservation's home asks this of a member");
  switch (message.type) {
    case MessageType::member_look:
      return look(message);
    case MessageType::member_fence: {
      ASSIGN_OR_RETURN(const auto asked, protocol::unpacked<wire::MemberFence>(message));
      ASSIGN_OR_RETURN(MemberShare* const found, share(asked->reservation));
      found->fence(*asked, [this, request = message.request, alive = connection_.alive()] {
        if (!alive.expired()) connection_.answer_done(request);
      });
      return {};
    }
    case MessageType::member_probe: {
      ASSIGN_OR_RETURN(const auto asked, protocol::unpacked<wire::MemberProbe>(message));
      ASSIGN_OR_RETURN(MemberShare* const found, share(asked->reservation));
      wire::MemberProbedT probed;
      ASSIGN_OR_RETURN(probed.segments, found->unwritten(asked->segments));
      connection_.answer(MessageType::member_probed, message.request, probed);
      return {};
    }
    case MessageType::member_sync: {
      ASSIGN_OR_RETURN(const auto asked, protocol::unpacked<wire::MemberSync>(message));
      ASSIGN_OR_RETURN(MemberShare* const found, share(asked->reservation));
      if (asked->server_run != host_.server_run())
        return fail(ErrorCode::unavailable, "this server was started anew since the home has looked at it");
      return found->sync(asked->segments, asked->syncs_before, connection_.alive(),
                         [this, request = message.request](const Result<std::uint64_t>& synced) {
                           if (!synced) {
                             connection_.answer_failure(request, synced.error());
                             return;
                           }
                           wire::MemberSyncedT answer;
                           answer.storage_incarnation = host_.storage_incarnation();
                           answer.syncs = *synced;
                           connection_.answer(MessageType::member_synced, request, answer);
                         });
    }
    case MessageType::member_checksum: {
      ASSIGN_OR_RETURN(const auto asked, protocol::unpacked<wire::MemberChecksum>(message));
      ASSIGN_OR_RETURN(MemberShare* const found, share(asked->reservation));
      return found->checksum(asked->extents, connection_.alive(),
                             [this, request = message.request](const Result<wire::MemberChecksummedT>& answer) {
                               if (answer) {
                                 connection_.answer(MessageType::member_checksummed, request, *answer);
                               } else {
                                 connection_.answer_failure(request, answer.error());
                               }
                             });
    }
    default:
      return unexpected_message(message.type);
  }
}

Result<void> HomeSession::look(const protocol::Message& message) {
  ASSIGN_OR_RETURN(const auto asked, protocol::unpacked<wire::MemberLook>(message));
  wire::MemberStateT state;
  state.storage_incarnation = host_.storage_incarnation();
  state.server_run = host_.server_run();
  if (asked->syncs.size() != asked->reservations.size())
    return fail(ErrorCode::protocol, "a home does not say which syncs it has stored");
  for (std::size_t i = 0; i < asked->reservations.size(); ++i) {
    const std::string& reservation = asked->reservations[i];
    auto told = std::make_unique<wire::MemberShareStateT>();
    told->reservation = reservation;
    MemberShare* const found = host_.find_share(reservation);
    told->missing = found == nullptr;
    if (found != nullptr) {
      found->heard();
      told->permit_seen = found->permit_seen();
      told->syncs = found->syncs();
      // As it was before: of this look the home knows by itself.
      told->home_syncs = found->home_syncs();
      found->home_has(asked->syncs[i]);
      const Segments& segments = found->space().segments();
      const auto [first, end] = segments.layout().segments_of(segments.own_member());
      for (std::uint32_t segment = first; segment < end; ++segment)
        if (segments.has_failed(segment) || segments.damage_of(segment) != nullptr) told->damaged.push_back(segment);
      ASSIGN_OR_RETURN(told->presences, found->mapping());
    }
    state.shares.push_back(std::move(told));
  }
  connection_.answer(MessageType::member_state, message.request, state);
  return {};
}

}  // namespace forebay::server
