// SPDX-License-Identifier: Apache-2.0
// One operation on the disk fails, whichever it is: of the server or of a client, while they work or while the server
// starts.
#include <algorithm>
#include <iterator>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "base/log.h"
#include "tests/unit/client/faults/programs.h"
#include "tests/unit/client/faults/sweep.h"

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
  std::uint64_t reads = 0;
  for (const Programs::Play play : all_plays) {
    SCOPED_TRACE(name_of(play));
    reads += sweep_operations(6, [&](std::uint64_t n, Random& random) {
      return fail_while_working(play, n, Fault{ErrorCode::io_error, true}, false, random);
    });
  }
  // Fewer than there are other operations: steps are not read while they are written, but for a consumer's.
  check_counted(reads, 20);
}

/// Streams that have not failed, by name.
std::map<std::string, std::string> whole_streams(Admin& admin) {
  const auto streams = admin.streams(Programs::reservation);
  EXPECT_TRUE(streams) << streams.error().message();
  std::map<std::string, std::string> found;
  for (const StreamInfo& info : *streams) {
    if (info.status == StreamStatus::failed) continue;
    std::string& text = found[info.name];
    text = info.uuid + ": " + std::to_string(info.steps) + " steps";
    if (info.committed) text += " to " + std::to_string(*info.committed);
    for (const ConsumerInfo& consumer : info.consumers)
      text += ", " + consumer.name + " @ " + std::to_string(consumer.position);
  }
  return found;
}

/// What the machine's going down in the middle of a play has left on the disk.
class Image {
 public:
  Image(Programs::Play play, std::uint64_t number) : programs_(server_, told_, play) {
    Random random(test_seed() + 1'000'000 * number);
    server_.disk().stop_at(1 + below(random, 2 * operations_min(play)));
    programs_.run();
    programs_.vanish();
    server_.stop();
    server_.disk().lose_power(random);
    server_.take_for_another_boot();
    server_.copy_to(copy_.path("root"));
    told_then_ = told_;
    before_ = states_on_disk(server_.root());
    EXPECT_TRUE(server_.start());
    if (server_.runs()) expected_ = whole_streams(**Admin::connect());
  }

  /// The server's n-th operation while it starts fails. False if it needs fewer.
  bool fail_while_starting(std::uint64_t n, const Fault& fault) {
    restore();
    FaultyDevice& disk = server_.disk();
    fault.plan(disk, n);
    const auto started = server_.start();
    const bool failed = fault.happened(disk, n);
    if (!failed) {
      EXPECT_TRUE(started) << started.error().message();
    }
    EXPECT_TRUE(server_.restart(false, [&] { disk.reset(); }));
    if (!server_.runs()) return failed;
    auto admin = Admin::connect();
    check_streams(told_, Promise::durable, **admin, Programs::reservation, &before_);
    check_hit_together(failed_streams(**admin));
    auto found = whole_streams(**admin);
    for (const StreamInfo& stream : failed_streams(**admin)) found[stream.name] = expected_.at(stream.name);
    EXPECT_EQ(found, expected_);
    check_audit(**admin, true);
    remove_failed(**admin, told_);
    go_on(**admin);
    return failed;
  }

  /// The server dies at that operation, and the machine stays up: the next start must not take for checked what this
  /// one had not come to. False if there are fewer.
  bool die_while_starting(std::uint64_t n) {
    restore();
    FaultyDevice& disk = server_.disk();
    disk.stop_at(n);
    (void)server_.start();
    const bool stopped = disk.stopped();
    EXPECT_TRUE(server_.restart(false, [&] { disk.reset(); }));
    if (!server_.runs()) return stopped;
    auto admin = Admin::connect();
    check_streams(told_, Promise::durable, **admin, Programs::reservation, &before_);
    EXPECT_EQ(whole_streams(**admin), expected_);
    check_audit(**admin, false);
    go_on(**admin);
    return stopped;
  }

  /// The machine goes down again behind that operation. False if there are fewer.
  bool lose_power_while_starting(std::uint64_t n, Random& random) {
    restore();
    FaultyDevice& disk = server_.disk();
    disk.stop_at(n);
    (void)server_.start();
    const bool stopped = disk.stopped();
    server_.stop();
    disk.lose_power(random);
    server_.take_for_another_boot();
    const auto before = states_on_disk(server_.root());
    const auto started = server_.start();
    EXPECT_TRUE(started) << started.error().message();
    if (!server_.runs()) return stopped;
    auto admin = Admin::connect();
    check_streams(told_, Promise::durable, **admin, Programs::reservation, &before);
    check_audit(**admin, false);
    go_on(**admin);
    return stopped;
  }

 private:
  /// After a loss of power that all else has come through.
  void go_on(Admin& admin) {
    for (auto& [stream, account] : told_) account.only_durable();
    programs_.go_on();
    check_streams(told_, Promise::committed, admin, Programs::reservation);
    check_audit(admin, false);
  }
  /// Everything as it was when the machine had come up.
  void restore() {
    programs_.vanish();
    told_ = told_then_;
    server_.restore(copy_.path("root"));
  }

  ServerOnDisk server_;
  Told told_;
  Programs programs_;
  TemporaryDirectory copy_ = TemporaryDirectory::in_memory();
  Told told_then_;
  std::map<std::string, storage::StreamState> before_;
  std::map<std::string, std::string> expected_;
};

/// Sweeps over the operations of a start on each of some disks.
template <class FaultAt>
void sweep_images(const FaultAt& fault_at) {
  using enum Programs::Play;
  constexpr Programs::Play plays[] = {everything, everything,       everything,       everything,
                                      contended,  full_reservation, full_reservation, contended};
  std::uint64_t number = 0;
  std::uint64_t operations = 0;
  for (const Programs::Play play : plays) {
    if (::testing::Test::HasFailure()) return;
    SCOPED_TRACE("image " + std::to_string(++number));
    log::set_level(log::Level::off);
    Image image(play, number);
    operations += sweep_operations(6, [&](std::uint64_t n, Random& random) { return fault_at(image, n, random); });
  }
  // Few where power was lost early, but not on all of them.
  check_counted(operations, 10 * std::size(plays));
}

// crash-matrix: an operation of the disk fails while the server starts after a loss of power | server, any operation of its recovery of each of eight disks, with an I/O error and for want of space | the next start finds the same streams as if nothing had failed; at most one says failed, or those that share a segment
TEST(FailingOperations, an_error_while_the_server_recovers_loses_nothing) {
  for (const ErrorCode code : {ErrorCode::io_error, ErrorCode::no_space}) {
    sweep_images(
        [code](Image& image, std::uint64_t n, Random&) { return image.fail_while_starting(n, Fault{code, false}); });
  }
}

// crash-matrix: a read of the disk fails while the server starts after a loss of power | server, any read or listing of files of its recovery of each of eight disks | the next start finds the same streams as if nothing had failed
TEST(FailingOperations, a_failed_read_while_the_server_recovers_loses_nothing) {
  sweep_images([](Image& image, std::uint64_t n, Random&) {
    return image.fail_while_starting(n, Fault{ErrorCode::io_error, true});
  });
}

// crash-matrix: power loss | server, dies at each operation of its first start on each of eight disks, and the machine stays up | the next start finds the same streams as if it had not: no step is served that was not checked; writing goes on
TEST(FailingOperations, a_server_that_dies_while_it_recovers_leaves_nothing_unchecked) {
  sweep_images([](Image& image, std::uint64_t n, Random&) { return image.die_while_starting(n); });
}

// crash-matrix: power loss | server, again after each operation of its recovery of each of eight disks | the durable prefix or longer; writing goes on
TEST(FailingOperations, power_lost_again_while_the_server_recovers_leaves_the_durable_prefix_or_more) {
  sweep_images(
      [](Image& image, std::uint64_t n, Random& random) { return image.lose_power_while_starting(n, random); });
}

}  // namespace
}  // namespace forebay::testing
