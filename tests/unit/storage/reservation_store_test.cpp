// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <bit>
#include <functional>

#include <gtest/gtest.h>

#include "storage/framing.h"
#include "storage/record_body.h"
#include "storage/reservation_check.h"
#include "tests/unit/storage/reservation_fixture.h"
#include "tests/unit/storage/seal_frame.h"

namespace forebay::storage {
namespace {

namespace fs = std::filesystem;
using testing::FaultyDevice;
using testing::Operation;
using Names = std::vector<std::string>;

constexpr std::uint64_t mebibyte = std::uint64_t{1} << 20;

TEST(ReservationLayout, fits_the_capacity_with_at_least_four_segments) {
  for (std::uint64_t capacity = capacity_bytes_min; capacity < (std::uint64_t{1} << 44);
       capacity = capacity * 5 / 4 + 12345) {
    const auto layout = layout_for(capacity);
    ASSERT_TRUE(layout);
    EXPECT_GE(layout->capacity_bytes, capacity);
    EXPECT_LT(layout->capacity_bytes, capacity + granularity_bytes);
    EXPECT_TRUE(std::has_single_bit(layout->segment_bytes));
    EXPECT_GE(layout->segment_bytes, mebibyte);
    EXPECT_LE(layout->segment_bytes, 256 * mebibyte);
    ASSERT_EQ(layout->segments.size(), 1U);
    EXPECT_GE(layout->segments[0], 4U);
    const std::uint64_t used = layout->segments[0] * layout->segment_bytes + layout->journal_reserve_bytes;
    EXPECT_LE(used, layout->capacity_bytes);
    EXPECT_GT(used + layout->segment_bytes, layout->capacity_bytes);
  }
}

TEST(ReservationLayout, of_known_capacities) {
  EXPECT_EQ(layout_for(8 * mebibyte)->segments, std::vector{7U});
  EXPECT_EQ(layout_for(8 * mebibyte)->segment_bytes, mebibyte);
  EXPECT_EQ(layout_for(2048 * mebibyte)->segment_bytes, 64 * mebibyte);
  EXPECT_EQ(layout_for(2048 * mebibyte)->journal_reserve_bytes, 32 * mebibyte);
  EXPECT_EQ(layout_for(2048 * mebibyte)->segments, std::vector{31U});
  EXPECT_EQ(layout_for(std::uint64_t{1} << 40)->segment_bytes, 256 * mebibyte);
  EXPECT_EQ(layout_for(std::uint64_t{1} << 40)->journal_reserve_bytes, 64 * mebibyte);
}

TEST(ReservationLayout, too_small_and_too_large_are_refused) {
  EXPECT_EQ(layout_for(capacity_bytes_min - 1).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(layout_for(~std::uint64_t{0}).error().code, ErrorCode::invalid_argument);
}

TEST(ReservationLayout, files_have_a_capacity_beside_that_of_streams) {
  const auto both = layout_for(8 * mebibyte, 3 * mebibyte + 1);
  ASSERT_TRUE(both);
  EXPECT_EQ(both->capacity_bytes, 8 * mebibyte);
  EXPECT_EQ(both->files_bytes, 4 * mebibyte);
  EXPECT_EQ(both->segments, std::vector{7U});
  const auto files_only = layout_for(0, 1);
  ASSERT_TRUE(files_only);
  EXPECT_EQ(files_only->capacity_bytes, 0U);
  EXPECT_EQ(files_only->files_bytes, mebibyte);
  EXPECT_EQ(files_only->segments, std::vector{0U});
  EXPECT_EQ(files_only->journal_reserve_bytes, 0U);
}

TEST(ReservationLayout, capacities_that_overflow_or_are_none_are_refused) {
  const std::uint64_t most = std::uint64_t{256} << 40;
  EXPECT_EQ(layout_for(most, most)->capacity_bytes + layout_for(most, most)->files_bytes, 2 * most);
  for (const auto& [capacity, files] : {std::pair<std::uint64_t, std::uint64_t>{0, 0},
                                        {0, most + 1},
                                        {0, ~std::uint64_t{0}},
                                        {8 * mebibyte, ~std::uint64_t{0}},
                                        {~std::uint64_t{0}, ~std::uint64_t{0}},
                                        {1, mebibyte}}) {
    EXPECT_EQ(layout_for(capacity, files).error().code, ErrorCode::invalid_argument) << capacity << " " << files;
  }
}

class ReservationStoreTest : public ::testing::Test {
 protected:
  ReservationStoreTest() : store_(std::move(*ReservationStore::open(device_, root_.path()))) {}

  void create(const reservation::ReservationT& record) {
    const auto created = store_->create(record);
    ASSERT_TRUE(created) << created.error().message();
  }
  std::vector<reservation::ReservationT> load() {
    problems_.clear();
    auto loaded = store_->load(problems_, unread_);
    EXPECT_TRUE(loaded) << loaded.error().message();
    return std::move(*loaded);
  }
  std::string reservations() const { return root_.path("reservations"); }
  std::string quarantine() const { return root_.path("quarantine"); }

  testing::TemporaryDirectory root_ = testing::TemporaryDirectory::in_memory();
  testing::TemporaryDirectory limbo_ = testing::TemporaryDirectory::in_memory();
  FaultyDevice device_{limbo_.path()};
  std::unique_ptr<ReservationStore> store_;
  std::vector<std::string> problems_;
  std::vector<std::string> unread_;
};

TEST_F(ReservationStoreTest, what_was_created_is_loaded) {
  create(reservation_record());
  create(reservation_record(other_id));
  const auto loaded = load();
  ASSERT_EQ(loaded.size(), 2U);
  EXPECT_EQ(bytes_of_record(loaded[0]), bytes_of_record(reservation_record()));
  EXPECT_TRUE(problems_.empty());
}

TEST_F(ReservationStoreTest, a_reservation_may_be_of_files_only) {
  auto record = reservation_record(reservation_id, 0);
  record.capacity_bytes = 0;
  record.journal_reserve_bytes = 0;
  record.files_bytes = mebibyte;
  create(record);
  const auto loaded = load();
  ASSERT_EQ(loaded.size(), 1U);
  EXPECT_EQ(bytes_of_record(loaded[0]), bytes_of_record(record));
  EXPECT_EQ(granted_bytes(loaded[0], 0), mebibyte);
  EXPECT_EQ(store_->measure_files(reservation_id)->bytes, 0U);
  EXPECT_TRUE(problems_.empty());
}

TEST_F(ReservationStoreTest, a_record_of_another_type_or_version_is_refused) {
  const auto encoded = [](std::uint16_t type, const reservation::ReservationT& body) {
    flatbuffers::FlatBufferBuilder builder;
    std::vector<std::byte> frame;
    encode_frame({.type = type}, std::as_bytes(pack_body(builder, body)), frame);
    return frame;
  };
  auto record = reservation_record();
  EXPECT_TRUE(decode_reservation(encoded(1, record)));
  EXPECT_EQ(decode_reservation(encoded(2, record)).error().code, ErrorCode::unsupported);
  auto of_before = encoded(1, record);
  constexpr std::uint16_t unmarked = 1;
  std::memcpy(of_before.data() + offsetof(FrameHeader, version), &unmarked, sizeof unmarked);
  seal_frame(of_before);
  EXPECT_EQ(decode_reservation(of_before).error().code, ErrorCode::unsupported);
  record.shares.push_back(std::make_unique<reservation::ShareT>());
  record.shares.back()->kind = 1;
  record.shares.back()->rights = 4;  // own is nobody's share
  EXPECT_EQ(decode_reservation(encoded(1, record)).error().code, ErrorCode::corrupt);
}

TEST_F(ReservationStoreTest, segments_have_their_space) {
  create(reservation_record());
  for (std::uint32_t segment = 0; segment < 4; ++segment) {
    struct stat status{};
    ASSERT_EQ(::stat(store_->segment_path(reservation_id, segment).c_str(), &status), 0);
    EXPECT_EQ(status.st_size, static_cast<off_t>(mebibyte));
    EXPECT_GE(status.st_blocks * 512, static_cast<off_t>(mebibyte));
  }
}

TEST_F(ReservationStoreTest, creating_again_succeeds_and_another_of_the_id_is_refused) {
  create(reservation_record());
  create(reservation_record());
  auto other = reservation_record();
  other.name = "run2";
  EXPECT_EQ(store_->create(other).error().code, ErrorCode::already_exists);
}

TEST_F(ReservationStoreTest, a_record_that_cannot_be_is_refused) {
  const auto refuse = [&](const std::function<void(reservation::ReservationT&)>& change) {
    auto record = reservation_record();
    change(record);
    const auto created = store_->create(record);
    ASSERT_FALSE(created);
    EXPECT_EQ(created.error().code, ErrorCode::invalid_argument) << created.error().message();
  };
  refuse([](auto& r) { r.id = "../../etc"; });
  refuse([](auto& r) { r.name = "a b"; });
  refuse([](auto& r) { r.segment_bytes = 3 * mebibyte; });
  refuse([](auto& r) { r.segment_bytes = 512 * mebibyte; });
  refuse([](auto& r) { r.members.clear(); });
  refuse([](auto& r) { r.members[0]->segments = 0; });
  refuse([](auto& r) { r.members[0]->segments = 5; });
  refuse([](auto& r) { r.journal_reserve_bytes = ~std::uint64_t{0}; });
  refuse([](auto& r) { r.lifetime = 3; });
  refuse([](auto& r) { r.files_bytes = ~std::uint64_t{0}; });
  refuse([](auto& r) { r.capacity_bytes = ~std::uint64_t{0}; });
  refuse([](auto& r) { r.capacity_bytes = 0, r.files_bytes = mebibyte; });
  refuse([](auto& r) { r.members[0]->segments = 0, r.files_bytes = mebibyte; });
  EXPECT_TRUE(names_in(reservations()).empty());
}

TEST_F(ReservationStoreTest, a_full_device_leaves_nothing_behind) {
  device_.fail_at(Operation::allocate, 3, ErrorCode::no_space);
  const auto created = store_->create(reservation_record());
  ASSERT_FALSE(created);
  EXPECT_EQ(created.error().code, ErrorCode::no_space);
  EXPECT_NE(created.error().where.find("segment 2 of 4"), std::string::npos) << created.error().where;
  EXPECT_TRUE(names_in(reservations()).empty());
  EXPECT_TRUE(load().empty());
}

TEST_F(ReservationStoreTest, only_files_are_open_to_the_owners_group) {
  const mode_t before = ::umask(0077);
  create(reservation_record());
  ::umask(before);
  const auto mode = [](const std::string& path) {
    struct stat status{};
    EXPECT_EQ(::stat(path.c_str(), &status), 0);
    return status.st_mode & 07777;
  };
  EXPECT_EQ(mode(store_->files_directory(reservation_id)), 0770U);
  EXPECT_EQ(mode(store_->streams_directory(reservation_id)), 0700U);
  EXPECT_EQ(mode(store_->directory(reservation_id) + "/segments"), 0700U);
  EXPECT_EQ(mode(store_->directory(reservation_id)), 0700U);
  EXPECT_EQ(mode(store_->segment_path(reservation_id, 0)), 0600U);
  EXPECT_EQ(mode(quarantine()), 0700U);
}

TEST_F(ReservationStoreTest, another_owner_reaches_files_and_nothing_else) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  auto record = reservation_record();
  record.owner_uid = 12345;
  record.owner_gid = 23456;
  create(record);
  struct stat status{};
  ASSERT_EQ(::stat(store_->files_directory(reservation_id).c_str(), &status), 0);
  EXPECT_EQ(status.st_uid, 12345U);
  EXPECT_EQ(status.st_gid, 23456U);
  ASSERT_EQ(::chmod(root_.path().c_str(), 0711), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgid(23456) != 0 || ::setuid(12345) != 0) ::_exit(9);
    const auto reach = [](const std::string& path) { return ::access(path.c_str(), R_OK | X_OK) == 0; };
    const bool right = reach(store_->files_directory(reservation_id)) &&
                       !reach(store_->streams_directory(reservation_id)) &&
                       !reach(store_->segment_path(reservation_id, 0)) && !reach(store_->directory(reservation_id));
    ::_exit(right ? 0 : 1);
  }
  int result = 0;
  ASSERT_EQ(::waitpid(child, &result, 0), child);
  EXPECT_EQ(result, 0);
}

TEST_F(ReservationStoreTest, retiring_is_idempotent_and_purging_deletes_what_was_retired) {
  create(reservation_record());
  write_text(store_->files_directory(reservation_id) + "/result", "42");
  ASSERT_TRUE(store_->retire(reservation_id));
  ASSERT_TRUE(store_->retire(reservation_id));
  EXPECT_TRUE(load().empty());
  EXPECT_TRUE(problems_.empty());
  EXPECT_EQ(names_in(quarantine()).size(), 1U);
  const auto purged = store_->purge_quarantine(1000);
  ASSERT_TRUE(purged);
  EXPECT_TRUE(*purged);
  EXPECT_TRUE(names_in(quarantine()).empty());
}

TEST_F(ReservationStoreTest, a_purge_deletes_no_more_than_it_may) {
  create(reservation_record());
  for (int i = 0; i < 50; ++i) write_text(store_->files_directory(reservation_id) + "/" + std::to_string(i), "x");
  ASSERT_TRUE(store_->retire(reservation_id));
  const auto entries = [&] { return std::distance(fs::recursive_directory_iterator(quarantine()), {}); };
  auto left = entries();
  EXPECT_EQ(left, 1 + 3 + 1 + 4 + 50);
  while (left > 0) {
    const auto purged = store_->purge_quarantine(7);
    ASSERT_TRUE(purged);
    EXPECT_GE(entries(), left - 7);
    ASSERT_LT(entries(), left);
    left = entries();
    EXPECT_EQ(*purged, left == 0);
  }
}

TEST_F(ReservationStoreTest, a_purge_does_not_follow_links_out_of_the_tree) {
  create(reservation_record());
  const std::string outside = root_.path("outside");
  fs::create_directory(outside);
  write_text(outside + "/precious", "x");
  fs::create_directory_symlink(outside, store_->files_directory(reservation_id) + "/link");
  ASSERT_TRUE(store_->retire(reservation_id));
  ASSERT_TRUE(*store_->purge_quarantine(1000));
  EXPECT_TRUE(fs::exists(outside + "/precious"));
}

TEST_F(ReservationStoreTest, a_tree_deeper_than_descriptors_go_is_purged) {
  create(reservation_record());
  // By descriptors: the path is longer than any call takes.
  int parent = ::open(store_->files_directory(reservation_id).c_str(), O_RDONLY | O_DIRECTORY);
  for (int depth = 0; depth < 3000; ++depth) {
    ASSERT_EQ(::mkdirat(parent, "deeper", 0700), 0);
    const int child = ::openat(parent, "deeper", O_RDONLY | O_DIRECTORY);
    ::close(parent);
    parent = child;
  }
  ::close(parent);
  ASSERT_TRUE(store_->retire(reservation_id));
  int rounds = 0;
  for (bool empty = false; !empty; ++rounds) {
    ASSERT_LT(rounds, 1000);
    const auto purged = store_->purge_quarantine(100);
    ASSERT_TRUE(purged) << purged.error().message();
    empty = *purged;
  }
  EXPECT_TRUE(names_in(quarantine()).empty());
}

TEST_F(ReservationStoreTest, unfinished_creations_are_removed) {
  fs::create_directories(reservations() + "/." + reservation_id + ".new/segments");
  write_text(reservations() + "/." + reservation_id + ".new/segments/0", "x");
  EXPECT_TRUE(load().empty());
  EXPECT_TRUE(names_in(reservations()).empty());
  EXPECT_TRUE(problems_.empty());
}

TEST_F(ReservationStoreTest, what_nobody_claims_goes_to_quarantine_and_stays_there) {
  create(reservation_record());
  write_text(reservations() + "/notes", "x");
  fs::create_directory(reservations() + "/lost+found");
  fs::create_directory(reservations() + "/" + other_id);
  EXPECT_EQ(load().size(), 1U);
  EXPECT_EQ(problems_.size(), 3U);
  EXPECT_EQ(names_in(reservations()), (Names{reservation_id}));
  EXPECT_EQ(names_in(quarantine()).size(), 3U);
  EXPECT_TRUE(*store_->purge_quarantine(1000));
  EXPECT_EQ(names_in(quarantine()).size(), 3U);
  EXPECT_NE(problems_[0].find(quarantine()), std::string::npos) << problems_[0];
  EXPECT_EQ(load().size(), 1U);
  EXPECT_TRUE(problems_.empty());
}

TEST_F(ReservationStoreTest, every_flipped_byte_of_the_identity_file_is_noticed) {
  create(reservation_record());
  const std::string path = store_->directory(reservation_id) + "/reservation";
  std::string whole;
  {
    std::ifstream stream(path, std::ios::binary);
    whole.assign(std::istreambuf_iterator<char>(stream), {});
  }
  for (std::size_t byte = 0; byte < whole.size(); ++byte) {
    auto bytes = whole;
    bytes[byte] = static_cast<char>(bytes[byte] ^ (1 << (byte % 8)));
    write_text(path, bytes);
    ASSERT_TRUE(load().empty()) << byte;
    ASSERT_EQ(problems_.size(), 1U);
    const Names kept = names_in(quarantine());
    ASSERT_EQ(kept.size(), 1U);
    fs::rename(quarantine() + "/" + kept[0], store_->directory(reservation_id));
  }
}

TEST_F(ReservationStoreTest, what_became_of_segments_puts_no_reservation_aside) {
  create(reservation_record());
  fs::resize_file(store_->segment_path(reservation_id, 0), 3 * mebibyte);
  fs::resize_file(store_->segment_path(reservation_id, 1), mebibyte - 1);
  fs::remove(store_->segment_path(reservation_id, 2));
  fs::remove(store_->segment_path(reservation_id, 3));
  fs::create_symlink("nowhere", store_->segment_path(reservation_id, 3));
  EXPECT_EQ(load().size(), 1U);
  EXPECT_TRUE(problems_.empty());
  EXPECT_EQ(names_in(reservations()), (Names{reservation_id}));
}

TEST_F(ReservationStoreTest, what_cannot_be_read_just_now_stays_where_it_is) {
  create(reservation_record());
  // A link to itself cannot be opened, and that is no sign of lasting damage.
  const std::string path = store_->directory(reservation_id) + "/reservation";
  fs::remove(path);
  fs::create_symlink(path, path);
  EXPECT_TRUE(load().empty());
  EXPECT_EQ(problems_.size(), 1U);
  EXPECT_EQ(names_in(reservations()), (Names{reservation_id}));
}

TEST_F(ReservationStoreTest, streams_have_folders_that_come_and_go) {
  create(reservation_record());
  ASSERT_TRUE(store_->make_stream_directory(reservation_id, "flow"));
  ASSERT_TRUE(store_->make_stream_directory(reservation_id, "flow"));
  ASSERT_TRUE(store_->make_stream_directory(reservation_id, "b.2"));
  EXPECT_FALSE(store_->make_stream_directory(reservation_id, "../x"));
  fs::create_directory(store_->streams_directory(reservation_id) + "/.hidden");
  EXPECT_EQ(*store_->stream_names(reservation_id), (Names{"b.2", "flow"}));
  ASSERT_TRUE(store_->retire_stream(reservation_id, "flow"));
  ASSERT_TRUE(store_->retire_stream(reservation_id, "flow"));
  EXPECT_EQ(*store_->stream_names(reservation_id), (Names{"b.2"}));
  ASSERT_TRUE(store_->make_stream_directory(reservation_id, "flow"));
  ASSERT_TRUE(store_->retire_stream(reservation_id, "flow"));
  EXPECT_EQ(names_in(quarantine()).size(), 2U);
  EXPECT_TRUE(*store_->purge_quarantine(10));
}

TEST_F(ReservationStoreTest, files_count_by_the_space_that_they_take) {
  create(reservation_record());
  const std::string files = store_->files_directory(reservation_id);
  EXPECT_EQ(store_->measure_files(reservation_id)->bytes, 0U);
  fs::create_directories(files + "/a/b");
  write_text(files + "/a/b/data", std::string(100'000, 'x'));
  fs::create_hard_link(files + "/a/b/data", files + "/again");
  write_text(files + "/sparse", "");
  fs::resize_file(files + "/sparse", std::uint64_t{1} << 40);
  fs::create_symlink("/", files + "/root");
  const std::uint64_t bytes = store_->measure_files(reservation_id)->bytes;
  EXPECT_GE(bytes, 100'000U);
  EXPECT_LT(bytes, 200'000U);
}

}  // namespace
}  // namespace forebay::storage
