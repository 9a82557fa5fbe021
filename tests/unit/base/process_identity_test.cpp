// SPDX-License-Identifier: Apache-2.0
#include "base/process_identity.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include <gtest/gtest.h>

namespace forebay {
namespace {

TEST(ProcessIdentityTest, this_process_has_not_ended) {
  const std::string own = own_process_identity();
  EXPECT_FALSE(own.empty());
  EXPECT_EQ(own, own_process_identity());
  EXPECT_FALSE(process_has_ended(own));
}

TEST(ProcessIdentityTest, a_process_has_ended_when_it_has_exited) {
  std::array<int, 2> told{};
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(told.data()), 0);
  ASSERT_EQ(::pipe(ends.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string own = own_process_identity();
    (void)!::write(told[1], own.data(), own.size());
    ::close(told[1]);
    char end = 0;
    (void)!::read(ends[0], &end, 1);
    ::_exit(0);
  }
  ::close(told[1]);
  std::string identity(256, '\0');
  const ssize_t bytes = ::read(told[0], identity.data(), identity.size());
  ASSERT_GT(bytes, 0);
  identity.resize(static_cast<std::size_t>(bytes));
  EXPECT_NE(identity, own_process_identity());
  EXPECT_FALSE(process_has_ended(identity));
  ASSERT_EQ(::write(ends[1], "e", 1), 1);
  siginfo_t state{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &state, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(process_has_ended(identity));  // nobody has waited for it
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(process_has_ended(identity));
  for (const int end : {told[0], ends[0], ends[1]}) ::close(end);
}

TEST(ProcessIdentityTest, another_process_with_its_number_is_another_one) {
  std::string earlier = own_process_identity();
  earlier.back() = earlier.back() == '1' ? '2' : '1';
  EXPECT_TRUE(process_has_ended(earlier));
}

TEST(ProcessIdentityTest, nothing_is_known_of_other_nodes) {
  std::string elsewhere = own_process_identity();
  elsewhere.front() = elsewhere.front() == 'a' ? 'b' : 'a';
  EXPECT_FALSE(process_has_ended(elsewhere));
  for (const char* text : {"", " ", "1 2 3 4", "not a process"}) EXPECT_FALSE(process_has_ended(text)) << text;
  const std::string own = own_process_identity();
  EXPECT_FALSE(process_has_ended(own.substr(0, own.rfind(' '))));
}

}  // namespace
}  // namespace forebay
