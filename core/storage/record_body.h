// SPDX-License-Identifier: Apache-2.0
// Bodies of framed records: FlatBuffers tables packed into bytes, and taken out of untrusted bytes after verification.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <flatbuffers/flatbuffers.h>

#include <forebay/result.h>
#include <forebay/storage/journal_generated.h>

#include "base/verifier.h"

namespace forebay::storage {

/// Packs `record` (a FlatBuffers object, for example journal::StepCommittedT) into `builder`, whose earlier content
/// goes. The bytes are the builder's and live until it is used again.
template <class RecordT>
std::span<const std::uint8_t> pack_body(flatbuffers::FlatBufferBuilder& builder, const RecordT& record) {
  builder.Clear();
  builder.Finish(RecordT::TableType::Pack(builder, &record));
  return {builder.GetBufferPointer(), builder.GetSize()};
}

/// The table at the root of `body`, verified. The body is aligned to 8 bytes.
template <class Table>
Result<const Table*> verified_body(std::span<const std::byte> body) {
  Verifier::Options options;
  // Every table takes at least a reference and a vtable offset: a checkpoint of many steps is large, not hostile.
  options.max_tables =
      std::max<flatbuffers::uoffset_t>(options.max_tables, static_cast<flatbuffers::uoffset_t>(body.size() / 8));
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(body.data());
  Verifier verifier(bytes, body.size(), options);
  if (!verifier.VerifyBuffer<Table>(nullptr)) return fail(ErrorCode::corrupt, "the record's body is malformed");
  return flatbuffers::GetRoot<Table>(bytes);
}

/// The same as an object that owns what it holds.
template <class RecordT>
Result<RecordT> unpack_body(std::span<const std::byte> body) {
  auto table = verified_body<typename RecordT::TableType>(body);
  if (!table) return fail(std::move(table.error()));
  RecordT record;
  (*table)->UnPackTo(&record);
  return record;
}

/// The record type that a body's object stands for.
template <class RecordT>
inline constexpr journal::RecordType record_type_of = journal::RecordType::none;
template <>
inline constexpr journal::RecordType record_type_of<journal::CheckpointT> = journal::RecordType::checkpoint;
template <>
inline constexpr journal::RecordType record_type_of<journal::GroupFormedT> = journal::RecordType::group_formed;
template <>
inline constexpr journal::RecordType record_type_of<journal::SegmentsOwnedT> = journal::RecordType::segments_owned;
template <>
inline constexpr journal::RecordType record_type_of<journal::StepCommittedT> = journal::RecordType::step_committed;
template <>
inline constexpr journal::RecordType record_type_of<journal::StepsDroppedT> = journal::RecordType::steps_dropped;
template <>
inline constexpr journal::RecordType record_type_of<journal::StepsWithdrawnT> = journal::RecordType::steps_withdrawn;
template <>
inline constexpr journal::RecordType record_type_of<journal::GroupEndedT> = journal::RecordType::group_ended;
template <>
inline constexpr journal::RecordType record_type_of<journal::DurableToT> = journal::RecordType::durable_to;
template <>
inline constexpr journal::RecordType record_type_of<journal::StepsStagedT> = journal::RecordType::steps_staged;
template <>
inline constexpr journal::RecordType record_type_of<journal::CursorMovedT> = journal::RecordType::cursor_moved;
template <>
inline constexpr journal::RecordType record_type_of<journal::CursorRemovedT> = journal::RecordType::cursor_removed;
template <>
inline constexpr journal::RecordType record_type_of<journal::RetentionSetT> = journal::RecordType::retention_set;
template <>
inline constexpr journal::RecordType record_type_of<journal::PreciousSetT> = journal::RecordType::precious_set;
template <>
inline constexpr journal::RecordType record_type_of<journal::RankClosedT> = journal::RecordType::rank_closed;
template <>
inline constexpr journal::RecordType record_type_of<journal::SegmentsLeftT> = journal::RecordType::segments_left;
template <>
inline constexpr journal::RecordType record_type_of<journal::StepsLostT> = journal::RecordType::steps_lost;
template <>
inline constexpr journal::RecordType record_type_of<journal::StreamFailedT> = journal::RecordType::stream_failed;

}  // namespace forebay::storage
