// SPDX-License-Identifier: Apache-2.0
// Takes a message of any type apart, as its receiver would.
#pragma once

#include <algorithm>
#include <memory>
#include <span>

#include "protocol/carried_bytes.h"
#include "protocol/message.h"
#include "tests/fuzz/input.h"

namespace forebay::fuzz {

using protocol::Message;
using protocol::MessageType;

template <class Table>
bool unpack(const Message& message) {
  auto body = protocol::body_of<Table>(message);
  if (!body) return false;
  const std::unique_ptr<typename Table::NativeTableType> object((*body)->UnPack());
  // What was understood is all that was understood: sent on, it is understood in the same way.
  const auto packed = protocol::pack(*object);
  const auto bytes = std::as_bytes(std::span(packed.data(), packed.size()));
  const Message sent_on{message.type, message.request, {bytes.begin(), bytes.end()}, {}};
  const auto again = protocol::body_of<Table>(sent_on);
  require(again.has_value(), "a message that was packed anew is malformed");
  const std::unique_ptr<typename Table::NativeTableType> copy((*again)->UnPack());
  const auto repacked = protocol::pack(*copy);
  require(std::ranges::equal(bytes, std::as_bytes(std::span(repacked.data(), repacked.size()))));
  return true;
}

/// What a message carries is refused, or covers its bytes from the first to the last.
template <class Object>
void check_carried(Object* unpacked) {
  const std::unique_ptr<Object> object(unpacked);
  protocol::restore_zeros(object->carried, object->bytes);
  const auto pieces = protocol::carried_pieces(object->carried, object->bytes);
  if (!pieces) return;
  const std::byte* next = std::as_bytes(std::span(object->bytes)).data();
  std::size_t bytes = 0;
  for (const protocol::CarriedPiece& piece : *pieces) {
    require(piece.bytes.size() == piece.place.length() && piece.bytes.data() == next);
    require(piece.place.offset() + piece.place.length() > piece.place.offset());
    next += piece.bytes.size();
    bytes += piece.bytes.size();
  }
  require(bytes == object->bytes.size() && bytes <= protocol::carried_bytes_max);
}

/// False if the body is none of its type, or if there is no such type. Without a default: none is forgotten.
inline bool unpack_any(const Message& message) {
  switch (message.type) {
    case MessageType::hello:
      return unpack<wire::Hello>(message);
    case MessageType::welcome:
      return unpack<wire::Welcome>(message);
    case MessageType::failure:
      (void)protocol::failure_of(message);
      return unpack<wire::Failure>(message);
    case MessageType::reservation_create:
      return unpack<wire::ReservationCreate>(message);
    case MessageType::reservation_destroy:
      return unpack<wire::ReservationDestroy>(message);
    case MessageType::reservations_query:
      return unpack<wire::ReservationsQuery>(message);
    case MessageType::reservations_answer:
      return unpack<wire::ReservationsAnswer>(message);
    case MessageType::streams_query:
      return unpack<wire::StreamsQuery>(message);
    case MessageType::streams_answer:
      return unpack<wire::StreamsAnswer>(message);
    case MessageType::steps_query:
      return unpack<wire::StepsQuery>(message);
    case MessageType::steps_answer:
      return unpack<wire::StepsAnswer>(message);
    case MessageType::staged_mark:
      return unpack<wire::StagedMark>(message);
    case MessageType::audit_answer:
      return unpack<wire::AuditAnswer>(message);
    case MessageType::writer_open:
      return unpack<wire::WriterOpen>(message);
    case MessageType::writer_opened:
      return unpack<wire::WriterOpened>(message);
    case MessageType::writer_rejoin:
      return unpack<wire::WriterRejoin>(message);
    case MessageType::writer_rejoined:
      return unpack<wire::WriterRejoined>(message);
    case MessageType::space_request:
      return unpack<wire::SpaceRequest>(message);
    case MessageType::space_granted:
      return unpack<wire::SpaceGranted>(message);
    case MessageType::part:
      if (const auto part = protocol::body_of<wire::Part>(message)) check_carried((*part)->UnPack());
      return unpack<wire::Part>(message);
    case MessageType::committed:
      return unpack<wire::Committed>(message);
    case MessageType::reader_open:
      return unpack<wire::ReaderOpen>(message);
    case MessageType::reader_opened:
      return unpack<wire::ReaderOpened>(message);
    case MessageType::step_event:
      if (const auto event = protocol::body_of<wire::StepEvent>(message); event && (*event)->step() != nullptr)
        check_carried((*event)->step()->UnPack());
      return unpack<wire::StepEvent>(message);
    case MessageType::step_release:
      return unpack<wire::StepRelease>(message);
    case MessageType::cursor_move:
      return unpack<wire::CursorMove>(message);
    case MessageType::segments_get:
      return unpack<wire::SegmentsGet>(message);
    case MessageType::segments_answer:
      return unpack<wire::SegmentsAnswer>(message);
    case MessageType::server_query:
      return unpack<wire::ServerQuery>(message);
    case MessageType::server_answer:
      return unpack<wire::ServerAnswer>(message);
    case MessageType::stream_remove:
      return unpack<wire::StreamRemove>(message);
    case MessageType::consumer_remove:
      return unpack<wire::ConsumerRemove>(message);
    case MessageType::retention_set:
      return unpack<wire::RetentionSet>(message);
    case MessageType::precious_set:
      return unpack<wire::PreciousSet>(message);
    case MessageType::steps_drop:
      return unpack<wire::StepsDrop>(message);
    case MessageType::files_adopt:
      return unpack<wire::FilesAdopt>(message);
    case MessageType::reservation_change:
      return unpack<wire::ReservationChange>(message);
    case MessageType::reservation_share:
      return unpack<wire::ReservationShare>(message);
    case MessageType::audit_query:
      return unpack<wire::AuditQuery>(message);
    case MessageType::step_begin:
      return unpack<wire::StepBegin>(message);
    case MessageType::step_abort:
      return unpack<wire::StepAbort>(message);
    case MessageType::writer_close:
      return unpack<wire::WriterClose>(message);
    case MessageType::writer_leave:
      return unpack<wire::WriterLeave>(message);
    case MessageType::writer_refused:
      return unpack<wire::WriterRefused>(message);
    case MessageType::step_wait:
      return unpack<wire::StepWait>(message);
    case MessageType::step_get:
      return unpack<wire::StepGet>(message);
    case MessageType::step_check:
      return unpack<wire::StepCheck>(message);
    case MessageType::reader_leave:
      return unpack<wire::ReaderLeave>(message);
    case MessageType::step_poll:
      return unpack<wire::StepPoll>(message);
    case MessageType::done:
      return unpack<wire::Done>(message);
    case MessageType::remote_hello:
      return unpack<wire::RemoteHello>(message);
    case MessageType::remote_challenge:
      return unpack<wire::RemoteChallenge>(message);
    case MessageType::remote_proof:
      return unpack<wire::RemoteProof>(message);
    case MessageType::heartbeat:
      return unpack<wire::Heartbeat>(message);
    case MessageType::data_open:
      return unpack<wire::DataOpen>(message);
    case MessageType::data_opened:
      return unpack<wire::DataOpened>(message);
    case MessageType::data_hello:
      return unpack<wire::DataHello>(message);
    case MessageType::ranks_missing:
      return unpack<wire::RanksMissing>(message);
    case MessageType::ranks_missing_answer:
      return unpack<wire::RanksMissingAnswer>(message);
    case MessageType::probe_get:
      return unpack<wire::ProbeGet>(message);
    case MessageType::bytes_get:
      return unpack<wire::BytesGet>(message);
    case MessageType::token_create:
      return unpack<wire::TokenCreate>(message);
    case MessageType::token_answer:
      return unpack<wire::TokenAnswer>(message);
    case MessageType::token_revoke:
      return unpack<wire::TokenRevoke>(message);
    case MessageType::home_query:
      return unpack<wire::HomeQuery>(message);
    case MessageType::home_answer:
      return unpack<wire::HomeAnswer>(message);
    case MessageType::pool_directory:
      return unpack<wire::PoolDirectory>(message);
    case MessageType::manager_call:
      return unpack<wire::ManagerCall>(message);
    case MessageType::manager_answer:
      return unpack<wire::ManagerAnswer>(message);
    case MessageType::member_query:
      return unpack<wire::MemberQuery>(message);
    case MessageType::member_answer:
      return unpack<wire::MemberAnswer>(message);
    case MessageType::member_open:
      return unpack<wire::MemberOpen>(message);
    case MessageType::member_opened:
      return unpack<wire::MemberOpened>(message);
    case MessageType::member_look:
      return unpack<wire::MemberLook>(message);
    case MessageType::member_state:
      return unpack<wire::MemberState>(message);
    case MessageType::member_sync:
      return unpack<wire::MemberSync>(message);
    case MessageType::member_synced:
      return unpack<wire::MemberSynced>(message);
    case MessageType::member_fence:
      return unpack<wire::MemberFence>(message);
    case MessageType::member_probe:
      return unpack<wire::MemberProbe>(message);
    case MessageType::member_probed:
      return unpack<wire::MemberProbed>(message);
    case MessageType::member_checksum:
      return unpack<wire::MemberChecksum>(message);
    case MessageType::member_checksummed:
      return unpack<wire::MemberChecksummed>(message);
    case MessageType::none:
      return false;
  }
  return false;
}

}  // namespace forebay::fuzz
