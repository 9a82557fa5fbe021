// SPDX-License-Identifier: Apache-2.0
// Properties of the writer's space under random use: nothing is given out twice, nothing gets lost, rules of alignment
// hold.
#include "client/writing/space.h"

#include <map>

#include <gtest/gtest.h>

#include "base/segment_layout.h"
#include "tests/support/randomness.h"

namespace forebay::client {
namespace {

constexpr std::uint64_t page = 4096;

std::uint64_t total(const std::vector<Extent>& extents) {
  std::uint64_t bytes = 0;
  for (const Extent& extent : extents) bytes += extent.length;
  return bytes;
}

// Bytes in use, to find overlaps.
class Occupied {
 public:
  void add(const format::Piece& piece) {
    auto& ranges = segments_[piece.segment()];
    const auto behind = ranges.lower_bound(piece.offset());
    if (behind != ranges.end()) {
      ASSERT_LE(piece.offset() + piece.length(), behind->first);
    }
    if (behind != ranges.begin()) {
      ASSERT_LE(std::prev(behind)->second, piece.offset());
    }
    ranges.emplace(piece.offset(), piece.offset() + piece.length());
  }
  // Whether all of it lies within `extents`.
  bool within(const std::vector<Extent>& extents) const {
    for (const auto& [segment, ranges] : segments_) {
      for (const auto& [from, to] : ranges) {
        bool found = false;
        for (const Extent& extent : extents)
          found = found || (extent.segment == segment && extent.offset <= from && to <= extent.end());
        if (!found) return false;
      }
    }
    return true;
  }

 private:
  std::map<std::uint32_t, std::map<std::uint64_t, std::uint64_t>> segments_;
};

TEST(Space, random_steps_neither_overlap_nor_lose_space) {
  forebay::testing::Random random(forebay::testing::test_seed());
  const auto below = [&](std::uint64_t limit) { return random() % limit; };
  const SegmentLayout layout({2, 1});
  for (int round = 0; round < 200; ++round) {
    Space space;
    std::uint64_t granted = 0;
    std::uint64_t next_offset[3] = {};
    for (int step = 0; step < 10; ++step) {
      Occupied occupied;
      Occupied apart;
      for (int action = 0; action < 60; ++action) {
        if (below(4) == 0) {
          const auto segment = static_cast<std::uint32_t>(below(3));
          const std::uint64_t length = page * (1 + below(40));
          space.grant({segment, layout.member_of(segment).value(), next_offset[segment], length});
          next_offset[segment] += length + page * below(2);
          granted += length;
        } else if (below(2) == 0) {
          const std::uint64_t bytes = 1 + below(4095);
          if (const auto piece = space.take_small(bytes)) {
            EXPECT_EQ(piece->offset() % 64, 0U);
            EXPECT_EQ(piece->length(), bytes);
            EXPECT_EQ(piece->member(), layout.member_of(piece->segment()));
            occupied.add(*piece);
          } else {
            EXPECT_EQ(space.free_bytes(), 0U);
          }
        } else {
          const std::uint64_t bytes = page + below(40 * page);
          std::vector<format::Piece> pieces;
          const std::uint64_t free_before = space.free_bytes();
          if (space.take_pages(bytes, pieces)) {
            std::uint64_t sum = 0;
            for (std::size_t i = 0; i < pieces.size(); ++i) {
              EXPECT_EQ(pieces[i].offset() % page, 0U);
              EXPECT_EQ(pieces[i].member(), layout.member_of(pieces[i].segment()));
              if (i + 1 < pieces.size()) {
                EXPECT_EQ(pieces[i].length() % page, 0U);
              }
              sum += pieces[i].length();
              occupied.add(pieces[i]);
            }
            EXPECT_EQ(sum, bytes);
            EXPECT_EQ(free_before - space.free_bytes(), (bytes + page - 1) / page * page);
          } else {
            EXPECT_LT(space.free_bytes(), bytes + page);
            EXPECT_EQ(free_before, space.free_bytes());
          }
        }
        if (below(20) == 0) {
          const std::uint64_t bytes = page * (1 + below(10));
          const std::uint64_t free_before = space.free_bytes();
          std::vector<format::Piece> pieces;
          ASSERT_EQ(space.take_apart(bytes, pieces), bytes <= free_before);
          std::uint64_t sum = 0;
          for (const format::Piece& piece : pieces) {
            apart.add(piece);
            sum += piece.length();
          }
          EXPECT_EQ(sum, free_before - space.free_bytes());
        }
        if (below(200) == 0) {
          space.return_apart();
          apart = {};
        }
        ASSERT_EQ(space.free_bytes() + space.used_bytes() + total(space.apart()), granted);
      }
      space.trim();
      // Apart from what the step used, and from itself.
      ASSERT_EQ(total(client::merged(space.apart())), total(space.apart()));
      ASSERT_TRUE(apart.within(client::merged(space.apart())));
      const auto used = space.used();
      ASSERT_EQ(total(used), space.used_bytes());
      ASSERT_EQ(total(space.held()), granted);
      ASSERT_TRUE(occupied.within(used));
      for (std::size_t i = 0; i < used.size(); ++i) {
        EXPECT_EQ(used[i].member, layout.member_of(used[i].segment));
        EXPECT_EQ(used[i].offset % page, 0U);
        EXPECT_EQ(used[i].length % page, 0U);
        if (i > 0 && used[i - 1].segment == used[i].segment) {
          EXPECT_LT(used[i - 1].end(), used[i].offset);
        }
      }
      if (below(3) == 0) {
        space.return_apart();
        for (const Extent& extent : used) space.grant(extent);
      } else {
        granted -= space.used_bytes() + total(space.apart());
      }
      space.end_step();
      ASSERT_EQ(space.free_bytes(), granted);
      ASSERT_EQ(total(space.held()), granted);
    }
  }
}

TEST(Space, step_like_the_last_one_is_contiguous) {
  Space space;
  space.grant({0, 0, 0, 64 * page});
  std::vector<format::Piece> pieces;
  ASSERT_TRUE(space.take_pages(page, pieces));
  ASSERT_TRUE(space.take_small(300));
  space.trim();
  EXPECT_EQ(space.used(), (std::vector<Extent>{{0, 0, 0, 2 * page}}));
  space.end_step();
  ASSERT_TRUE(space.take_pages(page, pieces));
  const auto small = space.take_small(300);
  ASSERT_TRUE(small);
  EXPECT_EQ(small->offset(), pieces.back().offset() + page);
  space.trim();
  EXPECT_EQ(space.used(), (std::vector<Extent>{{0, 0, 2 * page, 2 * page}}));
}

TEST(Space, large_block_is_in_one_piece_where_that_is_possible) {
  Space space;
  space.grant({0, 0, 0, 2 * page});
  space.grant({0, 0, 10 * page, 20 * page});
  std::vector<format::Piece> pieces;
  ASSERT_TRUE(space.take_pages(5 * page, pieces));
  EXPECT_EQ(pieces.size(), 1U);
  EXPECT_EQ(pieces[0].offset(), 10 * page);
  pieces.clear();
  ASSERT_TRUE(space.take_pages(16 * page + 1, pieces));
  EXPECT_EQ(pieces.size(), 2U);
  EXPECT_EQ(space.free_bytes(), 0U);
}

TEST(Space, block_above_the_stripe_is_taken_from_all_members_side_by_side) {
  Space space;
  space.set_stripe(4 * page);
  space.grant({0, 1, 0, 30 * page});
  space.grant({1, 2, 0, 5 * page});
  space.grant({1, 2, 8 * page, 30 * page});
  space.grant({2, 0, 0, 30 * page});
  std::vector<format::Piece> pieces;
  ASSERT_TRUE(space.take_pages(4 * page, pieces, SpaceKind::elsewhere));
  ASSERT_EQ(pieces.size(), 1U) << "a stripe is not cut";
  pieces.clear();
  ASSERT_TRUE(space.take_pages(16 * page - 7, pieces, SpaceKind::elsewhere));
  std::map<std::uint16_t, std::uint64_t> of_member;
  std::uint64_t bytes = 0;
  for (const format::Piece& piece : pieces) {
    of_member[piece.member()] += piece.length();
    bytes += piece.length();
    EXPECT_TRUE(&piece == &pieces.back() || piece.length() % page == 0) << "only the last ends within a page";
  }
  EXPECT_EQ(bytes, 16 * page - 7);
  EXPECT_EQ(of_member, (std::map<std::uint16_t, std::uint64_t>{{1, 8 * page}, {2, 8 * page - 7}}));
  pieces.clear();
  ASSERT_TRUE(space.take_pages(12 * page, pieces));
  of_member.clear();
  for (const format::Piece& piece : pieces) of_member[piece.member()] += piece.length();
  EXPECT_EQ(of_member, (std::map<std::uint16_t, std::uint64_t>{{0, 4 * page}, {1, 4 * page}, {2, 4 * page}}));
}

}  // namespace
}  // namespace forebay::client
