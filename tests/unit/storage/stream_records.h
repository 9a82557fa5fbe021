// SPDX-License-Identifier: Apache-2.0
// Journal records for tests, and states as bytes, so that two can be compared.
#pragma once

#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "storage/record_body.h"
#include "storage/stream_state.h"

namespace forebay::storage {

inline constexpr char test_uuid[] = "0b7c9f9e-52a5-4c3e-9d0c-0a4d9a1b2c3d";

inline journal::GroupFormedT group_formed(const StreamState& state, std::uint32_t incarnation, std::uint32_t ranks) {
  journal::GroupFormedT record;
  record.incarnation = incarnation;
  record.ranks = ranks;
  record.group = "job-17";
  record.epoch = state.epoch;
  record.next_step = state.next_step;
  record.when_full = 1;
  record.grace_ms = 10'000;
  return record;
}

/// The next step of the state's group: one extent of data and metadata for each rank.
inline journal::StepCommittedT step_committed(const StreamState& state) {
  journal::StepCommittedT record;
  record.step = state.next_step;
  record.epoch = state.epoch;
  record.incarnation = state.group ? state.group->incarnation : 1;
  record.time_ns = 1'700'000'000'000'000'000 + static_cast<std::int64_t>(state.next_step);
  const std::uint32_t ranks = state.group ? state.group->ranks : 1;
  record.size_bytes = ranks * std::uint64_t{16384};
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    auto part = std::make_unique<journal::PartT>();
    part->rank = rank;
    part->metadata_bytes = 300;
    part->metadata_crc = 0x1234 + rank;
    const std::uint64_t offset = (state.next_step % 64) * 16384;
    part->extents.emplace_back(rank, 0, 0, offset, 16384);
    part->metadata.emplace_back(rank, 0, 0, offset + 12288, 300);
    record.parts.push_back(std::move(part));
  }
  return record;
}

/// The attribute set that a step has brought for this rank.
inline std::unique_ptr<journal::AttributeSetT> attribute_set(std::uint64_t step, std::uint32_t rank) {
  auto set = std::make_unique<journal::AttributeSetT>();
  set->step = step;
  set->extents.emplace_back(rank, 0, 0, (std::uint64_t{1} << 24) + (step % 64) * 8192, 8192);
  set->bytes = 6000;
  set->crc = 0x4321 + rank;
  return set;
}

/// Steps 0 to steps - 1, written by a group of `ranks`.
inline StreamState state_with_steps(std::uint64_t steps, std::uint32_t ranks = 1) {
  StreamState state = StreamState::fresh(test_uuid, "flow", 1'700'000'000'000'000'000);
  if (!state.apply(group_formed(state, 1, ranks))) std::abort();
  for (std::uint64_t i = 0; i < steps; ++i) {
    if (!state.apply(step_committed(state))) std::abort();
  }
  return state;
}

template <class RecordT>
std::vector<std::byte> body_of(const RecordT& record) {
  flatbuffers::FlatBufferBuilder builder;
  const auto packed = std::as_bytes(pack_body(builder, record));
  return {packed.begin(), packed.end()};
}

inline std::vector<std::byte> bytes_of_state(const StreamState& state) {
  const auto body = *state.checkpoint_body();
  const auto bytes = std::as_bytes(std::span(body.data(), body.size()));
  return {bytes.begin(), bytes.end()};
}

inline journal::CheckpointT checkpoint_of(const StreamState& state) {
  const auto body = bytes_of_state(state);
  auto record = unpack_body<journal::CheckpointT>(body);
  if (!record) std::abort();
  return std::move(*record);
}

/// The same state after its way through a file's checkpoint.
inline StreamState state_from_checkpoint(const StreamState& state) {
  const auto body = *state.checkpoint_body();
  StreamState loaded;
  if (!loaded.apply(journal::RecordType::checkpoint, std::as_bytes(std::span(body.data(), body.size())))) std::abort();
  return loaded;
}

}  // namespace forebay::storage
