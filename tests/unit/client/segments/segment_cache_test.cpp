// SPDX-License-Identifier: Apache-2.0
// Where segments are mapped: one behind another, each place for one holder.
#include "client/segments/segment_cache.h"

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace forebay::client {
namespace {

constexpr std::uint64_t bytes = std::uint64_t{1} << 20;

class SegmentPlaces : public ::testing::Test {
 protected:
  /// A segment full of its fill.
  std::shared_ptr<Segment> segment(std::uint32_t number, char fill, std::uint64_t size = bytes) {
    auto file = posix_device().open(directory_.path(std::to_string(files_++)), OpenMode::create_new);
    EXPECT_TRUE(file) << file.error().message();
    const std::vector<std::byte> content(size, static_cast<std::byte>(fill));
    EXPECT_TRUE((*file)->write_at(0, content));
    return std::make_shared<Segment>(number, 0, std::move(*file), size, addresses_);
  }

  testing::TemporaryDirectory directory_;
  std::shared_ptr<SegmentAddresses> addresses_ = std::make_shared<SegmentAddresses>(bytes);
  int files_ = 0;
};

TEST_F(SegmentPlaces, neighbours_are_one_array) {
  auto second = segment(8, 'b');
  auto first = segment(7, 'a');
  auto far = segment(1000, 'c');
  const std::byte* behind = *second->map();
  EXPECT_EQ(*first->map() + bytes, behind);
  EXPECT_EQ(**far->map(), std::byte{'c'});
  EXPECT_EQ(behind[-1], std::byte{'a'});
  EXPECT_EQ(behind[0], std::byte{'b'});
}

TEST_F(SegmentPlaces, a_place_has_one_holder_and_can_be_had_again) {
  auto first = segment(7, 'a');
  auto newer = segment(7, 'b');
  const std::byte* place = *first->map();
  const std::byte* elsewhere = *newer->map();
  EXPECT_NE(place, elsewhere);
  EXPECT_EQ(*place, std::byte{'a'});
  EXPECT_EQ(*elsewhere, std::byte{'b'});
  first.reset();
  auto newest = segment(7, 'c');
  EXPECT_EQ(*newest->map(), place);
  EXPECT_EQ(*place, std::byte{'c'});
  EXPECT_EQ(*elsewhere, std::byte{'b'});
}

TEST_F(SegmentPlaces, a_segment_of_another_size_goes_elsewhere) {
  auto first = segment(7, 'a');
  auto odd = segment(8, 'b', 2 * bytes);
  EXPECT_NE(*first->map() + bytes, *odd->map());
  EXPECT_EQ(**odd->map(), std::byte{'b'});
}

TEST_F(SegmentPlaces, few_addresses_are_enough) {
  auto first = segment(7, 'a');
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
  // Enough for a segment, too little for a range of them.
  rlimit few = before;
  few.rlim_cur = pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) + 16 * bytes;
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &few), 0);
  EXPECT_EQ(addresses_->take(8, bytes), nullptr);
  auto mapped = first->map();
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &before), 0);
  ASSERT_TRUE(mapped) << mapped.error().message();
  EXPECT_EQ(**mapped, std::byte{'a'});
}

}  // namespace
}  // namespace forebay::client
