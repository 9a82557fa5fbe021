// SPDX-License-Identifier: Apache-2.0
// The space of a small reservation, shared by streams that do what a test says, in an event loop that runs when a test
// says so.
#pragma once

#include <unistd.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/log.h"
#include "staging-servers/space/reservation_space.h"
#include "tests/support/faulty_device.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/storage/reservation_fixture.h"

namespace forebay::server {

inline constexpr std::uint64_t mib = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kib = std::uint64_t{1} << 10;

/// A journal that is as large as a test says.
class StatedJournal final : public JournalInRoom {
 public:
  std::uint64_t size_bytes() const override { return size; }
  std::uint64_t spare_bytes() const override { return spare; }
  std::uint64_t step_record_bytes(std::size_t) const override { return record; }
  bool is_worth_rolling(bool) const override { return size_rolled < size; }
  bool shrinks_with_drops() const override { return false; }
  bool roll() override {
    size = size_rolled;
    return true;
  }

  std::uint64_t size = 0;
  std::uint64_t spare = 0;
  std::uint64_t record = 4 * kib;
  std::uint64_t size_rolled = std::uint64_t{1} << 40;  ///< more than its size: not worth it
};

/// A stream that holds, waits for and gives what a test says.
class StatedStream final : public SpaceUser {
 public:
  StatedStream(ReservationSpace& space, std::uint64_t number) : space_(space), number_(number) {
    space_.segments().add(*this);
  }
  ~StatedStream() override { space_.segments().remove(*this); }
  StatedStream(const StatedStream&) = delete;
  StatedStream& operator=(const StatedStream&) = delete;

  Owner owner() const { return {number_, 1, 0}; }

  std::string path() const override { return "run1/stream" + std::to_string(number_); }
  const storage::StreamState& state() const override { return state_; }
  JournalInRoom& journal_in_room() override { return journal; }
  const JournalInRoom& journal_in_room() const override { return journal; }
  bool owns(const Owner& owner) const override { return lives && owner.stream == number_; }
  bool all_grants_known() const override { return false; }
  std::uint64_t granted_bytes() const override { return granted; }
  std::set<uid_t> writing_users() const override { return users; }
  void segment_misused(const std::string& what) override {
    misused.push_back(what);
    lives = false;
  }
  bool is_read_by_others_in(std::uint32_t, const std::set<uid_t>&) const override { return read_by_others; }
  void apply_retention() override { ++retention_applied; }
  bool drop_oldest() override {
    if (steps.empty()) return false;
    for (const Extent& extent : std::exchange(steps.back(), {})) space_.release(extent);
    steps.pop_back();
    return true;
  }
  bool drops_when_let_go() const override { return !steps.empty(); }
  std::uint64_t unsynced_bytes() const override { return 0; }
  void hurry_releases() override {}
  bool frees_with_sync() const override { return syncs; }
  bool may_free_space() const override { return may_free; }
  std::uint64_t bytes_that_commits_free() const override { return 0; }
  Result<void> note_owned(journal::SegmentsOwnedT owned) override {
    for (const std::uint32_t segment : owned.segments) state_.owners[segment] = {owned.incarnation, owned.rank};
    return {};
  }
  Result<void> note_left(journal::SegmentsLeftT) override { return {}; }
  void give_way(const Extent&) override {}
  bool writes_unsynced_in(std::uint32_t) const override { return false; }
  void fail_stream(const std::string&) override {}
  Holding holding() const override { return {}; }

  StatedJournal journal;
  bool lives = true;
  bool read_by_others = false;
  std::set<uid_t> users = {::geteuid()};
  std::vector<std::string> misused;
  bool syncs = false;
  bool may_free = false;
  std::uint64_t granted = 0;
  std::vector<std::vector<Extent>> steps;  ///< that may be dropped, the oldest last
  int retention_applied = 0;

 private:
  ReservationSpace& space_;
  const std::uint64_t number_;
  storage::StreamState state_;
};

/// Four segments of 1 MiB, and 1 MiB kept for journals.
class SpaceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    log::set_level(log::Level::error);
    auto loop = EventLoop::create();
    ASSERT_TRUE(loop) << loop.error().message();
    loop_ = std::move(*loop);
    auto store = storage::ReservationStore::open(device_, directory_.path());
    ASSERT_TRUE(store) << store.error().message();
    store_ = std::move(*store);
    const auto created = store_->create(record_);
    ASSERT_TRUE(created) << created.error().message();
    begin_space();
  }
  /// As a server that starts does.
  void begin_space() {
    space_.reset();
    space_ = std::make_unique<ReservationSpace>(*loop_, device_, *store_, record_);
  }
  /// Does what is posted, and what that posts in turn: the queue looks once more for each who gives up.
  void settle() {
    for (int round = 0; round < 8; ++round) {
      loop_->post([this] { loop_->stop(); });
      loop_->run();
    }
  }
  /// Space that the stream has, and that is not free until it is released.
  std::vector<Extent> fill(StatedStream& stream, std::uint64_t bytes) {
    auto extents = space_->allocate(stream, stream.owner(), bytes, WhenFull::error, SpacePlace());
    EXPECT_TRUE(extents);
    return extents.value_or(std::vector<Extent>());
  }
  void release(const std::vector<Extent>& extents) {
    for (const Extent& extent : extents) space_->release(extent);
  }

  forebay::testing::TemporaryDirectory directory_;
  forebay::testing::TemporaryDirectory limbo_;
  forebay::testing::FaultyDevice device_{limbo_.path()};
  const reservation::ReservationT record_ = storage::reservation_record();
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<storage::ReservationStore> store_;
  std::unique_ptr<ReservationSpace> space_;
};

}  // namespace forebay::server
