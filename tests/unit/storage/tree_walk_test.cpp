// SPDX-License-Identifier: Apache-2.0
#include "storage/tree_walk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "storage/tree_size.h"
#include "tests/support/temporary_directory.h"

namespace forebay::storage {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryDirectory;

constexpr std::size_t all = std::numeric_limits<std::size_t>::max();

/// Counts what it is told of, by name.
class Recorder final : public TreeVisitor {
 public:
  Enter folder(const TreeWalk& walk, const std::string& name, int, const struct stat&, Enter) override {
    ++folders[name];
    descriptors_most = std::max(descriptors_most, walk.descriptors());
    return Enter::all;
  }
  void entry(const TreeWalk& walk, int, const char* name, const struct statx&) override {
    ++entries[name];
    last_place = walk.place(name);
  }
  void begins_again(std::size_t) override { ++again; }
  void missed(const TreeWalk& walk, const std::string& name, Error why) override {
    misses[walk.place(name)] = why.what;
  }

  std::map<std::string, int> folders;
  std::map<std::string, int> entries;
  std::map<std::string, std::string> misses;
  std::string last_place;
  std::size_t descriptors_most = 0;
  int again = 0;
};

class TreeWalkTest : public ::testing::Test {
 protected:
  std::string top() const { return folder_.path(); }
  Descriptor open_top() const { return Descriptor(::open(top().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)); }

  /// A chain of folders of these names, each in the one before, with a file "data" in the last. Longer than a path.
  void make_chain(const std::string& prefix, int length) {
    Descriptor folder(::open(top().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    for (int level = 0; level < length; ++level) {
      const std::string name = prefix + std::to_string(level);
      ASSERT_EQ(::mkdirat(folder.get(), name.c_str(), 0777), 0);
      folder = Descriptor(::openat(folder.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      ASSERT_TRUE(folder.valid());
    }
    const Descriptor file(::openat(folder.get(), "data", O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
    ASSERT_TRUE(file.valid());
    ASSERT_EQ(::ftruncate(file.get(), 0), 0);
    ASSERT_EQ(::write(file.get(), std::string(100'000, 'x').data(), 100'000), 100'000);
  }

  TemporaryDirectory folder_ = TemporaryDirectory::in_memory();
};

TEST_F(TreeWalkTest, a_chain_deeper_than_any_path_is_walked_with_few_descriptors) {
  make_chain("a-folder-with-a-rather-long-name-", 600);
  fs::create_directory(top() + "/beside");
  Recorder recorder;
  TreeWalk walk(open_top(), "files", recorder);
  while (!walk.advance(7)) {
  }
  EXPECT_EQ(recorder.folders.size(), 602U);
  EXPECT_EQ(recorder.entries, (std::map<std::string, int>{{"data", 1}}));
  EXPECT_TRUE(recorder.misses.empty());
  EXPECT_EQ(recorder.again, 0);
  EXPECT_LE(recorder.descriptors_most, TreeWalk::descriptors_max);
  EXPECT_TRUE(recorder.last_place.starts_with("files/...")) << recorder.last_place;
  EXPECT_TRUE(recorder.last_place.ends_with("-599/data")) << recorder.last_place;
  EXPECT_LT(recorder.last_place.size(), 250U);
}

TEST_F(TreeWalkTest, what_lies_in_a_deep_chain_counts) {
  make_chain("folder", 300);
  const auto size = measure_tree(top(), "files");
  ASSERT_TRUE(size);
  EXPECT_GE(size->bytes, 100'000U);
  EXPECT_LT(size->bytes, 200'000U);
  EXPECT_EQ(size->missed, 0U);
}

/// Somebody moves a folder out of the chain that the walk is in: it does not go up where that lies now.
TEST_F(TreeWalkTest, a_walk_that_is_moved_begins_again_where_it_knows_that_it_is) {
  make_chain("folder", 100);
  fs::create_directory(top() + "/zz");
  std::ofstream(top() + "/zz/beside") << "x";
  const TemporaryDirectory outside = TemporaryDirectory::in_memory();
  std::ofstream(outside.path() + "/not-of-the-tree") << "x";
  Recorder recorder;
  TreeWalk walk(open_top(), "files", recorder);
  std::string below = top();
  for (int level = 0; level < 60; ++level) below += "/folder" + std::to_string(level);
  while (!recorder.folders.contains("folder98")) ASSERT_FALSE(walk.advance(1));
  // A level whose descriptor the walk has let go.
  fs::rename(below, outside.path() + "/moved");
  while (!walk.advance(1)) {
  }
  EXPECT_GE(recorder.again, 1);
  EXPECT_FALSE(recorder.entries.contains("not-of-the-tree"));
  EXPECT_GE(recorder.entries["beside"], 1);
  EXPECT_TRUE(recorder.misses.empty());
}

/// However often it is moved, it ends, and says that it is not whole.
TEST_F(TreeWalkTest, a_walk_that_is_moved_again_and_again_ends) {
  make_chain("folder", 100);
  Recorder recorder;
  TreeWalk walk(open_top(), "files", recorder);
  const std::string name = top() + "/folder0/folder1/folder2/folder3/folder4/folder5/folder6/folder7";
  std::string below = name;
  for (int level = 8; level < 50; ++level) below += "/folder" + std::to_string(level);
  const std::string aside = top() + "/aside";
  bool complete = false;
  int moves = 0;
  while (!complete) {
    ASSERT_LT(moves, 1000);
    const int seen = recorder.folders["folder99"];
    while (!complete && recorder.folders["folder99"] == seen) complete = walk.advance(1);
    if (complete) break;
    fs::rename(below, aside);
    // Past the place, and back: the next time the walk finds it again.
    const int again = recorder.again;
    while (!complete && recorder.again == again) complete = walk.advance(1);
    fs::rename(aside, below);
    ++moves;
  }
  EXPECT_GT(moves, 10);
  ASSERT_EQ(recorder.misses.size(), 1U);
  EXPECT_EQ(recorder.misses.begin()->second, "folders are moved while they are looked at");
}

TEST_F(TreeWalkTest, what_is_counted_again_counts_once) {
  make_chain("folder", 100);
  std::ofstream(top() + "/beside") << std::string(50'000, 'x');
  fs::create_hard_link(top() + "/beside", top() + "/folder0/linked");
  TreeMeasure measure;
  TreeWalk walk(open_top(), "files", measure);
  std::string above = top();
  for (int level = 0; level < 58; ++level) above += "/folder" + std::to_string(level);
  while (measure.size().bytes < 100'000) ASSERT_FALSE(walk.advance(1));
  // Where the walk comes by again when it has begun again above.
  fs::rename(above + "/folder58/folder59", above + "/elsewhere");
  while (!walk.advance(1)) {
  }
  const auto whole = measure_tree(top(), "files");
  ASSERT_TRUE(whole);
  EXPECT_EQ(measure.size().bytes, whole->bytes);
  EXPECT_GE(whole->bytes, 150'000U);
  EXPECT_LT(whole->bytes, 200'000U);
}

TEST_F(TreeWalkTest, entries_of_large_folders_are_each_met_once) {
  for (int number = 0; number < 3000; ++number) {
    fs::create_directory(top() + "/folder" + std::to_string(number));
    std::ofstream(top() + "/folder" + std::to_string(number) + "/file" + std::to_string(number)) << "x";
  }
  Recorder recorder;
  TreeWalk walk(open_top(), "files", recorder);
  EXPECT_TRUE(walk.advance(all));
  EXPECT_EQ(recorder.folders.size(), 3001U);
  EXPECT_EQ(recorder.entries.size(), 3000U);
  for (const auto& [name, count] : recorder.entries) EXPECT_EQ(count, 1) << name;
}

TEST_F(TreeWalkTest, links_are_themselves_and_nothing_is_opened) {
  fs::create_symlink("/", top() + "/link");
  ASSERT_EQ(::mkfifo((top() + "/fifo").c_str(), 0600), 0);
  Recorder recorder;
  TreeWalk walk(open_top(), "files", recorder);
  EXPECT_TRUE(walk.advance(all));
  EXPECT_EQ(recorder.folders.size(), 1U);
  EXPECT_EQ(recorder.entries, (std::map<std::string, int>{{"link", 1}, {"fifo", 1}}));
}

}  // namespace
}  // namespace forebay::storage
