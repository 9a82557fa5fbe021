// SPDX-License-Identifier: Apache-2.0
// What a stage keeps of files and trees, what it refuses, and where it writes.
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/xattr.h>

#include <algorithm>
#include <array>
#include <span>
#include <thread>

#include <forebay/checksum.h>

#include "mover/file_system.h"
#include "tests/unit/mover/stage_fixture.h"

namespace forebay::mover {
namespace {

namespace fs = std::filesystem;

class Stage : public StageTest {
 protected:
  /// A tree with all that is kept.
  std::string tree() {
    const std::string source = outside + "/source";
    fs::create_directories(source + "/a/b");
    fs::create_directories(source + "/empty");
    write(source + "/one", "1");
    write(source + "/a/two", std::string(70'000, '2'), 0751);
    write(source + "/a/b/three", "");
    fs::create_symlink("../nowhere", source + "/a/link");
    EXPECT_EQ(::link((source + "/one").c_str(), (source + "/a/same").c_str()), 0);
    const std::array<timespec, 2> times{timespec{1, 2}, timespec{3, 400}};
    EXPECT_EQ(::utimensat(AT_FDCWD, (source + "/a/two").c_str(), times.data(), 0), 0);
    EXPECT_EQ(::utimensat(AT_FDCWD, (source + "/a").c_str(), times.data(), 0), 0);
    ::chmod((source + "/a/b").c_str(), 0555);
    return source;
  }
  void expect_tree(const std::string& target) {
    EXPECT_EQ(names(target), (std::set<std::string>{"a", "empty", "one"}));
    EXPECT_EQ(names(target + "/a"), (std::set<std::string>{"b", "link", "same", "two"}));
    EXPECT_EQ(read(target + "/a/two"), std::string(70'000, '2'));
    EXPECT_EQ(status(target + "/a/two").st_mode & 07777, 0751U);
    EXPECT_EQ(status(target + "/a/two").st_mtim.tv_sec, 3);
    EXPECT_EQ(status(target + "/a/two").st_mtim.tv_nsec, 400);
    EXPECT_EQ(status(target + "/a").st_mtim.tv_sec, 3);
    EXPECT_EQ(status(target + "/a/b").st_mode & 0777, 0555U);
    EXPECT_EQ(fs::read_symlink(target + "/a/link"), "../nowhere");
    EXPECT_EQ(status(target + "/one").st_ino, status(target + "/a/same").st_ino);
  }
};

TEST_F(Stage, a_tree_comes_whole_and_goes_out_whole) {
  const auto result = in(tree(), "tree");
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_EQ(result->files, 4U);
  EXPECT_EQ(result->copied, 4U);
  expect_tree(files + "/tree");
  EXPECT_EQ(names(files), std::set<std::string>{"tree"});
  ASSERT_TRUE(out("tree", outside + "/back"));
  expect_tree(outside + "/back");
  EXPECT_NE(events.find(R"({"path": "a/same", "size_bytes": 1, )"), std::string::npos) << events;
  EXPECT_NE(events.find(R"("crc32c": "90f599e3")"), std::string::npos) << events;
}

TEST_F(Stage, a_second_run_keeps_what_is_there) {
  const std::string source = tree();
  ASSERT_TRUE(in(source, "tree"));
  const auto inode = status(files + "/tree/a/two").st_ino;
  const auto result = in(source, "tree");
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_EQ(result->copied, 0U);
  EXPECT_EQ(kept, 4U);
  EXPECT_EQ(status(files + "/tree/a/two").st_ino, inode);
  expect_tree(files + "/tree");
}

TEST_F(Stage, a_tree_that_is_there_is_brought_up_to_date) {
  const std::string source = tree();
  ASSERT_TRUE(in(source, "tree"));
  write(source + "/one", "new");
  write(files + "/tree/mine", "stays");
  fs::create_directories(source + "/fresh/deep");
  write(source + "/fresh/deep/file", "f");
  const auto result = in(source, "tree");
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_EQ(read(files + "/tree/one"), "new");
  EXPECT_EQ(read(files + "/tree/a/same"), "new");
  EXPECT_EQ(status(files + "/tree/one").st_ino, status(files + "/tree/a/same").st_ino);
  EXPECT_EQ(read(files + "/tree/mine"), "stays");
  EXPECT_EQ(read(files + "/tree/fresh/deep/file"), "f");
  EXPECT_EQ(names(files + "/tree"), (std::set<std::string>{"a", "empty", "fresh", "mine", "one"}));
}

TEST_F(Stage, bits_that_give_rights_are_dropped) {
  write(outside + "/program", "x", 06755);
  ASSERT_TRUE(in(outside + "/program", "program"));
  EXPECT_EQ(status(files + "/program").st_mode & 07777, 0755U);
}

TEST_F(Stage, what_is_neither_file_nor_directory_nor_link_is_refused) {
  fs::create_directory(outside + "/tree");
  ASSERT_EQ(::mkfifo((outside + "/tree/pipe").c_str(), 0600), 0);
  auto result = in(outside + "/tree", "x");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::unsupported);
  EXPECT_NE(result.error().where.find("tree/pipe"), std::string::npos);
  EXPECT_TRUE(names(files).empty());
  fs::remove(outside + "/tree/pipe");
  const Descriptor socket(::socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  (outside + "/tree/socket").copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_FALSE(in(outside + "/tree", "x"));
  EXPECT_FALSE(in(outside + "/tree/socket", "x"));
}

TEST_F(Stage, holes_stay_holes) {
  const std::string source = outside + "/sparse";
  Descriptor file(::open(source.c_str(), O_WRONLY | O_CREAT, 0644));
  ASSERT_EQ(::pwrite(file.get(), "middle", 6, 70 << 20), 6);
  ASSERT_EQ(::ftruncate(file.get(), 150 << 20), 0);
  file.reset();
  ASSERT_TRUE(in(source, "sparse"));
  EXPECT_EQ(status(files + "/sparse").st_size, 150 << 20);
  // Of ramfs each page that was read counts.
  if (!target_is_plain()) {
    EXPECT_LT(status(files + "/sparse").st_blocks * 512, 8 << 20);
  }
  const Descriptor copy(::open((files + "/sparse").c_str(), O_RDONLY));
  std::string found(6, ' ');
  ASSERT_EQ(::pread(copy.get(), found.data(), 6, 70 << 20), 6);
  EXPECT_EQ(found, "middle");
}

TEST_F(Stage, a_large_file_is_copied_in_ranges_with_one_checksum) {
  std::string content(70 << 20, ' ');
  for (std::size_t place = 0; place < content.size(); place += 512) content[place] = static_cast<char>(place >> 9);
  write(outside + "/large", content);
  ASSERT_TRUE(in(outside + "/large", "large"));
  EXPECT_TRUE(read(files + "/large") == content);
  char row[32];
  std::snprintf(row, sizeof row, "\"crc32c\": \"%08x\"", crc32c(std::as_bytes(std::span(content))));
  EXPECT_NE(events.find(row), std::string::npos) << events;
}

TEST_F(Stage, a_file_that_a_program_has_open_for_writing_is_refused_by_name) {
  write(files + "/busy", "half");
  Descriptor writer(::open((files + "/busy").c_str(), O_WRONLY));
  if (writers_of(Descriptor(::open((files + "/busy").c_str(), O_RDONLY)).get(), true) == Writers::unknown)
    GTEST_SKIP() << "this file system has no leases";
  const auto result = out("busy", outside + "/copy");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::busy);
  EXPECT_NE(result.error().where.find("files/busy"), std::string::npos);
  EXPECT_TRUE(names(outside).empty());
  writer.reset();
  EXPECT_TRUE(out("busy", outside + "/copy"));
}

TEST_F(Stage, a_file_that_is_being_written_is_waited_for_and_copied_as_it_was_closed) {
  write(files + "/busy", "half");
  Descriptor writer(::open((files + "/busy").c_str(), O_WRONLY | O_APPEND));
  if (writers_of(Descriptor(::open((files + "/busy").c_str(), O_RDONLY)).get(), true) == Writers::unknown)
    GTEST_SKIP() << "this file system has no leases";
  Request asked = request("busy", outside + "/copy", false);
  asked.wait_closed_ms = 60'000;
  // The stage begins while the program writes, and the program ends while the stage waits or before it does.
  std::thread program;
  before_copying = [&] {
    if (program.joinable()) return;
    program = std::thread([&] {
      EXPECT_EQ(::write(writer.get(), " whole", 6), 6);
      writer.reset();
    });
  };
  const auto result = run(asked);
  program.join();
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_EQ(read(outside + "/copy"), "half whole");
}

TEST_F(Stage, a_file_that_stays_open_is_refused_by_name_when_the_wait_is_over) {
  write(files + "/busy", "half");
  const Descriptor writer(::open((files + "/busy").c_str(), O_WRONLY));
  if (writers_of(Descriptor(::open((files + "/busy").c_str(), O_RDONLY)).get(), true) == Writers::unknown)
    GTEST_SKIP() << "this file system has no leases";
  Request asked = request("busy", outside + "/copy", false);
  // The time of 1 ms is mostly over before the file's turn comes.
  for (const std::uint32_t milliseconds : {1, 20}) {
    asked.wait_closed_ms = milliseconds;
    const auto result = run(asked);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::refused);
    EXPECT_NE(result.error().where.find("files/busy"), std::string::npos);
    EXPECT_TRUE(names(outside).empty());
  }
}

TEST_F(Stage, a_whole_copy_takes_the_place_of_an_older_tree_and_leaves_nothing_of_it) {
  const std::string source = tree();
  ASSERT_TRUE(in(source, "tree"));
  Request asked = request("tree", outside + "/out", false);
  asked.whole = true;
  ASSERT_TRUE(run(asked));
  expect_tree(outside + "/out");
  write(outside + "/out/of the older one", "x");
  ::chmod((outside + "/out").c_str(), 0555);
  const auto refused = run(asked);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::already_exists);
  EXPECT_EQ(read(outside + "/out/of the older one"), "x");
  asked.replaces = true;
  const auto replaced = run(asked);
  ASSERT_TRUE(replaced) << replaced.error().message();
  expect_tree(outside + "/out");
  EXPECT_FALSE(fs::exists(outside + "/out/of the older one"));
  // A file instead of a folder, and the other way round.
  fs::remove_all(files + "/tree");
  write(files + "/tree", "a file now");
  ASSERT_TRUE(run(asked));
  EXPECT_EQ(read(outside + "/out"), "a file now");
  fs::remove(files + "/tree");
  ASSERT_TRUE(in(source, "tree"));
  ASSERT_TRUE(run(asked));
  expect_tree(outside + "/out");
  EXPECT_EQ(names(outside).size(), 2U);  // with the source
}

TEST_F(Stage, a_whole_copy_never_follows_a_link_at_its_name) {
  write(files + "/one", "1");
  fs::create_directories(outside + "/elsewhere");
  fs::create_directory_symlink(outside + "/elsewhere", outside + "/one");
  Request asked = request("one", outside + "/one", false);
  asked.whole = asked.replaces = true;
  ASSERT_TRUE(run(asked));
  EXPECT_EQ(read(outside + "/one"), "1");
  EXPECT_FALSE(fs::is_symlink(outside + "/one"));
  EXPECT_TRUE(names(outside + "/elsewhere").empty());
}

TEST_F(Stage, extended_attributes_of_users_are_kept_or_told) {
  write(outside + "/data", "x", 0444);
  if (::setxattr((outside + "/data").c_str(), "user.origin", "beam", 4, 0) != 0) GTEST_SKIP() << "no attributes here";
  const auto result = in(outside + "/data", "data");
  ASSERT_TRUE(result) << result.error().message();
  std::string value(4, ' ');
  if (target_is_plain()) {
    ASSERT_EQ(result->not_kept.size(), 1U);
    EXPECT_NE(result->not_kept[0].find("extended attributes"), std::string::npos);
  } else {
    EXPECT_EQ(::getxattr((files + "/data").c_str(), "user.origin", value.data(), 4), 4);
    EXPECT_EQ(value, "beam");
    EXPECT_TRUE(result->not_kept.empty());
  }
  EXPECT_EQ(status(files + "/data").st_mode & 0777, 0444U);
}

TEST_F(Stage, a_link_that_is_staged_itself_is_copied_as_a_link) {
  write(outside + "/private", "p");
  fs::create_symlink(outside + "/private", outside + "/link");
  ASSERT_TRUE(in(outside + "/link", "link"));
  EXPECT_TRUE(fs::is_symlink(files + "/link"));
}

TEST_F(Stage, a_name_with_a_slash_asks_for_what_a_link_leads_to) {
  fs::create_directory(outside + "/real");
  write(outside + "/real/x", "x");
  fs::create_directory_symlink("real", outside + "/link");
  ASSERT_TRUE(in(outside + "/link/", "copy"));
  EXPECT_EQ(read(files + "/copy/x"), "x");
}

TEST_F(Stage, an_entry_that_becomes_a_link_after_the_look_is_not_followed) {
  write(outside + "/private", "secret");
  write(files + "/bait", "bait");
  before_copying = [&] {
    fs::remove(files + "/bait");
    fs::create_symlink(outside + "/private", files + "/bait");
  };
  EXPECT_FALSE(out("bait", outside + "/copy"));
  EXPECT_EQ(names(outside), std::set<std::string>{"private"});
  fs::create_directories(files + "/tree");
  write(files + "/tree/bait", "bait");
  before_copying = [&] {
    fs::rename(files + "/tree", files + "/away");
    fs::create_directory_symlink(outside, files + "/tree");
  };
  EXPECT_FALSE(out("tree", outside + "/tree"));
}

TEST_F(Stage, what_others_put_in_the_place_of_the_folder_is_left_alone) {
  const std::string first = own_folder(files);
  fs::remove_all(first);
  const std::string trap = outside + "/trap";
  fs::create_directory(trap);
  fs::create_directory_symlink(trap, first);
  write(outside + "/data", "x");
  ASSERT_TRUE(in(outside + "/data", "data"));
  EXPECT_TRUE(names(trap).empty());
  EXPECT_TRUE(fs::is_symlink(first));
  // A folder with another's secret is not ours either.
  fs::remove(first);
  fs::create_directory(first);
  fs::permissions(first, fs::perms::owner_all);
  write(first + "/secret", std::string(64, 'b'), 0600);
  write(first + "/e0", "theirs");
  ASSERT_TRUE(in(outside + "/data", "again"));
  EXPECT_EQ(read(first + "/e0"), "theirs");
  EXPECT_EQ(read(files + "/again"), "x");
}

TEST_F(Stage, a_later_run_takes_over_only_what_is_right) {
  const std::string source = tree();
  const std::string folder = own_folder(files);
  fs::create_directories(folder + "/e0/a/stale");
  write(folder + "/e0/a/two", std::string(70'000, '2'));
  write(folder + "/e0/one", "!");
  write(folder + "/e0/stale", "not in the source");
  ASSERT_TRUE(in(source, "tree"));
  EXPECT_EQ(kept, 1U);
  expect_tree(files + "/tree");
  EXPECT_EQ(read(files + "/tree/one"), "1");
  EXPECT_EQ(names(files), std::set<std::string>{"tree"});
}

TEST_F(Stage, a_folder_whose_secret_was_not_written_to_its_end_is_used_again) {
  const std::string folder = own_folder(files);
  write(folder + "/secret", secret.substr(0, 20), 0600);
  write(outside + "/data", "x");
  ASSERT_TRUE(in(outside + "/data", "data"));
  EXPECT_EQ(names(files), std::set<std::string>{"data"});
}

TEST_F(Stage, two_runs_of_one_stage_keep_out_of_each_other) {
  const Descriptor directory(::open(files.c_str(), O_RDONLY | O_DIRECTORY));
  const auto held = OwnFolder::open(directory.get(), secret, Mounts::crossed);
  ASSERT_TRUE(held);
  write(outside + "/data", "x");
  const auto result = in(outside + "/data", "data");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::busy);
}

TEST_F(Stage, what_came_there_meanwhile_is_not_replaced) {
  write(outside + "/data", "x");
  before_copying = [&] { write(files + "/data", "theirs"); };
  // It is looked at again before it is placed, and is an older file then: replacing it is what was asked for.
  ASSERT_TRUE(in(outside + "/data", "data"));
  fs::create_directory(outside + "/tree");
  before_copying = [&] { write(files + "/tree", "theirs"); };
  const auto result = in(outside + "/tree", "tree");
  ASSERT_FALSE(result);
  EXPECT_EQ(read(files + "/tree"), "theirs");
}

TEST_F(Stage, no_path_leads_out_of_the_reservation) {
  write(outside + "/data", "x");
  fs::create_directory_symlink(outside, files + "/link");
  for (const std::string path : {"../escape", "a/../../escape", "/etc/escape", "link/escape", "link/", "link"}) {
    const auto result = in(outside + "/data", path);
    ASSERT_FALSE(result) << path;
    EXPECT_EQ(result.error().code, ErrorCode::invalid_argument) << path << result.error().message();
  }
  EXPECT_EQ(names(outside), std::set<std::string>{"data"});
}

TEST_F(Stage, another_user_s_link_above_an_end_is_refused_by_name) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a link to another user";
  fs::create_directory(outside + "/real");
  write(outside + "/real/data", "x");
  fs::create_directory_symlink("real", outside + "/link");
  ASSERT_EQ(::lchown((outside + "/link").c_str(), 1'800'000'001, 0), 0);
  for (const auto& result :
       {in(outside + "/link/data", "data"), in(outside + "/link/", "data"), out("", outside + "/link/out")}) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::permission_denied);
    EXPECT_NE(result.error().where.find("outside/link"), std::string::npos);
  }
}

TEST_F(Stage, one_end_in_the_other_is_refused) {
  fs::create_directories(files + "/tree/deeper");
  EXPECT_FALSE(out("tree", files + "/tree/deeper"));
  EXPECT_FALSE(out("tree/deeper", files));
  EXPECT_FALSE(in(files, "copy"));
}

TEST_F(Stage, a_set_group_id_folder_gives_its_group) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a folder to another group";
  constexpr gid_t group = 1'800'000'002;
  fs::create_directory(files + "/team");
  ASSERT_EQ(::chown((files + "/team").c_str(), 0, group), 0);
  ASSERT_EQ(::chmod((files + "/team").c_str(), 02775), 0);
  ASSERT_TRUE(in(tree(), "team/tree"));
  EXPECT_EQ(status(files + "/team/tree").st_gid, group);
  EXPECT_EQ(status(files + "/team/tree").st_mode & 07777, 02755U);
  EXPECT_EQ(status(files + "/team/tree/a/two").st_gid, group);
  EXPECT_EQ(status(files + "/team/tree/a/two").st_mode & 07777, 0751U);
}

/// A default list: rw for a user, nothing for others.
std::string list_text() {
  struct Entry {
    std::uint16_t tag;
    std::uint16_t bits;
    std::uint32_t id;
  };
  const std::uint32_t version = 2;
  const std::array<Entry, 5> entries{{{1, 7, ~0U}, {2, 6, 1'800'000'003}, {4, 5, ~0U}, {16, 7, ~0U}, {32, 0, ~0U}}};
  std::string text(reinterpret_cast<const char*>(&version), sizeof version);
  text.append(reinterpret_cast<const char*>(entries.data()), sizeof entries);
  return text;
}

TEST_F(Stage, a_default_list_of_the_place_is_what_the_modes_stay_below) {
  const std::string list = list_text();
  if (::setxattr(files.c_str(), "system.posix_acl_default", list.data(), list.size(), 0) != 0)
    GTEST_SKIP() << "no access lists here";
  const std::string source = tree();
  ASSERT_TRUE(in(source, "tree"));
  EXPECT_EQ(status(files + "/tree/one").st_mode & 0777, 0640U);
  EXPECT_EQ(status(files + "/tree/a/two").st_mode & 0777, 0750U);
  EXPECT_EQ(status(files + "/tree/a").st_mode & 0777, 0750U);
  // Staged again, what is there gets no wider.
  ASSERT_TRUE(in(source, "tree"));
  EXPECT_EQ(status(files + "/tree/one").st_mode & 0777, 0640U);
  EXPECT_EQ(status(files + "/tree").st_mode & 0777, 0750U);
  EXPECT_EQ(status(files + "/tree/a").st_mode & 0777, 0750U);
  char value[256];
  EXPECT_GT(::getxattr((files + "/tree/one").c_str(), "system.posix_acl_access", value, sizeof value), 0);
  EXPECT_GT(::getxattr((files + "/tree/a").c_str(), "system.posix_acl_default", value, sizeof value), 0);
}

TEST_F(Stage, without_lists_the_group_gets_what_its_entry_and_the_mask_allow) {
  write(outside + "/data", "x");
  const std::string list = list_text();
  if (::setxattr((outside + "/data").c_str(), "system.posix_acl_access", list.data(), list.size(), 0) != 0)
    GTEST_SKIP() << "no access lists here";
  EXPECT_EQ(status(outside + "/data").st_mode & 0777, 0770U);  // the mask
  ASSERT_TRUE(in(outside + "/data", "data"));
  EXPECT_EQ(status(files + "/data").st_mode & 0777, 0750U);
  char value[256];
  EXPECT_LT(::getxattr((files + "/data").c_str(), "system.posix_acl_access", value, sizeof value), 0);
}

TEST_F(Stage, a_directory_that_may_not_be_written_is_staged_and_staged_again) {
  fs::create_directory(outside + "/closed");
  write(outside + "/closed/x", "x", 0400);
  ::chmod((outside + "/closed").c_str(), 0500);
  for (int run = 0; run < 2; ++run) {
    ASSERT_TRUE(in(outside + "/closed", "closed"));
    EXPECT_EQ(status(files + "/closed").st_mode & 0777, 0500U);
    EXPECT_EQ(read(files + "/closed/x"), "x");
  }
  EXPECT_EQ(kept, 1U);
}

TEST_F(Stage, a_deep_tree_takes_a_bounded_number_of_descriptors) {
  std::string at = outside + "/deep";
  constexpr int levels = 300;
  for (int level = 0; level < levels; ++level) {
    fs::create_directory(at);
    write(at + "/file", std::to_string(level));
    at += "/d";
  }
  std::size_t most = 0;
  before_copying = [&] {
    for (const auto& entry : fs::directory_iterator("/proc/self/fd"))
      most = std::max<std::size_t>(most, std::stoul(entry.path().filename()));
  };
  ASSERT_TRUE(in(outside + "/deep", "deep"));
  EXPECT_LT(most, 256U);
  EXPECT_EQ(read(files + "/deep/d/d/d/file"), "3");
  EXPECT_TRUE(in(outside + "/deep", "deep"));
  EXPECT_EQ(kept, static_cast<std::uint64_t>(levels));
}

TEST_F(Stage, names_that_are_no_text_are_told_as_python_reads_them) {
  const std::string name = "n\xff\"\n\xc3\xa9";
  fs::create_directory(outside + "/tree");
  write(outside + "/tree/" + name, "x");
  ASSERT_TRUE(in(outside + "/tree", "tree"));
  EXPECT_EQ(read(files + "/tree/" + name), "x");
  EXPECT_NE(events.find("\"n\\udcff\\\"\\u000a\xc3\xa9\""), std::string::npos) << events;
}

TEST_F(Stage, many_files_come_in_one_rename) {
  fs::create_directories(outside + "/many/sub");
  for (int number = 0; number < 600; ++number)
    write(outside + "/many/" + (number % 2 == 0 ? "sub/" : "") + std::to_string(number), std::to_string(number));
  const auto result = in(outside + "/many", "many");
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_EQ(result->files, 600U);
  EXPECT_EQ(read(files + "/many/sub/598"), "598");
  EXPECT_EQ(std::count(events.begin(), events.end(), '{') - std::count(events.begin(), events.end(), '\n'), 600);
}

TEST_F(Stage, a_leftover_of_another_stage_does_not_go_out) {
  const std::string folder = own_folder(files);
  secret = std::string(64, 'c');
  write(files + "/data", "x");
  ASSERT_TRUE(out("", outside + "/all"));
  EXPECT_EQ(names(outside + "/all"), std::set<std::string>{"data"});
  EXPECT_NE(events.find(R"("event": "note")"), std::string::npos);
}

}  // namespace
}  // namespace forebay::mover
