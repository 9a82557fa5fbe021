// SPDX-License-Identifier: Apache-2.0
// A home and what it believes of its other members: those answer as the test has them answer.
#include <atomic>
#include <chrono>
#include <future>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "members/sync_counters.h"
#include "tests/unit/server/daemon/pool_fixture.h"
#include "tests/unit/server/members/fake_member.h"

namespace forebay::testing {
namespace {

using Synced = Result<std::map<std::uint16_t, server::SyncedMember>>;
using Checksummed = Result<std::vector<std::optional<std::uint32_t>>>;

constexpr std::uint64_t storage = 7;

class HomeMembersTest : public PoolFixture {
 protected:
  void SetUp() override {
    PoolFixture::SetUp();
    std::vector<std::string> roots = {own_uuid()};
    for (int number = 1; number <= 2; ++number) {
      auto entry = std::make_unique<wire::ServerEntryT>();
      entry->uuid = random_uuid();
      members_.push_back(std::make_unique<FakeMember>(key_, entry->uuid));
      entry->name = "ssd" + std::to_string(number);
      entry->server = members_.back()->address();
      roots.push_back(entry->uuid);
      directory_.servers.push_back(std::move(entry));
      syncs_.push_back(std::make_shared<std::atomic<std::uint64_t>>(0));
      answer_looks(number);
      answer_syncs(number);
      members_.back()->on(MessageType::member_fence,
                          [](const Message&) { return FakeMember::answer(MessageType::done, wire::DoneT()); });
    }
    ASSERT_EQ(connect().call(MessageType::pool_directory, directory_).type, MessageType::done);
    id_ = make_spread("spread", roots)->id;
    EXPECT_TRUE(comes_there(1));
    EXPECT_TRUE(comes_there(2));
  }
  void TearDown() override {
    PoolFixture::TearDown();
    members_.clear();
  }

  FakeMember& member(int number) { return *members_.at(static_cast<std::size_t>(number - 1)); }
  std::atomic<std::uint64_t>& syncs(int number) { return *syncs_.at(static_cast<std::size_t>(number - 1)); }

  /// As a member that has what it should have, but for what `change` does.
  void answer_looks(int number, std::function<void(wire::MemberStateT&)> change = [](wire::MemberStateT&) {}) {
    member(number).on(MessageType::member_look, [&own = syncs(number), change](const Message& message) {
      const auto asked = RawClient::unpack<wire::MemberLook>(message);
      wire::MemberStateT state;
      state.storage_incarnation = storage;
      state.server_run = 3;
      auto share = std::make_unique<wire::MemberShareStateT>();
      share->reservation = asked->reservations.at(0);
      share->syncs = own;
      share->home_syncs = asked->syncs.at(0);
      state.shares.push_back(std::move(share));
      change(state);
      return FakeMember::answer(MessageType::member_state, state);
    });
  }
  void answer_syncs(int number, std::uint64_t incarnation = storage) {
    member(number).on(MessageType::member_sync, [&own = syncs(number), incarnation](const Message& message) {
      const auto asked = RawClient::unpack<wire::MemberSync>(message);
      wire::MemberSyncedT answer;
      answer.storage_incarnation = incarnation;
      answer.syncs = own = std::max<std::uint64_t>(own, asked->syncs_before) + 1;
      return FakeMember::answer(MessageType::member_synced, answer);
    });
  }

  void with_others(const std::function<void(server::HomeMembers&, server::Segments&)>& task) {
    in_loop([&](server::Server& server) {
      auto& reservation = *server.reservations().all().at("spread");
      task(*reservation.other_members(), reservation.space().segments());
    });
  }
  /// Why it is not there; empty: it is.
  std::string absence(int number) {
    std::string text;
    with_others([&](server::HomeMembers& others, server::Segments&) {
      const std::string* const absence = others.absence(static_cast<std::uint16_t>(number));
      if (absence != nullptr) text = *absence;
    });
    return text;
  }
  bool comes_there(int number) {
    return comes_true([&] { return absence(number).empty(); });
  }
  bool comes_absent(int number, const std::string& words) {
    return comes_true([&] { return absence(number).find(words) != std::string::npos; });
  }
  /// The first of its segments.
  std::uint32_t segment_of(int number) {
    std::uint32_t first = 0;
    with_others([&](server::HomeMembers&, const server::Segments& segments) {
      first = segments.layout().segments_of(static_cast<std::uint16_t>(number)).first;
    });
    return first;
  }
  std::future<Synced> sync(const std::set<std::uint32_t>& segments) {
    const auto promise = std::make_shared<std::promise<Synced>>();
    with_others([&](server::HomeMembers& others, server::Segments&) {
      others.sync(segments, [promise](Synced synced) { promise->set_value(std::move(synced)); });
    });
    return promise->get_future();
  }
  Checksummed checksums(int number, const std::vector<server::Extent>& extents) {
    const auto promise = std::make_shared<std::promise<Checksummed>>();
    with_others([&](server::HomeMembers& others, server::Segments&) {
      others.checksum(static_cast<std::uint16_t>(number), extents,
                      [promise](Checksummed found) { promise->set_value(std::move(found)); });
    });
    return promise->get_future().get();
  }
  std::vector<std::uint64_t> stored() {
    const auto counters =
        server::load_sync_counters(posix_device(), options_.root + "/reservations/" + id_, members_.size() + 1);
    EXPECT_TRUE(counters);
    auto others = counters.value_or(std::vector<std::uint64_t>());
    // The home's own line is about permits.
    if (!others.empty()) others.erase(others.begin());
    return others;
  }
  /// Once a journal says so, the file does soon.
  void record(const std::map<std::uint16_t, std::uint64_t>& syncs, const std::vector<std::uint64_t>& expected) {
    with_others([&](server::HomeMembers& others, server::Segments&) { others.syncs_recorded(syncs); });
    EXPECT_TRUE(comes_true([&] { return stored() == expected; }));
  }
  void open_is_refused(const std::string& words) {
    wire::ReaderOpenT asked = reader_open();
    asked.reservation = "spread";
    const Message answer = connect().call(MessageType::reader_open, asked);
    ASSERT_EQ(answer.type, MessageType::failure);
    EXPECT_NE(protocol::failure_of(answer).what.find(words), std::string::npos) << protocol::failure_of(answer).what;
  }

  wire::PoolDirectoryT directory_;
  std::vector<std::unique_ptr<FakeMember>> members_;
  std::vector<std::shared_ptr<std::atomic<std::uint64_t>>> syncs_;
  std::string id_;
};

TEST_F(HomeMembersTest, syncs_are_done_when_the_last_member_has_answered_in_whatever_order) {
  std::promise<void> second_answered;
  std::promise<void> first_may_answer;
  member(1).on(MessageType::member_sync, [may = first_may_answer.get_future().share()](const Message&) {
    may.wait();
    wire::MemberSyncedT answer;
    answer.storage_incarnation = storage;
    answer.syncs = 5;
    return FakeMember::answer(MessageType::member_synced, answer);
  });
  member(2).on(MessageType::member_sync, [&second_answered](const Message&) {
    second_answered.set_value();
    wire::MemberSyncedT answer;
    answer.storage_incarnation = storage + 1;
    answer.syncs = 9;
    return FakeMember::answer(MessageType::member_synced, answer);
  });
  syncs(1) = 5;
  syncs(2) = 9;
  auto both = sync({segment_of(1), segment_of(2)});
  second_answered.get_future().wait();
  EXPECT_NE(both.wait_for(std::chrono::milliseconds(0)), std::future_status::ready);
  first_may_answer.set_value();
  // Each with the storage that it has synced: whoever wrote on another one has lost what it wrote.
  EXPECT_EQ(both.get(), (std::map<std::uint16_t, server::SyncedMember>{{1, {storage, 5}}, {2, {storage + 1, 9}}}));
  record({{1, 5}, {2, 9}}, {5, 9});
}

TEST_F(HomeMembersTest, what_one_member_cannot_sync_is_synced_by_none) {
  member(2).on(MessageType::member_sync, [](const Message&) {
    wire::FailureT failure;
    failure.code = static_cast<std::uint8_t>(ErrorCode::io_error);
    failure.what = "the disk is bad";
    return FakeMember::answer(MessageType::failure, failure);
  });
  const Synced synced = sync({segment_of(1), segment_of(2)}).get();
  ASSERT_FALSE(synced);
  EXPECT_EQ(synced.error().code, ErrorCode::io_error);
  EXPECT_EQ(stored(), std::vector<std::uint64_t>(2)) << "nobody was told that anything is durable";
  EXPECT_TRUE(sync({segment_of(1)}).get());
}

TEST_F(HomeMembersTest, looks_that_are_answered_with_nonsense_make_a_member_absent) {
  answer_looks(1, [](wire::MemberStateT& state) { state.shares.clear(); });
  EXPECT_TRUE(comes_absent(1, "is away since"));
  answer_looks(1);
  EXPECT_TRUE(comes_there(1));
  answer_looks(1, [](wire::MemberStateT& state) {
    state.shares.push_back(std::make_unique<wire::MemberShareStateT>(*state.shares.front()));
  });
  EXPECT_TRUE(comes_absent(1, "is away since"));
  answer_looks(1);
  EXPECT_TRUE(comes_there(1));
  answer_looks(1, [](wire::MemberStateT& state) { state.shares.front()->missing = true; });
  EXPECT_TRUE(comes_absent(1, "is away since"));
  answer_looks(1);
  EXPECT_TRUE(comes_there(1));
  // Offsets and lengths that lie.
  member(1).on(MessageType::member_look, [](const Message&) {
    return FakeMember::Answer{MessageType::member_state, std::vector<std::uint8_t>(64, 0xfe)};
  });
  EXPECT_TRUE(comes_absent(1, "is away since"));
  EXPECT_EQ(absence(2), "");
}

TEST_F(HomeMembersTest, a_member_says_nothing_of_segments_that_it_does_not_have) {
  const std::uint32_t own = segment_of(1);
  const std::uint32_t others = segment_of(2);
  answer_looks(1, [own, others](wire::MemberStateT& state) {
    state.shares.front()->damaged = {0, others, own, std::numeric_limits<std::uint32_t>::max()};
  });
  EXPECT_TRUE(comes_true([&] {
    std::set<std::uint32_t> damaged;
    with_others([&](server::HomeMembers&, const server::Segments& segments) {
      for (const auto& [segment, what] : segments.damaged()) damaged.insert(segment);
    });
    return damaged == std::set<std::uint32_t>{own};
  }));
}

TEST_F(HomeMembersTest, a_member_below_what_it_has_synced_is_checked_and_counts_anew) {
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(sync({segment_of(1)}).get());
  record({{1, 3}}, {3, 0});
  std::promise<void> may_be_current;
  std::promise<std::uint64_t> before;
  member(1).on(MessageType::member_sync,
               [this, &before, may = may_be_current.get_future().share()](const Message& message) {
                 const auto asked = RawClient::unpack<wire::MemberSync>(message);
                 before.set_value(asked->syncs_before);
                 may.wait();
                 wire::MemberSyncedT answer;
                 answer.storage_incarnation = storage;
                 answer.syncs = syncs(1) = asked->syncs_before + 1;
                 return FakeMember::answer(MessageType::member_synced, answer);
               });
  syncs(1) = 2;
  EXPECT_EQ(before.get_future().get(), 3U);
  EXPECT_NE(absence(1).find("has an older copy of its segments than it has synced (2 of 3 syncs)"), std::string::npos);
  const Synced refused = sync({segment_of(1)}).get();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unavailable);
  may_be_current.set_value();
  EXPECT_TRUE(comes_there(1));
  EXPECT_TRUE(comes_true([this] { return stored() == std::vector<std::uint64_t>{4, 0}; }));
  // Answers that did not arrive make a member's counter greater than what its home has stored.
  syncs(1) = 20;
  answer_syncs(1);
  EXPECT_TRUE(sync({segment_of(1)}).get());
  EXPECT_EQ(absence(1), "");
  record({{1, 21}}, {21, 0});
}

TEST_F(HomeMembersTest, a_home_that_has_stored_less_than_a_member_knows_serves_nothing) {
  EXPECT_TRUE(sync({segment_of(2)}).get());
  record({{2, 1}}, {0, 1});
  answer_looks(2, [](wire::MemberStateT& state) { state.shares.front()->home_syncs = 2; });
  EXPECT_TRUE(comes_absent(2, "it serves nothing: this server, its home, has an older copy"));
  EXPECT_TRUE(comes_absent(1, "it serves nothing"));
  open_is_refused("server ssd2 knows of 2 syncs, the copy of 1");
  EXPECT_FALSE(sync({segment_of(1)}).get());
}

TEST_F(HomeMembersTest, a_probe_is_sent_after_the_fences_that_wait) {
  struct Seen {
    std::mutex mutex;
    std::vector<std::string> messages;  // guarded by mutex
    void note(const std::string& message) {
      const std::lock_guard lock(mutex);
      messages.push_back(message);
    }
  };
  const auto seen = std::make_shared<Seen>();  // outlives this function, as the member does
  member(1).on(MessageType::member_fence, [seen](const Message& message) {
    const std::string stream = RawClient::unpack<wire::MemberFence>(message)->stream;
    if (!stream.empty()) seen->note("fence of " + stream);
    return FakeMember::answer(MessageType::done, wire::DoneT());
  });
  member(1).on(MessageType::member_probe, [seen](const Message& message) {
    seen->note("probe");
    wire::MemberProbedT answer;
    answer.segments = RawClient::unpack<wire::MemberProbe>(message)->segments;
    return FakeMember::answer(MessageType::member_probed, answer);
  });
  const std::uint32_t segment = segment_of(1);
  with_others([&](server::HomeMembers& others, server::Segments&) {
    // The second one of a kind waits for the first.
    for (int i = 0; i < 2; ++i) others.fence("flow", 1, 0, {});
    EXPECT_FALSE(others.nobody_writes(segment));
  });
  EXPECT_TRUE(comes_true([&] {
    bool is_unwritten = false;
    with_others([&](server::HomeMembers& others, server::Segments&) { is_unwritten = others.nobody_writes(segment); });
    return is_unwritten;
  }));
  const std::lock_guard lock(seen->mutex);
  EXPECT_EQ(seen->messages, (std::vector<std::string>{"fence of flow", "fence of flow", "probe"}));
}

TEST_F(HomeMembersTest, readers_on_a_server_that_was_given_up_are_gone) {
  constexpr std::uint64_t presence = 77;
  const auto is_gone = [&](std::uint16_t number) {
    bool gone = false;
    with_others([&](server::HomeMembers& others, server::Segments&) { gone = others.is_gone(number, presence, 0); });
    return gone;
  };
  for (const int number : {1, 2}) {
    answer_looks(number, [presence](wire::MemberStateT& state) { state.shares[0]->presences.push_back(presence); });
    EXPECT_TRUE(comes_true([&] { return !is_gone(static_cast<std::uint16_t>(number)); }));
  }
  directory_.servers.erase(directory_.servers.begin());
  ASSERT_EQ(connect().call(MessageType::pool_directory, directory_).type, MessageType::done);
  EXPECT_TRUE(is_gone(1));
  EXPECT_FALSE(is_gone(2));
}

TEST_F(HomeMembersTest, checksums_are_asked_for_in_bounded_messages_and_joined) {
  std::vector<std::size_t> asked_for;
  member(1).on(MessageType::member_checksum, [&asked_for](const Message& message) {
    const auto asked = RawClient::unpack<wire::MemberChecksum>(message);
    wire::MemberChecksummedT answer;
    asked_for.push_back(asked->extents.size());
    answer.checksums.assign(asked->extents.size(), 17);
    if (asked_for.size() == 2) answer.unreadable = {1, 4000};
    return FakeMember::answer(MessageType::member_checksummed, answer);
  });
  const std::uint32_t segment = segment_of(1);
  const Checksummed found = checksums(1, std::vector<server::Extent>(4100, {segment, 0, 64}));
  ASSERT_TRUE(found);
  EXPECT_EQ(asked_for, (std::vector<std::size_t>{4096, 4}));
  EXPECT_EQ(found->at(0), 17U);
  EXPECT_EQ(found->at(4097), std::nullopt);
  EXPECT_EQ(found->at(4099), 17U);
}

TEST_F(HomeMembersTest, checksums_of_something_else_than_was_asked_for_are_refused) {
  for (const std::size_t count : {0, 1, 3}) {
    member(1).on(MessageType::member_checksum, [count](const Message&) {
      wire::MemberChecksummedT answer;
      answer.checksums.assign(count, 17);
      return FakeMember::answer(MessageType::member_checksummed, answer);
    });
    const Checksummed found = checksums(1, std::vector<server::Extent>(2, {segment_of(1), 0, 64}));
    ASSERT_FALSE(found) << count;
    EXPECT_EQ(found.error().code, ErrorCode::protocol);
  }
}

}  // namespace
}  // namespace forebay::testing
