// SPDX-License-Identifier: Apache-2.0
// One operation on the disk fails, whichever it is: of the server or of a client, while they work or while the server
// starts.
#include <algorithm>

#include <gtest/gtest.h>

#include "tests/unit/client/programs.h"
#include "tests/unit/client/sweep.h"

namespace forebay::testing {
namespace {

std::vector<StreamInfo> failed_streams(Admin& admin) {
  auto streams = admin.streams(Programs::reservation);
  EXPECT_TRUE(streams);
  if (!streams) return {};
  std::erase_if(*streams, [](const StreamInfo& stream) { return stream.status != StreamStatus::failed; });
  return std::move(*streams);
}

/// What one operation hit: one stream, or one whose data could not be synced and those that share the segment.
void check_hit_together(const std::vector<StreamInfo>& failed) {
  std::vector<std::string> sharing;
  for (const StreamInfo& stream : failed) {
    if (stream.status_text.find("which it shares") != std::string::npos) sharing.push_back(stream.status_text);
  }
  EXPECT_LE(failed.size() - sharing.size(), 1U) << failed.back().name << ": " << failed.back().status_text;
  // Each names the segment.
  for (const std::string& text : sharing) EXPECT_EQ(text, sharing.front());
}

void remove_failed(Admin& admin, Told& told) {
  for (const StreamInfo& stream : failed_streams(admin)) {
    const auto removed = admin.remove_stream({Programs::reservation, stream.name, std::nullopt}, true);
    EXPECT_TRUE(removed) << removed.error().message();
    told[stream.name] = {};
  }
}

/// What fails: an operation, with an error, or a read.
struct Fault {
  ErrorCode code = ErrorCode::io_error;
  bool read = false;

  void plan(FaultyDevice& disk, std::uint64_t n) const { read ? disk.fail_read_at(n) : disk.fail_at(n, code); }
  bool happened(const FaultyDevice& disk, std::uint64_t n) const {
    return (read ? disk.reads() : disk.operations()) >= n;
  }
};

/// The programs' n-th operation fails; then the others go on and the server is restarted (`boot`: the machine goes down
/// as they stand). False if they need fewer.
bool fail_while_working(Programs::Play play, std::uint64_t n, const Fault& fault, bool boot, Random& random) {
  ServerOnDisk server;
  Told told;
  Programs programs(server, told, play);
  FaultyDevice& disk = server.disk();
  fault.plan(disk, n);
  programs.run();
  const bool failed = fault.happened(disk, n);
  disk.reset();
  if (fault.read) {
    programs.check_errors({ErrorCode::io_error, ErrorCode::not_found});
  } else {
    programs.check_errors({ErrorCode::io_error, ErrorCode::no_space, ErrorCode::failed, ErrorCode::corrupt,
                           ErrorCode::not_found, ErrorCode::group_broken});
  }
  if (!failed) {
    programs.check_whole();
  }
  bool stream_failed = false;
  {
    auto admin = Admin::connect();
    check_streams(told, Promise::committed, **admin, Programs::reservation);
    const auto hit = failed_streams(**admin);
    check_hit_together(hit);
    if (fault.read) {
      EXPECT_TRUE(hit.empty()) << hit.front().status_text;
    }
    stream_failed = !hit.empty();
    if (!boot) {
      // Not where power is lost next: it makes everything durable.
      programs.go_on();
      check_streams(told, Promise::committed, **admin, Programs::reservation);
      EXPECT_EQ(failed_streams(**admin).size(), hit.size());
    }
  }
  programs.vanish();
  server.stop();
  std::map<std::string, storage::StreamState> before;
  if (boot) {
    disk.lose_power(random);
    server.take_for_another_boot();
    before = states_on_disk(server.root());
  }
  if (auto started = server.start(); !started) {
    ADD_FAILURE() << started.error().message();
    return failed;
  }
  auto admin = Admin::connect();
  if (boot) {
    check_streams(told, Promise::durable, **admin, Programs::reservation, &before);
    for (auto& [stream, account] : told) account.only_durable();
  } else {
    check_streams(told, Promise::committed, **admin, Programs::reservation);
  }
  check_audit(**admin, stream_failed);
  remove_failed(**admin, told);
  programs.go_on();
  check_streams(told, Promise::committed, **admin, Programs::reservation);
  check_audit(**admin, false);
  return failed;
}

// crash-matrix: an operation of the disk fails with an I/O error | server or client, any write, sync, allocation, creation, opening, renaming, removal | every committed step, at once and after a restart of the server; at most one stream says failed, or those that share the segment which was not synced; all others are written on, before the restart and after
TEST(FailingOperations, an_io_error_anywhere_loses_nothing_that_was_committed) {
  sweep_plays([](Programs::Play play, std::uint64_t n, Random& random) {
    return fail_while_working(play, n, Fault{}, false, random);
  });
}

// crash-matrix: an operation of the disk fails with an I/O error, and power is lost later | server or client, any write, sync, allocation, creation, opening, renaming, removal | everything that was told to be durable; no failed sync counts; at most one stream says failed before, or those that share the segment which was not synced
TEST(FailingOperations, an_io_error_anywhere_loses_nothing_that_was_durable) {
  sweep_plays([](Programs::Play play, std::uint64_t n, Random& random) {
    return fail_while_working(play, n, Fault{}, true, random);
  });
}

// crash-matrix: an operation of the disk fails for want of space | server or client, any operation, once | every committed step, at once and after a restart of the server; all streams that do not say failed are written on, before the restart and after
TEST(FailingOperations, want_of_space_anywhere_loses_nothing_that_was_committed) {
  sweep_plays([](Programs::Play play, std::uint64_t n, Random& random) {
    return fail_while_working(play, n, Fault{ErrorCode::no_space, false}, false, random);
  });
}

// crash-matrix: an operation of the disk fails for want of space, and power is lost later | server or client, any operation, once | everything that was told to be durable; writing goes on
TEST(FailingOperations, want_of_space_anywhere_loses_nothing_that_was_durable) {
  sweep_plays([](Programs::Play play, std::uint64_t n, Random& random) {
    return fail_while_working(play, n, Fault{ErrorCode::no_space, false}, true, random);
  });
}

// crash-matrix: a read of the disk fails with an I/O error | server or client, any read or listing of files | every committed step, at once and after a restart of the server; whoever reads is told so and reads the same well the next time; no stream fails, all are written on
TEST(FailingOperations, a_failed_read_anywhere_loses_nothing_that_was_committed) {
  sweep_plays([](Programs::Play play, std::uint64_t n, Random& random) {
    return fail_while_working(play, n, Fault{ErrorCode::io_error, true}, false, random);
  });
}

/// The server's n-th operation while it starts after a loss of power fails. False if it needs fewer.
bool fail_while_starting(Programs::Play play, std::uint64_t n, const Fault& fault, Random& random) {
  ServerOnDisk server;
  Told told;
  Programs programs(server, told, play);
  FaultyDevice& disk = server.disk();
  disk.stop_at(1 + below(random, 350));
  programs.run();
  programs.vanish();
  server.stop();
  disk.lose_power(random);
  server.take_for_another_boot();
  const auto before = states_on_disk(server.root());
  fault.plan(disk, n);
  const auto started = server.start();
  const bool failed = fault.happened(disk, n);
  if (!failed) {
    EXPECT_TRUE(started) << started.error().message();
  }
  EXPECT_TRUE(server.restart(false, [&] { disk.reset(); }));
  if (!server.runs()) return failed;
  auto admin = Admin::connect();
  check_streams(told, Promise::durable, **admin, Programs::reservation, &before);
  for (auto& [stream, account] : told) account.only_durable();
  check_audit(**admin, true);
  remove_failed(**admin, told);
  programs.go_on();
  check_streams(told, Promise::committed, **admin, Programs::reservation);
  check_audit(**admin, false);
  return failed;
}

// crash-matrix: an operation of the disk fails while the server starts after a loss of power | server, any operation of its recovery | the next start finds the same streams as if nothing had failed
TEST(FailingOperations, an_error_while_the_server_recovers_loses_nothing) {
  sweep(60, [](std::uint64_t n, Random& random) {
    const Fault fault{chance(random, 2) ? ErrorCode::io_error : ErrorCode::no_space, false};
    return fail_while_starting(Programs::Play::everything, n, fault, random);
  });
}

// crash-matrix: a read of the disk fails while the server starts after a loss of power | server, any read or listing of files of its recovery | the next start finds the same streams as if nothing had failed
TEST(FailingOperations, a_failed_read_while_the_server_recovers_loses_nothing) {
  sweep(100, [](std::uint64_t n, Random& random) {
    return fail_while_starting(Programs::Play::everything, n, Fault{ErrorCode::io_error, true}, random);
  });
}

}  // namespace
}  // namespace forebay::testing
