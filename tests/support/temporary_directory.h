// SPDX-License-Identifier: Apache-2.0
// A directory that a test has to itself; it goes with the object.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

namespace forebay::testing {

class TemporaryDirectory {
 public:
  TemporaryDirectory() : TemporaryDirectory(std::filesystem::temp_directory_path()) {}

  /// In memory where the system has such a place: for tests with thousands of files that model their device's syncs
  /// themselves.
  static TemporaryDirectory in_memory() {
    const std::filesystem::path memory = "/dev/shm";
    return TemporaryDirectory(std::filesystem::is_directory(memory) ? memory : std::filesystem::temp_directory_path());
  }

  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const noexcept { return path_; }
  std::string path(const std::string& name) const { return path_ + "/" + name; }

 private:
  explicit TemporaryDirectory(const std::filesystem::path& parent) : path_((parent / "forebay-test-XXXXXX").string()) {
    if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("cannot make a temporary directory at " + path_);
  }

  std::string path_;
};

}  // namespace forebay::testing
