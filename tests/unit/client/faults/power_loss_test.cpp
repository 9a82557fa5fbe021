// SPDX-License-Identifier: Apache-2.0
// The machine goes down behind each operation of server and clients on the disk, comes up, perhaps goes down once more
// while the server recovers, and everybody goes on.
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "base/log.h"
#include "tests/support/randomness.h"
#include "tests/unit/client/faults/programs.h"
#include "tests/unit/client/faults/sweep.h"

namespace forebay::testing {
namespace {

/// Down at the programs' n-th operation. False if they need fewer. `flushes`: the server makes durable what is not,
/// all the time, so that the n-th operation is another one in each run.
bool lose_power_at(Programs::Play play, std::uint64_t n, bool flushes, Random& random) {
  ServerOnDisk server;
  if (flushes) server.set_flush_interval_ms(1);
  Told told;
  Programs programs(server, told, play);
  FaultyDevice& disk = server.disk();
  disk.stop_at(n);
  programs.run();
  const bool stopped = disk.stopped();
  programs.check_errors(
      {ErrorCode::io_error, ErrorCode::failed, ErrorCode::group_broken, ErrorCode::not_found, ErrorCode::no_space});
  programs.vanish();
  server.stop();
  disk.lose_power(random);
  server.take_for_another_boot();
  if (chance(random, 2)) {
    // Once more, while the server recovers or just after.
    disk.stop_at(1 + below(random, 30));
    (void)server.start();
    server.stop();
    disk.lose_power(random);
    server.take_for_another_boot();
  }
  const auto before = states_on_disk(server.root());
  if (auto started = server.start(); !started) {
    ADD_FAILURE() << started.error().message();
    return stopped;
  }
  std::string seen;
  {
    auto admin = Admin::connect();
    check_streams(told, Promise::durable, **admin, Programs::reservation, &before);
    check_audit(**admin, false);
    seen = description(**admin, Programs::reservation);
  }
  for (auto& [stream, account] : told) account.only_durable();
  // What was recovered is what there is.
  EXPECT_TRUE(server.restart(true, [&] { disk.lose_power(random); }));
  auto admin = Admin::connect();
  EXPECT_EQ(description(**admin, Programs::reservation), seen);
  programs.go_on();
  check_streams(told, Promise::durable, **admin, Programs::reservation);
  check_audit(**admin, false);
  return stopped;
}

/// Down at the programs' n-th operation, on a machine that writes in the order in which it was asked: whatever it had
/// come to. False if they need fewer. Counts the disks on which a step was back whose space is another's.
bool lose_what_came_last_at(Programs::Play play, std::uint64_t n, std::uint64_t& overtaken) {
  ServerOnDisk server;
  Told told;
  Programs programs(server, told, play);
  FaultyDevice& disk = server.disk();
  disk.stop_at(n);
  programs.run();
  const bool stopped = disk.stopped();
  programs.vanish();
  server.stop();
  // What is left, each time, is looked at on a disk of its own.
  ServerOnDisk next;
  next.share_with_clients();
  std::size_t lost = 0;
  do {
    SCOPED_TRACE("lost: the latest " + std::to_string(lost++) + " changes");
    next.restore(server.root());
    next.take_for_another_boot();
    const auto before = states_on_disk(next.root());
    if (!overtaken_steps(before).empty()) ++overtaken;
    if (auto started = next.start(); !started) {
      ADD_FAILURE() << started.error().message();
      return stopped;
    }
    auto admin = Admin::connect();
    check_streams(told, Promise::durable, **admin, Programs::reservation, &before);
    check_audit(**admin, false);
  } while (disk.lose_latest());
  // Nothing is left of what was not synced.
  next.stop();
  disk.forget();
  server.take_for_another_boot();
  EXPECT_TRUE(server.start());
  if (!server.runs()) return stopped;
  server.share_with_clients();
  for (auto& [stream, account] : told) account.only_durable();
  programs.go_on();
  auto admin = Admin::connect();
  check_streams(told, Promise::durable, **admin, Programs::reservation);
  check_audit(**admin, false);
  return stopped;
}

// crash-matrix: power loss | server and all clients, after each device operation; every prefix of the changes that were not synced, in their order, also where streams give each other their space | the durable prefix or longer, byte for byte, in one epoch, also of a stream whose durable step has the space of another's, the drop of which was lost; cursors not behind what was durable; writing goes on
TEST(PowerLoss, at_any_operation_with_any_prefix_of_what_was_not_synced) {
  std::uint64_t overtaken = 0;
  sweep_plays(
      [&](Programs::Play play, std::uint64_t n, Random&) { return lose_what_came_last_at(play, n, overtaken); });
  if (sweeps_all() && !HasFailure()) {
    EXPECT_GT(overtaken, 0U) << "no loss of power took back that a step was dropped whose space is another's";
  }
}

// crash-matrix: power loss | server and all clients, after each device operation, and every second time again while the server recovers; unsynced writes lost, torn, reordered | the durable prefix or longer, byte for byte, in one epoch; cursors not behind what was durable; writing goes on
TEST(PowerLoss, at_any_operation_leaves_the_durable_prefix_or_more) {
  sweep_plays(
      [](Programs::Play play, std::uint64_t n, Random& random) { return lose_power_at(play, n, false, random); });
}

/// How often files are synced while the programs run without an accident.
std::uint64_t syncs(Programs::Play play, bool flushes) {
  log::set_level(log::Level::error);
  ServerOnDisk server;
  if (flushes) server.set_flush_interval_ms(1);
  Told told;
  Programs programs(server, told, play);
  server.disk().reset();
  programs.run();
  const std::uint64_t found = server.disk().operations(Operation::sync);
  programs.vanish();
  return found;
}

// crash-matrix: power loss | server and all clients, after as many operations of the device, while the server makes committed steps durable by itself every millisecond | the durable prefix or longer, byte for byte, in one epoch; writing goes on
TEST(PowerLoss, while_the_flusher_is_at_work_leaves_the_durable_prefix_or_more) {
  for (const Programs::Play play : all_plays)
    EXPECT_GT(syncs(play, true), syncs(play, false)) << "the flusher does nothing while the programs run";
  sweep_plays(
      [](Programs::Play play, std::uint64_t n, Random& random) { return lose_power_at(play, n, true, random); });
}

}  // namespace
}  // namespace forebay::testing
