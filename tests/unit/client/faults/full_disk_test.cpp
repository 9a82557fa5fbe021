// SPDX-License-Identifier: Apache-2.0
// From some operation on the disk is full: other programs have taken what was free.
#include <algorithm>

#include <gtest/gtest.h>

#include "tests/unit/client/faults/programs.h"
#include "tests/unit/client/faults/sweep.h"

namespace forebay::testing {
namespace {

/// Full from the programs' n-th operation on. False if they need fewer.
bool fill_at(Programs::Play play, std::uint64_t n, Random& random) {
  ServerOnDisk server;
  Told told;
  Programs programs(server, told, play);
  FaultyDevice& disk = server.disk();
  disk.fill_at(n);
  programs.run();
  const bool filled = disk.operations() >= n;
  // A stream that could not be made is not there.
  programs.check_errors({ErrorCode::no_space, ErrorCode::not_found});
  if (!filled) {
    programs.check_whole();
  }
  disk.set_full(true);
  programs.end_on_full_disk();
  // Drops, ends and watermarks took the reserve: no stream has failed, and restarting takes no space.
  if (chance(random, 2)) {
    programs.vanish();
    EXPECT_TRUE(server.restart(false));
    if (!server.runs()) return filled;
  }
  {
    auto admin = Admin::connect();
    check_streams(told, Promise::committed, **admin, Programs::reservation);
    check_audit(**admin, false);
  }
  disk.set_full(false);
  programs.go_on();
  auto admin = Admin::connect();
  check_streams(told, Promise::committed, **admin, Programs::reservation);
  check_audit(**admin, false);
  admin->reset();
  server.stop();
  disk.lose_power(random);
  server.take_for_another_boot();
  const auto before = states_on_disk(server.root());
  EXPECT_TRUE(server.start());
  if (!server.runs()) return filled;
  admin = Admin::connect();
  check_streams(told, Promise::durable, **admin, Programs::reservation, &before);
  check_audit(**admin, false);
  return filled;
}

// crash-matrix: the disk is full | file system of the root, from any operation on, every second time across a restart of the server | every committed step; no stream fails; writers that end are still written down; writing goes on when there is space
TEST(FullDisk, from_any_operation_on_loses_nothing_and_ends_with_the_want_of_space) {
  sweep_plays(fill_at);
}

}  // namespace
}  // namespace forebay::testing
