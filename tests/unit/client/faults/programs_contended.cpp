// SPDX-License-Identifier: Apache-2.0
// The play in which space goes from one stream to another and back.
#include <algorithm>
#include <map>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "storage/record_body.h"
#include "tests/unit/client/faults/programs.h"

namespace forebay::testing {
namespace {

// By its name the one that is not durable comes first, where nothing but durability decides who gives way.
constexpr const char* brief = "monitor";
constexpr const char* lasting = "restart";
constexpr std::uint64_t large_bytes = std::uint64_t{7} << 18;
constexpr std::uint64_t small_bytes = std::uint64_t{1} << 18;

/// Segments that such records of the journals on disk name, by stream.
template <class RecordT>
std::map<std::string, std::set<std::uint32_t>> segments_named(const std::string& root) {
  std::map<std::string, std::set<std::uint32_t>> segments;
  visit_journals(root, [&](const std::string& stream, auto type, auto body) -> Result<void> {
    if (type != storage::record_type_of<RecordT>) return {};
    const auto record = storage::unpack_body<RecordT>(body);
    if (!record) return fail(record.error());
    segments[stream].insert(record->segments.begin(), record->segments.end());
    return {};
  });
  return segments;
}

}  // namespace

void Programs::run_contended() {
  WriterOptions recent;
  recent.mode = WriteMode::append;
  recent.retention = Retention{.last = 1, .consumers = {}, .precious_every = 0};
  // A program that waits for the other's space would wait for ever where an accident keeps that one from going on, for
  // both have one thread.
  recent.when_full = WhenFull::error;
  const auto in_turn = [this](int steps, std::uint64_t brief_bytes, std::uint64_t lasting_bytes) {
    ballast_bytes_ = {{brief, brief_bytes}, {lasting, lasting_bytes}};
    for (int i = 0; i < steps; ++i) {
      write(brief);
      write(lasting);
    }
  };
  open(brief, Durability::committed, recent);
  open(lasting, Durability::durable, recent);
  in_turn(2, large_bytes, small_bytes);
  in_turn(1, small_bytes, small_bytes);
  in_turn(3, small_bytes, large_bytes);
  in_turn(1, small_bytes, small_bytes);
  in_turn(2, large_bytes, small_bytes);
  in_turn(1, small_bytes, small_bytes);
  // What the living gave each other they give by records; what one leaves behind is there for the taking.
  close(brief);
  ballast_bytes_[lasting] = large_bytes;
  write(lasting, 2);
}

void Programs::check_space_went_between_streams() const {
  const auto left = segments_named<journal::SegmentsLeftT>(server_.root());
  const auto owned = segments_named<journal::SegmentsOwnedT>(server_.root());
  const auto went = [&](const char* from, const char* to) {
    if (!left.contains(from) || !owned.contains(to)) return false;
    const auto& taken = owned.at(to);
    return std::ranges::any_of(left.at(from), [&](std::uint32_t segment) { return taken.contains(segment); });
  };
  EXPECT_TRUE(went(brief, lasting)) << "no segment went to the stream that is durable";
  EXPECT_TRUE(went(lasting, brief)) << "no segment came back";
}

}  // namespace forebay::testing
