// SPDX-License-Identifier: Apache-2.0
// Names that lead elsewhere: links, `..`, mounts, at each place of a path.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "mover/name_walk.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/mover/circumstances.h"

namespace forebay::mover {
namespace {

class Opening : public ::testing::Test {
 protected:
  Opening() {
    std::filesystem::create_directories(directory_.path("top/a/b"));
    std::filesystem::create_directories(directory_.path("elsewhere"));
    const Descriptor file(::open(directory_.path("elsewhere/private").c_str(), O_WRONLY | O_CREAT, 0600));
    std::filesystem::create_directory_symlink(directory_.path("elsewhere"), directory_.path("top/link"));
    std::filesystem::create_symlink(directory_.path("elsewhere/private"), directory_.path("top/a/leaf"));
    top_ = Descriptor(::open(directory_.path("top").c_str(), O_RDONLY | O_DIRECTORY));
  }
  int error_of(const std::string& path, int flags = O_RDONLY) {
    errno = 0;
    return open_below(top_.get(), path, flags, Mounts::refused).valid() ? 0 : errno;
  }
  Result<NameWalk> confined() {
    auto walk = NameWalk::from_top({.any = true});
    EXPECT_TRUE(walk);
    EXPECT_TRUE(walk->enter(directory_.path("top")));
    walk->confine({.none = true});
    return walk;
  }

  testing::TemporaryDirectory directory_;
  Descriptor top_;
};

TEST_F(Opening, open_below_opens_what_lies_below) {
  EXPECT_EQ(error_of("a/b"), 0);
  EXPECT_EQ(error_of("."), 0);
  EXPECT_EQ(uses_openat2(), !calls_are_refused());
}

TEST_F(Opening, open_below_follows_no_link_and_no_dots) {
  EXPECT_EQ(error_of("link"), ELOOP);
  EXPECT_NE(error_of("link/private"), 0);
  EXPECT_EQ(error_of("a/leaf"), ELOOP);
  EXPECT_EQ(error_of("../elsewhere/private"), EXDEV);
  EXPECT_NE(error_of("a/../../elsewhere/private"), 0);
  EXPECT_NE(error_of("/etc/passwd"), 0);
}

TEST_F(Opening, open_below_does_not_wait_for_a_fifo) {
  ASSERT_EQ(::mkfifo(directory_.path("top/pipe").c_str(), 0600), 0);
  EXPECT_EQ(error_of("pipe"), 0);
  EXPECT_EQ(error_of("pipe", O_WRONLY), ENXIO);
}

TEST_F(Opening, open_below_crosses_no_mount) {
  // Other file systems that are there on each machine.
  const Descriptor root(::open("/", O_RDONLY | O_DIRECTORY));
  EXPECT_FALSE(open_below(root.get(), "proc", O_RDONLY | O_DIRECTORY, Mounts::refused).valid());
  EXPECT_EQ(errno, EXDEV);
  EXPECT_FALSE(open_below(root.get(), "proc/self", O_PATH, Mounts::refused).valid());
  EXPECT_TRUE(open_below(root.get(), "proc/1", O_RDONLY | O_DIRECTORY, Mounts::crossed).valid());
}

TEST_F(Opening, a_path_longer_than_the_kernel_takes_is_opened_in_pieces) {
  const std::string name(200, 'n');
  std::string path;
  Descriptor at(::fcntl(top_.get(), F_DUPFD_CLOEXEC, 0));
  for (int level = 0; level < 50; ++level) {
    ASSERT_EQ(::mkdirat(at.get(), name.c_str(), 0700), 0);
    at = Descriptor(::openat(at.get(), name.c_str(), O_RDONLY | O_DIRECTORY));
    path += (path.empty() ? "" : "/") + name;
  }
  const Descriptor found = open_below(top_.get(), path, O_RDONLY | O_DIRECTORY, Mounts::refused);
  ASSERT_TRUE(found.valid());
  struct stat first{};
  struct stat second{};
  ASSERT_EQ(::fstat(found.get(), &first), 0);
  ASSERT_EQ(::fstat(at.get(), &second), 0);
  EXPECT_EQ(first.st_ino, second.st_ino);
}

TEST_F(Opening, a_confined_walk_does_not_lead_out) {
  for (const std::string path : {"..", "a/../..", "/etc", "link", "link/x"}) {
    auto walk = confined();
    const auto entered = walk->enter(path);
    ASSERT_FALSE(entered) << path;
    EXPECT_EQ(entered.error().code, ErrorCode::invalid_argument) << path;
  }
  auto walk = confined();
  EXPECT_TRUE(walk->enter("a/../a/b"));
  EXPECT_EQ(walk->text(), directory_.path("top/a/b"));
}

TEST_F(Opening, a_confined_walk_enters_no_mount) {
  auto walk = NameWalk::from_top({.any = true});
  walk->confine({.none = true});
  const auto entered = walk->enter("proc");
  ASSERT_FALSE(entered);
  EXPECT_EQ(entered.error().code, ErrorCode::permission_denied);
}

TEST_F(Opening, a_walk_passes_links_of_root_and_of_whom_it_trusts_alone) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a link to another user";
  constexpr uid_t owner = 1'800'000'001;
  ASSERT_EQ(::lchown(directory_.path("top/link").c_str(), owner, owner), 0);
  const auto enter = [&](std::uint32_t trusted) {
    auto walk = NameWalk::from_top({.trusted = trusted});
    return walk->enter(directory_.path("top/link"));
  };
  EXPECT_TRUE(enter(owner));
  const auto refused = enter(owner + 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::permission_denied);
  EXPECT_NE(refused.error().where.find("top/link"), std::string::npos);
  ASSERT_EQ(::lchown(directory_.path("top/link").c_str(), 0, 0), 0);
  EXPECT_TRUE(enter(owner + 1));
}

TEST_F(Opening, a_walk_ends_in_a_circle_of_links) {
  std::filesystem::create_symlink("round", directory_.path("round"));
  auto walk = NameWalk::from_top({.any = true});
  EXPECT_FALSE(walk->enter(directory_.path("round")));
}

TEST_F(Opening, a_name_is_split_as_users_mean_it) {
  EXPECT_EQ(split_name("/a/b").parent, "/a");
  EXPECT_EQ(split_name("/a/b").last, "b");
  EXPECT_TRUE(split_name("/a/b/").asks_for_content);
  EXPECT_EQ(split_name("/a").parent, "/");
  EXPECT_EQ(split_name("b").parent, "");
  EXPECT_EQ(split_name("/a/..").last, "");
  EXPECT_EQ(split_name("/").parent, "/");
}

}  // namespace
}  // namespace forebay::mover
