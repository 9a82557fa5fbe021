// SPDX-License-Identifier: Apache-2.0
#include "storage/files_access.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "storage/access_list.h"
#include "storage/files_shares.h"
#include "tests/unit/storage/reservation_fixture.h"

namespace forebay::storage {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t all = std::numeric_limits<std::size_t>::max();
constexpr std::uint32_t mark = 2'000'000'017;
constexpr std::uint32_t owner = 64'321;
constexpr std::uint32_t guest = 64'322;
constexpr std::uint32_t other = 64'323;

void add_share(reservation::ReservationT& record, Share::Kind kind, std::uint32_t id, Rights rights) {
  auto share = std::make_unique<reservation::ShareT>();
  share->kind = static_cast<std::uint8_t>(kind);
  share->id = id;
  share->rights = static_cast<std::uint8_t>(rights);
  record.shares.push_back(std::move(share));
}

reservation::ReservationT record_of_owner() {
  auto record = reservation_record();
  record.owner_uid = owner;
  record.owner_gid = owner;
  record.files_group = mark;
  return record;
}

class FilesAccessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root makes files of others";
    if (!AccessList::supported(files()).value_or(false)) GTEST_SKIP() << "no access lists here";
    ASSERT_EQ(::chown(files().c_str(), owner, owner), 0);
    ASSERT_EQ(::chmod(files().c_str(), 0770), 0);
    ASSERT_TRUE(set_files_access(record_, files()));
  }

  const std::string& files() const { return folder_.path(); }
  std::string make_folder(const std::string& name, std::uint32_t user) const {
    const std::string path = files() + "/" + name;
    EXPECT_TRUE(fs::create_directory(path));
    EXPECT_EQ(::chown(path.c_str(), user, user), 0);
    return path;
  }
  static std::optional<AccessList> list_of(const std::string& path, AccessList::Kind kind = AccessList::Kind::access) {
    const Descriptor opened(::open(path.c_str(), O_PATH | O_CLOEXEC));
    return AccessList::read(opened.get(), kind).value();
  }

  testing::TemporaryDirectory folder_ = testing::TemporaryDirectory::in_memory();
  reservation::ReservationT record_ = record_of_owner();
};

TEST_F(FilesAccessTest, an_empty_files_carries_the_mark_and_hands_it_down) {
  const auto by_default = list_of(files(), AccessList::Kind::by_default);
  ASSERT_TRUE(by_default);
  EXPECT_EQ(by_default->groups.at(mark), 0);
  EXPECT_EQ(by_default->other, 0);
  const auto made = list_of(make_folder("made", guest));
  ASSERT_TRUE(made);
  EXPECT_EQ(made->groups.at(mark), 0);
}

/// Others' are many; in whatever order the folder tells of them, the owner's comes before any.
TEST_F(FilesAccessTest, folders_of_the_owner_are_closed_before_those_of_others) {
  for (int number = 0; number < 20; ++number) make_folder("before" + std::to_string(number), guest);
  const std::string owners = make_folder("owners", owner);
  for (int number = 0; number < 20; ++number) make_folder("after" + std::to_string(number), guest);
  add_share(record_, Share::Kind::user, other, Rights::read);
  auto pass = FilesAccessPass::of_shares(record_, files());
  ASSERT_TRUE(pass);
  while (!list_of(owners)->users.contains(other)) ASSERT_FALSE((*pass)->advance(1));
  for (const char* name : {"before0", "before19", "after0", "after19"})
    EXPECT_FALSE(list_of(files() + "/" + name)->users.contains(other)) << name;
  while (!(*pass)->advance(1)) {
  }
  for (const char* name : {"before0", "before19", "after0", "after19"})
    EXPECT_TRUE(list_of(files() + "/" + name)->users.contains(other)) << name;
  EXPECT_EQ((*pass)->report().unfinished, 0U);
  EXPECT_EQ((*pass)->report().untouched, 0U);
}

TEST_F(FilesAccessTest, a_pass_after_a_pass_changes_nothing) {
  make_folder("folder", owner);
  write_text(files() + "/folder/file", "x");
  add_share(record_, Share::Kind::user, guest, Rights::write);
  add_share(record_, Share::Kind::group, other, Rights::read);
  for (const bool changes : {true, false}) {
    auto pass = FilesAccessPass::of_shares(record_, files());
    ASSERT_TRUE(pass);
    EXPECT_TRUE((*pass)->advance(all));
    EXPECT_EQ((*pass)->report().changed > 0, changes);
  }
}

TEST_F(FilesAccessTest, the_mask_of_what_was_made_stays) {
  write_text(files() + "/file", "x");
  ASSERT_EQ(::chmod((files() + "/file").c_str(), 0640), 0);
  add_share(record_, Share::Kind::user, guest, Rights::write);
  ASSERT_TRUE(set_files_access(record_, files()));
  const auto list = list_of(files() + "/file");
  ASSERT_TRUE(list);
  EXPECT_EQ(list->mask, 4);
  EXPECT_EQ(list->users.at(guest), 7);
}

TEST_F(FilesAccessTest, adoption_gives_no_more_than_the_group_has) {
  write_text(folder_.path("file"), "x");
  ASSERT_EQ(::removexattr(folder_.path("file").c_str(), "system.posix_acl_access"), 0);
  ASSERT_EQ(::chown(folder_.path("file").c_str(), owner, owner), 0);
  ASSERT_EQ(::chmod(folder_.path("file").c_str(), 0640), 0);
  add_share(record_, Share::Kind::user, guest, Rights::write);
  auto pass = FilesAccessPass::of_adoption(record_, files(), "file");
  ASSERT_TRUE(pass);
  EXPECT_TRUE((*pass)->advance(all));
  const auto list = list_of(files() + "/file");
  ASSERT_TRUE(list);
  EXPECT_EQ(list->mask, 4);
  EXPECT_EQ(list->groups.at(mark), 0);
  EXPECT_EQ(list->users.at(guest), 7);
}

TEST(FilesShares, what_is_taken_becomes_less_and_never_more) {
  auto record = record_of_owner();
  add_share(record, Share::Kind::user, guest, Rights::none);
  add_share(record, Share::Kind::group, other, Rights::read);
  const FilesShares shares(record);
  struct stat status{};
  status.st_uid = owner;
  status.st_gid = other;
  status.st_mode = S_IFREG | 0666;
  AccessList list = shares.taken(AccessList::of_mode(status.st_mode), status);
  EXPECT_EQ(list.group, 4);
  EXPECT_EQ(list.users.at(guest), 0);
  EXPECT_EQ(list.mask, 6);
  EXPECT_EQ(list.other, 6);
  // Nobody but the owner may do anything: nothing is added.
  status.st_mode = S_IFREG | 0600;
  EXPECT_EQ(shares.taken(AccessList::of_mode(status.st_mode), status), AccessList::of_mode(status.st_mode));
  // By a group that guest may be in.
  list = AccessList::of_mode(0640);
  EXPECT_EQ(shares.taken(list, status).users.at(guest), 0);
  list = AccessList::of_mode(0600);
  list.groups[7777] = 6;
  EXPECT_EQ(shares.taken(list, status).users.at(guest), 0);
}

TEST(GroupRange, takes_a_range_of_groups_and_nothing_else) {
  EXPECT_EQ(GroupRange::parse("5000-6999")->last, 6999U);
  for (const char* text : {"", "5", "5000", "5000-", "-5000", "0-5000", "6000-5000", "5000-5001", "5000-4294967295",
                           "5000-6999 ", "a-b", "5000-69999999999"}) {
    EXPECT_FALSE(GroupRange::parse(text)) << text;
  }
}

TEST(GroupRange, stays_within_the_groups_of_a_user_namespace) {
  const auto whole = GroupRange::usual_in("         0          0 4294967295\n");
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->first, GroupRange().first);
  EXPECT_EQ(whole->last, GroupRange().last);
  // A container without root.
  const auto some = GroupRange::usual_in("0 1000 1\n1 100000 65536\n");
  ASSERT_TRUE(some);
  EXPECT_EQ(some->last, 65536U);
  EXPECT_EQ(some->first, 65536U - 1023);
  EXPECT_FALSE(GroupRange::usual_in("0 1000 1\n"));
  EXPECT_FALSE(GroupRange::usual_in(""));
}

}  // namespace
}  // namespace forebay::storage
