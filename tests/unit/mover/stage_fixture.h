// SPDX-License-Identifier: Apache-2.0
// A reservation's files and a folder outside, and stages between them in the test's own process.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "mover/own_folder.h"
#include "mover/stage.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/mover/circumstances.h"

namespace forebay::mover {

class StageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(files);
    std::filesystem::create_directories(outside);
    if (!target_is_plain()) return;
    // In a namespace of this process: the mount goes with it.
    if (::geteuid() != 0 || ::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("forebay-test", files.c_str(), "ramfs", 0, nullptr) != 0)
      GTEST_SKIP() << "only root can mount a file system without attributes";
    is_mounted_ = true;
  }
  void TearDown() override {
    ::umask(umask_);
    if (is_mounted_) {
      EXPECT_EQ(::umount2(files.c_str(), MNT_DETACH), 0);
    }
  }

  Request request(const std::string& path, const std::string& out, bool inward) const {
    Request asked;
    asked.inside = files;
    asked.path = path;
    asked.outside = out;
    asked.name = "res";
    asked.secret = secret;
    asked.inward = inward;
    return asked;
  }
  Result<Summary> run(const Request& asked) {
    std::FILE* told = std::tmpfile();
    Report report(::fileno(told));
    const std::atomic<bool> stopping = false;
    auto result = stage(
        asked, report,
        [this]() -> Result<void> {
          if (before_copying) before_copying();
          return {};
        },
        stopping);
    if (result) report.done(*result);
    std::rewind(told);
    events.clear();
    for (int byte = std::fgetc(told); byte != EOF; byte = std::fgetc(told)) events.push_back(static_cast<char>(byte));
    std::fclose(told);
    kept = report.items_kept();
    return result;
  }
  Result<Summary> in(const std::string& source, const std::string& path) { return run(request(path, source, true)); }
  Result<Summary> out(const std::string& path, const std::string& target) { return run(request(path, target, false)); }

  static void write(const std::string& path, const std::string& text, mode_t mode = 0644) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
    ::chmod(path.c_str(), mode);
  }
  static std::string read(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }
  static struct stat status(const std::string& path) {
    struct stat found{};
    EXPECT_EQ(::lstat(path.c_str(), &found), 0) << path;
    return found;
  }
  static std::set<std::string> names(const std::string& folder) {
    std::set<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) found.insert(entry.path().filename());
    return found;
  }
  /// Where this stage's first folder would be.
  std::string own_folder(const std::string& directory) const {
    const Descriptor opened(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    auto folder = OwnFolder::open(opened.get(), secret, Mounts::crossed);
    EXPECT_TRUE(folder) << folder.error().message();
    const std::string path = directory + "/" + folder->name();
    return path;
  }

  const mode_t umask_ = ::umask(022);
  testing::TemporaryDirectory directory_;
  const std::string files = directory_.path("root/files");
  const std::string outside = directory_.path("outside");
  std::string secret = std::string(64, 'a');
  std::string events;                    ///< what the last run told
  std::uint64_t kept = 0;                ///< of the last run
  std::function<void()> before_copying;  ///< what others do between the plan and the copy

 private:
  bool is_mounted_ = false;
};

}  // namespace forebay::mover
