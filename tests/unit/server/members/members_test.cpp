// SPDX-License-Identifier: Apache-2.0
// What a member lets others do ends when the home says so, whoever holds on to a permit. See
// docs/design/many-servers.md.
#include <chrono>
#include <filesystem>
#include <optional>

#include "fabric/permit.h"
#include "staging-servers/members/sync_counters.h"
#include "staging-servers/reservations/reservation.h"
#include "staging-servers/reservations/reservation_table.h"
#include "tests/unit/server/members/two_servers.h"

namespace forebay::testing {
namespace {

using server::HomeMembers;

class MembersTest : public TwoServersTest {
 protected:
  /// A writer on another node, alone in its group, with a permit for what it was granted on the member.
  struct Writing {
    RawClient client;
    wire::MemberAnswerT place;
    std::vector<std::uint8_t> permit;
    std::string uuid;
  };

  /// Until the home has found the member.
  void wait_until_there() {
    ASSERT_TRUE(until([this] { return !is_away(); }));
  }

  Writing writing(const fabric::Token& token, const std::string& stream = "flow") {
    RawClient client = remote(0, token);
    const Message opened = client.call(MessageType::writer_open, writer_open(stream));
    EXPECT_EQ(opened.type, MessageType::writer_opened);
    auto place = introduced(client);
    wire::SpaceRequestT request;
    request.bytes = mib;
    const auto granted = RawClient::unpack<wire::SpaceGranted>(client.call(MessageType::space_request, request));
    EXPECT_EQ(granted->permits.size(), 1U);
    return {std::move(client), std::move(place), granted->permits.at(0)->permit,
            RawClient::unpack<wire::WriterOpened>(opened)->uuid};
  }

  /// As if the home had removed all streams, and had died before the member knew.
  void remove_streams_on_disk() {
    for (const auto& stream : std::filesystem::directory_iterator(streams_folder()))
      std::filesystem::remove_all(stream);
  }

  std::size_t fences_left() {
    std::size_t left = 0;
    at_home([&](HomeMembers& members) { left = members.fences_left(); });
    return left;
  }

  std::string streams_folder() const { return servers_[0].options.root + "/reservations/" + id_ + "/streams"; }

  void remove_stream() {
    wire::StreamRemoveT remove;
    remove.reservation = "res";
    remove.stream = "flow";
    remove.force = true;
    ASSERT_EQ(local(0).call(MessageType::stream_remove, remove).type, MessageType::done);
  }
};

TEST_F(MembersTest, a_permit_to_read_ends_with_the_users_share) {
  make_stream();
  share(other_user, Rights::read);
  RawClient reader = remote(0, introduction(other_user));
  open_to_read(reader);
  const auto place = introduced(reader);
  RawClient held = remote(1, token_in(place));
  ASSERT_EQ(show(held, place.permit).type, MessageType::member_opened);
  share(other_user, Rights::none);
  EXPECT_TRUE(becomes_void(place, place.permit));
  EXPECT_TRUE(held.ended());
}

TEST_F(MembersTest, a_right_that_is_taken_away_ends_no_writer_who_has_one) {
  share(other_user, Rights::read);
  Writing writer = writing(introduction(::geteuid()));
  RawClient held = remote(1, token_in(writer.place));
  ASSERT_EQ(show(held, writer.permit).type, MessageType::member_opened);
  RawClient reader = remote(0, introduction(other_user));
  open_to_read(reader);
  const auto place = introduced(reader);
  share(other_user, Rights::none);
  EXPECT_TRUE(becomes_void(place, place.permit));
  EXPECT_EQ(show(held, writer.permit).type, MessageType::member_opened);
  EXPECT_TRUE(is_good(writer.place, writer.permit));
}

TEST_F(MembersTest, a_permit_to_read_ends_with_the_token_and_others_stay) {
  make_stream();
  share(other_user, Rights::read);
  const std::string text = create_token(fabric::right_read);
  RawClient reader = remote(0, *fabric::parse_token(text, "the test"));
  open_to_read(reader);
  const auto place = introduced(reader);
  RawClient other = remote(0, introduction(other_user));
  open_to_read(other);
  const auto others_place = introduced(other);
  RawClient held = remote(1, token_in(place));
  ASSERT_EQ(show(held, place.permit).type, MessageType::member_opened);
  wire::TokenRevokeT revoke;
  revoke.token = text;
  ASSERT_EQ(local(0).call(MessageType::token_revoke, revoke).type, MessageType::done);
  EXPECT_TRUE(becomes_void(place, place.permit));
  EXPECT_TRUE(held.ended());
  EXPECT_TRUE(is_good(others_place, others_place.permit));
  // The same user with a right of its own gets another.
  RawClient again = remote(0, introduction(::geteuid()));
  open_to_read(again);
  const auto new_place = introduced(again);
  EXPECT_TRUE(is_good(new_place, new_place.permit));
}

TEST_F(MembersTest, a_permit_to_read_ends_with_the_run_of_its_home) {
  make_stream();
  RawClient reader = remote(0, introduction(::geteuid()));
  open_to_read(reader);
  const auto place = introduced(reader);
  ASSERT_TRUE(is_good(place, place.permit));
  // Whatever it had to tell the member may not have arrived.
  stop(0);
  start(0);
  EXPECT_TRUE(becomes_void(place, place.permit));
}

// crash-matrix: a reservation over several servers | the home, restarted when its clock has gone back | permits of its earlier runs are void, whether a member has seen them or not
TEST_F(MembersTest, permits_have_higher_numbers_than_those_of_a_run_whose_clock_was_ahead) {
  const auto number_given = [this] {
    RawClient reader = remote(0, introduction(::geteuid()));
    open_to_read(reader);
    const auto permit = fabric::unseal(introduced(reader).permit, key_);
    return permit ? permit->number : 0;
  };
  make_stream();
  const std::string folder = servers_[0].options.root + "/reservations/" + id_;
  const auto stored = server::load_sync_counters(posix_device(), folder, 2);
  ASSERT_TRUE(stored);
  EXPECT_LT(number_given(), stored->at(0));
  stop(0);
  const auto ahead = static_cast<std::uint64_t>(wall_clock_ns()) + std::uint64_t{3'600'000'000'000};
  ASSERT_TRUE(server::store_sync_counters(posix_device(), folder, std::vector<std::uint64_t>{ahead, stored->at(1)}));
  start(0);
  EXPECT_GE(number_given(), ahead);
}

TEST_F(MembersTest, a_permit_to_write_outlives_its_home_only_while_its_group_may_come_back) {
  Writing writer = writing(introduction(::geteuid()));
  stop(0);
  start(0);
  wait_until_there();
  EXPECT_TRUE(is_good(writer.place, writer.permit));
  remove_stream();
  EXPECT_TRUE(becomes_void(writer.place, writer.permit));
}

TEST_F(MembersTest, permits_of_a_stream_that_is_gone_end_with_the_run_of_their_home) {
  Writing writer = writing(introduction(::geteuid()));
  stop(0);
  remove_streams_on_disk();
  start(0);
  EXPECT_TRUE(becomes_void(writer.place, writer.permit));
}

TEST_F(MembersTest, a_permit_that_was_void_stays_so_when_its_stream_is_written_again) {
  Writing writer = writing(introduction(::geteuid()));
  ASSERT_TRUE(is_good(writer.place, writer.permit));
  RawClient home = remote(1, introduction(::geteuid(), true));
  wire::MemberFenceT fence;
  fence.reservation = id_;
  fence.below = static_cast<std::uint64_t>(wall_clock_ns());
  ASSERT_EQ(home.call(MessageType::member_fence, fence).type, MessageType::done);
  EXPECT_FALSE(is_good(writer.place, writer.permit));
  ++fence.below;
  fence.but.push_back(writer.uuid);
  ASSERT_EQ(home.call(MessageType::member_fence, fence).type, MessageType::done);
  EXPECT_FALSE(is_good(writer.place, writer.permit));
}

TEST_F(MembersTest, fences_for_a_member_that_is_away_are_bounded_and_void_all_the_same) {
  std::optional<Writing> gone = writing(introduction(::geteuid()), "gone");
  const auto place = gone->place;
  const auto permit = gone->permit;
  Writing living = writing(introduction(::geteuid()), "living");
  // It lives on, and cannot be reached.
  tell("127.0.0.1:" + free_port());
  ASSERT_TRUE(until([this] { return is_away(); }));
  gone.reset();
  ASSERT_TRUE(until([this] { return fences_left() > 0; }));
  std::int64_t took_ns = 0;
  at_home([&](HomeMembers& members) {
    const std::int64_t before_ns = monotonic_ns();
    for (int group = 0; group < 20'000; ++group) {
      const std::string stream = random_uuid();
      members.fence(stream, 1, 0, {});
      members.fence(stream, 1, 1, {});
      members.fence(stream, 1, std::nullopt, {});
    }
    for (uid_t user = 70'000; user < 90'000; ++user) members.fence_reader(user);
    took_ns = monotonic_ns() - before_ns;
    EXPECT_LT(members.fences_left(), 2100U);
  });
  EXPECT_LT(took_ns, 5'000'000'000);
  tell();
  wait_until_there();
  EXPECT_TRUE(until([this] { return fences_left() == 0; }));
  EXPECT_TRUE(becomes_void(place, permit));
  EXPECT_TRUE(is_good(living.place, living.permit));
}

}  // namespace
}  // namespace forebay::testing
