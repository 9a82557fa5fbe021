// SPDX-License-Identifier: Apache-2.0
// A root with a store, and records of small reservations.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "storage/record_body.h"
#include "storage/reservation_store.h"
#include "tests/support/faulty_device.h"
#include "tests/support/temporary_directory.h"

namespace forebay::storage {

inline constexpr char reservation_id[] = "11111111-2222-4333-8444-555555555555";
inline constexpr char other_id[] = "99999999-2222-4333-8444-555555555555";

inline reservation::ReservationT reservation_record(const std::string& id = reservation_id,
                                                    std::uint32_t segments = 4) {
  reservation::ReservationT record;
  record.id = id;
  record.name = "run1";
  record.segment_bytes = std::uint64_t{1} << 20;
  record.journal_reserve_bytes = std::uint64_t{1} << 20;
  record.capacity_bytes = (segments + 1) * record.segment_bytes;
  record.lifetime = 1;
  record.owner_uid = ::geteuid();
  record.owner_gid = ::getegid();
  record.created_ns = 1'700'000'000'000'000'000;
  auto member = std::make_unique<reservation::MemberT>();
  member->server = "0b7c9f9e-52a5-4c3e-9d0c-0a4d9a1b2c3d";
  member->segments = segments;
  record.members.push_back(std::move(member));
  return record;
}

inline std::vector<std::uint8_t> bytes_of_record(const reservation::ReservationT& record) {
  flatbuffers::FlatBufferBuilder builder;
  const auto packed = pack_body(builder, record);
  return {packed.begin(), packed.end()};
}

inline std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

inline void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
}

}  // namespace forebay::storage
