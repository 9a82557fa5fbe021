// SPDX-License-Identifier: Apache-2.0
// The server's socket and the file that tells its place, for users who ask all the time while a server starts.
#include "staging-servers/daemon/listening_socket.h"

#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>

#include "base/descriptor.h"
#include "tests/unit/server/server_fixture.h"

namespace forebay::testing {
namespace {

/// What happens in a folder to the entry of a name. The kernel keeps the events in order.
class WatchedEntry {
 public:
  WatchedEntry(const std::string& folder, std::string name)
      : events_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)), name_(std::move(name)) {
    EXPECT_GE(::inotify_add_watch(events_.get(), folder.c_str(), IN_CREATE | IN_MOVED_TO | IN_ATTRIB | IN_DELETE), 0);
  }

  std::vector<std::uint32_t> events() const {
    std::vector<std::uint32_t> found;
    alignas(inotify_event) std::array<char, 65536> buffer{};
    const ssize_t size = ::read(events_.get(), buffer.data(), buffer.size());
    for (ssize_t at = 0; at < size;) {
      const auto* event = reinterpret_cast<const inotify_event*>(buffer.data() + at);
      if (event->len > 0 && event->name == name_) found.push_back(event->mask);
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
    }
    return found;
  }

 private:
  Descriptor events_;
  std::string name_;
};

const std::vector<std::uint32_t> only_moved{IN_MOVED_TO};

mode_t mode_of(const std::string& path) {
  struct stat status{};
  EXPECT_EQ(::lstat(path.c_str(), &status), 0) << path;
  return status.st_mode & 0777;
}

using ListeningSocketTest = ServerTest;

TEST_F(ListeningSocketTest, a_socket_has_its_name_only_when_all_may_connect) {
  const std::string path = directory_.path("other.sock");
  const WatchedEntry entry(directory_.path(""), "other.sock");
  const mode_t umask = ::umask(0077);
  {
    auto first = server::ListeningSocket::at(path);
    ASSERT_TRUE(first) << first.error().message();
    EXPECT_EQ(entry.events(), only_moved);
    // What a killed server leaves stays until the next one's takes its place.
    auto second = server::ListeningSocket::at(path);
    ASSERT_TRUE(second) << second.error().message();
    EXPECT_EQ(entry.events(), only_moved);
    EXPECT_EQ(mode_of(path), 0666U);
    EXPECT_FALSE(first->has_its_name());
    EXPECT_TRUE(second->has_its_name());
  }
  ::umask(umask);
  EXPECT_NE(::access(path.c_str(), F_OK), 0);
  EXPECT_NE(::access(directory_.path(".other.sock").c_str(), F_OK), 0);
}

TEST_F(ListeningSocketTest, what_is_no_socket_is_left_alone) {
  const std::string path = directory_.path("file");
  std::ofstream(path) << "a user's";
  const auto made = server::ListeningSocket::at(path);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::already_exists);
  EXPECT_EQ(::access(directory_.path(".file").c_str(), F_OK), -1);
}

TEST_F(ListeningSocketTest, the_endpoint_has_its_name_only_when_all_may_read_it) {
  const std::string endpoint = options_.root + "/endpoint";
  std::optional<WatchedEntry> entry;
  const mode_t umask = ::umask(0077);
  restart([&] {
    ASSERT_EQ(::unlink(endpoint.c_str()), 0);
    entry.emplace(options_.root, "endpoint");
  });
  ::umask(umask);
  EXPECT_EQ(entry->events(), only_moved);
  EXPECT_EQ(mode_of(endpoint), 0644U);
}

}  // namespace
}  // namespace forebay::testing
