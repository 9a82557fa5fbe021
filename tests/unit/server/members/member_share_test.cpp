// SPDX-License-Identifier: Apache-2.0
// A server that has a share of a reservation whose home is elsewhere: what it lets whom do, and what ends that. The
// test is the home, and its clients.
#include <condition_variable>
#include <fstream>
#include <limits>
#include <mutex>

#include "base/checksum.h"
#include "fabric/permit.h"
#include "tests/unit/server/daemon/pool_fixture.h"

namespace forebay::testing {
namespace {

/// Writes to segments wait while they are held.
class HeldWrites final : public Device {
 public:
  void hold(bool held) {
    const std::lock_guard lock(mutex_);
    held_ = held;
    changed_.notify_all();
  }
  void await_held() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return waiting_; });
  }

  Result<std::unique_ptr<forebay::File>> open(const std::string& path, OpenMode mode) override {
    auto file = posix_device().open(path, mode);
    if (!file || path.find("/segments/") == std::string::npos) return file;
    return std::make_unique<File>(*this, std::move(*file));
  }
  std::unique_ptr<forebay::File> adopt(Descriptor descriptor) override {
    return posix_device().adopt(std::move(descriptor));
  }
  Result<void> rename(const std::string& from, const std::string& to) override {
    return posix_device().rename(from, to);
  }
  Result<void> remove(const std::string& path) override { return posix_device().remove(path); }
  Result<void> make_directory(const std::string& path, unsigned mode) override {
    return posix_device().make_directory(path, mode);
  }
  Result<std::vector<std::string>> list(const std::string& path) const override { return posix_device().list(path); }
  Result<void> sync_directory(const std::string& path) override { return posix_device().sync_directory(path); }

 private:
  class File final : public forebay::File {
   public:
    File(HeldWrites& owner, std::unique_ptr<forebay::File> file) : owner_(owner), file_(std::move(file)) {}
    Result<void> read_at(std::uint64_t offset, std::span<std::byte> bytes) const override {
      return file_->read_at(offset, bytes);
    }
    Result<void> write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
      owner_.wait();
      return file_->write_at(offset, bytes);
    }
    Result<void> allocate(std::uint64_t size) override { return file_->allocate(size); }
    Result<void> free_space(std::uint64_t offset, std::uint64_t length) override {
      return file_->free_space(offset, length);
    }
    Result<void> sync() override { return file_->sync(); }
    Result<std::uint64_t> size() const override { return file_->size(); }
    int descriptor() const noexcept override { return file_->descriptor(); }

   private:
    HeldWrites& owner_;
    const std::unique_ptr<forebay::File> file_;
  };

  void wait() {
    std::unique_lock lock(mutex_);
    waiting_ = held_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !held_; });
    waiting_ = false;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;     // guarded by mutex_
  bool waiting_ = false;  // guarded by mutex_
};

constexpr const char* group_stream = "01234567-89ab-cdef-0123-456789abcdef";

class MemberShareTest : public PoolFixture {
 protected:
  void SetUp() override {
    PoolFixture::SetUp();
    const auto made = make_spread("far", {random_uuid(), own_uuid()});
    id_ = made->id;
    first_ = made->members.at(0)->segments;
    end_ = first_ + made->members.at(1)->segments;
    segment_bytes_ = made->segment_bytes;
  }
  Device& device() override { return disk_; }

  std::unique_ptr<wire::MemberStateT> look(std::uint64_t syncs = 0) {
    wire::MemberLookT asked;
    asked.reservations.push_back(id_);
    asked.syncs.push_back(syncs);
    return RawClient::unpack<wire::MemberState>(connect().call(MessageType::member_look, asked));
  }

  /// To read.
  fabric::Permit permit(std::uint64_t number = 100) {
    fabric::Permit permit;
    permit.key_id = key_.id;
    permit.reservation_id = id_;
    permit.uid = ::geteuid();
    permit.member = 1;
    permit.server_run = look()->server_run;
    permit.number = number;
    return permit;
  }
  fabric::Permit to_write(std::uint64_t number, std::uint32_t incarnation = 1, std::uint32_t rank = 0) {
    fabric::Permit permit = this->permit(number);
    permit.stream = group_stream;
    permit.incarnation = incarnation;
    permit.rank = rank;
    permit.segments = {first_};
    return permit;
  }

  Message show(RawClient& client, const fabric::Permit& permit) {
    wire::MemberOpenT asked;
    asked.permit = fabric::seal(permit, key_);
    return client.call(MessageType::member_open, asked);
  }
  /// What a new connection that shows it is told; nothing if it is let in.
  std::optional<ErrorCode> refusal(const fabric::Permit& permit) {
    RawClient client = connect();
    const Message answer = show(client, permit);
    return answer.type == MessageType::member_opened ? std::nullopt : RawClient::failure(answer);
  }
  RawClient opened(const fabric::Permit& permit) {
    RawClient client = connect();
    EXPECT_EQ(show(client, permit).type, MessageType::member_opened);
    return client;
  }

  wire::MemberFenceT fence(std::uint64_t below, const std::string& of = {}, std::uint32_t incarnation = 0) {
    wire::MemberFenceT asked;
    asked.reservation = id_;
    asked.below = below;
    asked.stream = of;
    asked.incarnation = incarnation;
    return asked;
  }
  wire::MemberSyncT sync(std::uint64_t syncs_before = 0) {
    wire::MemberSyncT asked;
    asked.reservation = id_;
    asked.segments = {first_};
    asked.server_run = look()->server_run;
    asked.syncs_before = syncs_before;
    return asked;
  }
  wire::MemberChecksumT checksum(std::vector<wire::Extent> extents) {
    wire::MemberChecksumT asked;
    asked.reservation = id_;
    asked.extents = std::move(extents);
    return asked;
  }

  std::string id_;
  std::uint32_t first_ = 0;
  std::uint32_t end_ = 0;
  std::uint64_t segment_bytes_ = 0;
  HeldWrites disk_;
};

TEST_F(MemberShareTest, without_a_word_of_the_home_nobody_is_let_in) {
  fabric::Permit permit;
  permit.key_id = key_.id;
  permit.reservation_id = id_;
  permit.uid = ::geteuid();
  permit.member = 1;
  permit.server_run = 1;
  permit.number = 100;
  EXPECT_EQ(refusal(permit), ErrorCode::unavailable);
  permit.server_run = look()->server_run;
  EXPECT_EQ(refusal(permit), std::nullopt);
}

TEST_F(MemberShareTest, permits_for_others_and_of_other_runs_are_refused) {
  const fabric::Permit good = permit();
  EXPECT_EQ(refusal(good), std::nullopt);
  fabric::Permit other = good;
  other.reservation_id = random_uuid();
  EXPECT_EQ(refusal(other), ErrorCode::unavailable);
  other = good;
  other.member = 0;
  EXPECT_EQ(refusal(other), ErrorCode::permission_denied);
  other = good;
  other.uid += 1;
  EXPECT_EQ(refusal(other), ErrorCode::permission_denied);
  for (const std::uint64_t run : {good.server_run + 1, good.server_run - 1}) {
    other = good;
    other.server_run = run;
    EXPECT_EQ(refusal(other), ErrorCode::unavailable);
  }
  fabric::Permit writes = to_write(101);
  for (const std::uint32_t segment : {first_ - 1, end_, std::numeric_limits<std::uint32_t>::max()}) {
    writes.segments = {first_, segment};
    EXPECT_EQ(refusal(writes), ErrorCode::protocol) << segment;
  }
  RawClient stranger = connect();
  wire::MemberOpenT forged;
  forged.permit = fabric::seal(good, fabric::TokenKey::draw());
  EXPECT_EQ(RawClient::failure(stranger.call(MessageType::member_open, forged)), ErrorCode::permission_denied);
}

TEST_F(MemberShareTest, one_connection_is_for_one_rank_and_who_writes_does_not_read) {
  RawClient client = opened(to_write(100));
  EXPECT_EQ(RawClient::failure(client.call(MessageType::segments_get, wire::SegmentsGetT())),
            ErrorCode::permission_denied);
  EXPECT_EQ(show(client, to_write(101)).type, MessageType::member_opened);
  EXPECT_EQ(RawClient::failure(show(client, to_write(102, 1, 1))), ErrorCode::protocol);
  EXPECT_TRUE(client.ended());
}

TEST_F(MemberShareTest, a_rank_has_one_connection_however_often_it_shows_its_permit) {
  RawClient reader = opened(permit(100));
  RawClient other = opened(to_write(100, 1, 1));
  RawClient first = opened(to_write(100));
  RawClient second = opened(to_write(100));
  EXPECT_TRUE(first.ended());
  EXPECT_EQ(show(second, to_write(101)).type, MessageType::member_opened);
  EXPECT_EQ(show(other, to_write(101, 1, 1)).type, MessageType::member_opened);
  EXPECT_EQ(reader.call(MessageType::segments_get, wire::SegmentsGetT()).type, MessageType::segments_answer);
}

TEST_F(MemberShareTest, a_fence_ends_what_it_voids_and_lets_nobody_in_again) {
  RawClient home = connect();
  RawClient first = opened(to_write(100));
  RawClient second = opened(to_write(200));
  RawClient reader = opened(permit(100));
  wire::MemberFenceT rank = fence(150, group_stream, 1);
  rank.rank = 0;
  EXPECT_EQ(home.call(MessageType::member_fence, rank).type, MessageType::done);
  EXPECT_TRUE(first.ended());
  EXPECT_EQ(refusal(to_write(149)), ErrorCode::unavailable);
  EXPECT_EQ(refusal(to_write(149, 1, 1)), std::nullopt) << "another rank's";
  EXPECT_EQ(show(second, to_write(201)).type, MessageType::member_opened);
  // The whole group has ended: no number makes a permit of it good again.
  EXPECT_EQ(home.call(MessageType::member_fence, fence(250, group_stream, 1)).type, MessageType::done);
  EXPECT_TRUE(second.ended());
  EXPECT_EQ(refusal(to_write(300)), ErrorCode::unavailable);
  EXPECT_EQ(refusal(to_write(300, 2)), std::nullopt);
  // Somebody's rights have become less: permits of the access generation before are void, whoever has them.
  EXPECT_EQ(reader.call(MessageType::segments_get, wire::SegmentsGetT()).type, MessageType::segments_answer);
  wire::MemberFenceT readers = fence(400);
  readers.readers = true;
  EXPECT_EQ(home.call(MessageType::member_fence, readers).type, MessageType::done);
  EXPECT_TRUE(reader.ended());
  EXPECT_EQ(refusal(to_write(399, 2)), std::nullopt) << "who writes is fenced as a rank";
  EXPECT_EQ(refusal(permit(399)), ErrorCode::unavailable);
  EXPECT_EQ(refusal(permit(400)), std::nullopt);
}

TEST_F(MemberShareTest, a_fence_is_answered_when_no_write_is_under_way_any_more) {
  fabric::PoolClaims segments = claims();
  segments.uid = ::geteuid();
  segments.reservation_id = id_;
  segments.segments_only = true;
  RawClient writer = admitted(made_of(segments));
  ASSERT_EQ(show(writer, to_write(100)).type, MessageType::member_opened);
  auto path = data_path(writer, true);
  const std::vector<std::byte> bytes(4096, std::byte{7});
  disk_.hold(true);
  EXPECT_TRUE(path.write(first_, 0, bytes, wait_on));
  disk_.await_held();
  RawClient home = connect();
  const std::uint32_t request = home.send(MessageType::member_fence, fence(200));
  EXPECT_TRUE(writer.ended());
  EXPECT_FALSE(home.is_answered(request));
  disk_.hold(false);
  EXPECT_EQ(home.answer(request).type, MessageType::done);
}

TEST_F(MemberShareTest, who_maps_is_told_as_long_as_somebody_keeps_the_file_open) {
  fabric::Permit mapping = permit();
  mapping.presence = 7;
  std::vector<Descriptor> kept;
  {
    RawClient client = connect();
    Message answer = show(client, mapping);
    ASSERT_EQ(answer.type, MessageType::member_opened);
    ASSERT_EQ(answer.descriptors.size(), 1U);
    kept.push_back(std::move(answer.descriptors.front()));
    mapping.presence = 8;
    answer = show(client, mapping);
    ASSERT_EQ(answer.descriptors.size(), 1U);
    EXPECT_EQ(look()->shares.at(0)->presences, (std::vector<std::uint64_t>{7, 8}));
  }
  // Neither its connection nor this server counts, but the file alone.
  EXPECT_EQ(look()->shares.at(0)->presences, std::vector<std::uint64_t>{7});
  restart();
  EXPECT_EQ(look()->shares.at(0)->presences, std::vector<std::uint64_t>{7});
  kept.clear();
  EXPECT_TRUE(look()->shares.at(0)->presences.empty());
}

TEST_F(MemberShareTest, of_one_user_so_many_map_and_no_more) {
  fabric::Permit mapping = permit();
  RawClient client = connect();
  std::vector<Descriptor> kept;
  for (mapping.presence = 1; mapping.presence <= 256; ++mapping.presence) {
    Message answer = show(client, mapping);
    ASSERT_EQ(answer.descriptors.size(), 1U) << mapping.presence;
    kept.push_back(std::move(answer.descriptors.front()));
  }
  EXPECT_EQ(RawClient::failure(show(client, mapping)), ErrorCode::no_space);
  // Nor in another reservation: the server looks at each of these files once a second.
  fabric::Permit elsewhere = mapping;
  elsewhere.reservation_id = make_spread("further", {random_uuid(), own_uuid()})->id;
  RawClient other = connect();
  wire::MemberLookT asked;
  asked.reservations.push_back(elsewhere.reservation_id);
  asked.syncs.push_back(0);
  ASSERT_EQ(connect().call(MessageType::member_look, asked).type, MessageType::member_state);
  EXPECT_EQ(RawClient::failure(show(other, elsewhere)), ErrorCode::no_space);
  kept.pop_back();
  EXPECT_EQ(look()->shares.at(0)->presences.size(), 255U);
  EXPECT_EQ(show(client, mapping).type, MessageType::member_opened);
}

TEST_F(MemberShareTest, only_an_administrator_speaks_for_a_home) {
  fabric::PoolClaims user = claims();
  RawClient client = admitted(made_of(user));
  EXPECT_EQ(RawClient::failure(client.call(MessageType::member_fence, fence(1))), ErrorCode::permission_denied);
  user.administrator = true;
  user.serial = random_number();
  RawClient home = admitted(made_of(user));
  EXPECT_EQ(home.call(MessageType::member_fence, fence(1)).type, MessageType::done);
}

TEST_F(MemberShareTest, counters_rise_with_each_sync_and_outlive_the_server) {
  const auto syncs_of = [](const Message& answer) { return RawClient::unpack<wire::MemberSynced>(answer)->syncs; };
  RawClient home = connect();
  EXPECT_EQ(syncs_of(home.call(MessageType::member_sync, sync())), 1U);
  EXPECT_EQ(syncs_of(home.call(MessageType::member_sync, sync())), 2U);
  EXPECT_EQ(syncs_of(home.call(MessageType::member_sync, sync(40))), 41U);
  EXPECT_EQ(syncs_of(home.call(MessageType::member_sync, sync(7))), 42U);
  // What the home says is told again once it is stored.
  EXPECT_EQ(look(41)->shares.at(0)->home_syncs, 0U);
  EXPECT_TRUE(comes_true([this] { return look()->shares.at(0)->home_syncs == 41; }));
  restart();
  const auto state = look(3);
  EXPECT_EQ(state->shares.at(0)->syncs, 42U);
  EXPECT_EQ(state->shares.at(0)->home_syncs, 41U);
  // A home that has not looked since does not know what has become of the member.
  wire::MemberSyncT late = sync();
  late.server_run -= 1;
  EXPECT_EQ(RawClient::failure(connect().call(MessageType::member_sync, late)), ErrorCode::unavailable);
}

TEST_F(MemberShareTest, looks_that_do_not_say_what_is_stored_and_syncs_of_others_are_refused) {
  wire::MemberLookT asked;
  asked.reservations.push_back(id_);
  RawClient mute = connect();
  EXPECT_EQ(RawClient::failure(mute.call(MessageType::member_look, asked)), ErrorCode::protocol);
  EXPECT_TRUE(mute.ended());
  wire::MemberSyncT foreign = sync();
  foreign.segments = {first_ - 1};
  EXPECT_EQ(RawClient::failure(connect().call(MessageType::member_sync, foreign)), ErrorCode::protocol);
  wire::MemberSyncT last = sync(std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(RawClient::failure(connect().call(MessageType::member_sync, last)), ErrorCode::protocol);
  foreign.reservation = random_uuid();
  EXPECT_EQ(RawClient::failure(connect().call(MessageType::member_sync, foreign)), ErrorCode::not_found);
}

TEST_F(MemberShareTest, checksums_are_those_of_the_bytes_that_lie_there) {
  std::string path;
  in_loop([&](server::Server& server) { path = server.store().segment_path(id_, first_); });
  std::vector<std::byte> bytes(3 * mib / 2);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 31 >> 3);
  bytes.resize(std::min<std::size_t>(bytes.size(), segment_bytes_));
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  const std::span<const std::byte> whole(bytes);
  auto answer = RawClient::unpack<wire::MemberChecksummed>(
      connect().call(MessageType::member_checksum,
                     checksum({wire::Extent(first_, 1, 0, 0, bytes.size()), wire::Extent(first_, 1, 0, 4096, 77)})));
  EXPECT_EQ(answer->checksums, std::vector({crc32c(whole), crc32c(whole.subspan(4096, 77))}));
  EXPECT_TRUE(answer->unreadable.empty());
  ASSERT_EQ(::truncate(path.c_str(), 4096), 0);
  answer = RawClient::unpack<wire::MemberChecksummed>(
      connect().call(MessageType::member_checksum,
                     checksum({wire::Extent(first_, 1, 0, 4096, 77), wire::Extent(first_, 1, 0, 0, 4096)})));
  EXPECT_EQ(answer->checksums, std::vector({std::uint32_t{0}, crc32c(whole.first(4096))}));
  EXPECT_EQ(answer->unreadable, std::vector({std::uint32_t{0}}));
}

TEST_F(MemberShareTest, checksums_of_what_it_does_not_have_or_of_too_much_are_refused) {
  const auto refused = [this](std::vector<wire::Extent> extents) {
    RawClient home = connect();
    return RawClient::failure(home.call(MessageType::member_checksum, checksum(std::move(extents))));
  };
  EXPECT_EQ(refused({}), ErrorCode::protocol);
  EXPECT_EQ(refused({wire::Extent(first_ - 1, 1, 0, 0, 64)}), ErrorCode::protocol);
  EXPECT_EQ(refused({wire::Extent(end_, 1, 0, 0, 64)}), ErrorCode::protocol);
  EXPECT_EQ(refused({wire::Extent(first_, 0, 0, 0, 64)}), ErrorCode::protocol);
  EXPECT_EQ(refused({wire::Extent(first_, 1, 0, 0, 0)}), ErrorCode::protocol);
  EXPECT_EQ(refused({wire::Extent(first_, 1, 0, segment_bytes_ - 63, 64)}), ErrorCode::protocol);
  EXPECT_EQ(refused({wire::Extent(first_, 1, 0, std::numeric_limits<std::uint64_t>::max() - 8, 64)}),
            ErrorCode::protocol);
  EXPECT_EQ(refused(std::vector(4097, wire::Extent(first_, 1, 0, 0, 64))), ErrorCode::protocol);
  const std::size_t too_many = (std::uint64_t{64} << 20) / segment_bytes_ + 1;
  EXPECT_EQ(refused(std::vector(too_many, wire::Extent(first_, 1, 0, 0, segment_bytes_))), ErrorCode::protocol);
  EXPECT_EQ(refused({wire::Extent(first_, 1, 0, 0, 64)}), std::nullopt);
}

class SilentHomeTest : public MemberShareTest {
 protected:
  SilentHomeTest() { options_.member_silence_ms = 500; }
};

TEST_F(SilentHomeTest, a_home_that_says_nothing_for_too_long_ends_all_connections) {
  std::optional<RawClient> reader;
  // On a busy machine the time may be over already.
  EXPECT_TRUE(comes_true([&] {
    reader.emplace(connect());
    return show(*reader, permit()).type == MessageType::member_opened;
  }));
  const fabric::Permit later = permit(101);
  EXPECT_TRUE(reader->ended());
  EXPECT_EQ(refusal(later), ErrorCode::unavailable);
}

}  // namespace
}  // namespace forebay::testing
