// SPDX-License-Identifier: Apache-2.0
// The lease probe against processes that can still write to a file.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "base/descriptor.h"
#include "storage/reservation_store.h"
#include "tests/support/temporary_directory.h"

namespace forebay::storage {
namespace {

class WriteLease : public ::testing::Test {
 protected:
  WriteLease() {
    const Descriptor file(::open(path_.c_str(), O_RDWR | O_CREAT, 0600));
    EXPECT_EQ(::ftruncate(file.get(), 4096), 0);
  }

  bool probe() const {
    const auto result = nobody_writes(path_);
    EXPECT_TRUE(result) << result.error().message();
    return result.value_or(false);
  }

  testing::TemporaryDirectory directory_;
  const std::string path_ = directory_.path("segment");
};

/// A child that runs `prepare` once and then `repeat` until it is ended.
class Child {
 public:
  template <class Prepare, class Repeat>
  Child(const Prepare& prepare, const Repeat& repeat) {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      prepare();
      (void)!::write(ready[1], "x", 1);
      while (true) repeat();
    }
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
  }
  ~Child() { end(); }
  void end() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(std::exchange(pid_, 0), nullptr, 0);
  }

 private:
  pid_t pid_ = 0;
};

TEST_F(WriteLease, a_file_that_nobody_has_open_is_free) {
  EXPECT_TRUE(probe());
  EXPECT_TRUE(probe());
}

TEST_F(WriteLease, readers_and_their_mappings_do_not_count) {
  const Descriptor file(::open(path_.c_str(), O_RDONLY));
  void* mapping = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, file.get(), 0);
  ASSERT_NE(mapping, MAP_FAILED);
  EXPECT_TRUE(probe());
  ::munmap(mapping, 4096);
}

TEST_F(WriteLease, a_descriptor_for_writing_counts_until_it_is_closed) {
  Descriptor file(::open(path_.c_str(), O_RDWR));
  EXPECT_FALSE(probe());
  file.reset();
  EXPECT_TRUE(probe());
}

TEST_F(WriteLease, a_forked_childs_mapping_counts_after_every_descriptor_is_closed) {
  Descriptor file(::open(path_.c_str(), O_RDWR));
  void* mapping = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  ASSERT_NE(mapping, MAP_FAILED);
  Child child([&] { file.reset(); }, [] { ::pause(); });
  file.reset();
  ::munmap(mapping, 4096);
  EXPECT_FALSE(probe());
  child.end();
  EXPECT_TRUE(probe());
}

TEST_F(WriteLease, a_descriptor_that_lies_in_a_message_counts) {
  // As a writer's that died before it took its segments from the socket.
  int sockets[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  Descriptor file(::open(path_.c_str(), O_RDWR));
  char byte = 'x';
  iovec bytes{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  const int number = file.get();
  std::memcpy(CMSG_DATA(header), &number, sizeof number);
  ASSERT_EQ(::sendmsg(sockets[0], &message, 0), 1);
  file.reset();
  EXPECT_FALSE(probe());
  ::close(sockets[0]);
  ::close(sockets[1]);
  EXPECT_TRUE(probe());
}

TEST_F(WriteLease, somebody_who_opens_during_the_probe_does_not_kill_the_server) {
  // The child opens for writing over and over; a lease that is broken sends a signal.
  Child child([] {}, [&] { const Descriptor file(::open(path_.c_str(), O_RDWR | O_NONBLOCK)); });
  for (int i = 0; i < 5000; ++i) ASSERT_TRUE(nobody_writes(path_));
}

TEST_F(WriteLease, a_missing_file_is_not_found) {
  EXPECT_EQ(nobody_writes(directory_.path("none")).error().code, ErrorCode::not_found);
}

TEST_F(WriteLease, a_link_is_not_followed) {
  const std::string link = directory_.path("link");
  ASSERT_EQ(::symlink(path_.c_str(), link.c_str()), 0);
  EXPECT_FALSE(nobody_writes(link));
}

}  // namespace
}  // namespace forebay::storage
