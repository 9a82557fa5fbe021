// SPDX-License-Identifier: Apache-2.0
// What every data path promises, whatever network it uses.
#include <poll.h>

#include "base/checksum.h"
#include "tests/unit/fabric/path_fixture.h"

namespace forebay::testing {
namespace {

/// A file whose writes fail from an offset on.
class FailingFile final : public File {
 public:
  FailingFile(std::shared_ptr<File> file, std::uint64_t first_bad) : file_(std::move(file)), first_bad_(first_bad) {}
  Result<void> read_at(std::uint64_t offset, std::span<std::byte> bytes) const override {
    if (offset + bytes.size() > first_bad_) return fail(ErrorCode::io_error, "the disk failed");
    return file_->read_at(offset, bytes);
  }
  Result<void> write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
    if (offset + bytes.size() > first_bad_) return fail(ErrorCode::no_space, "the disk is full");
    return file_->write_at(offset, bytes);
  }
  Result<void> allocate(std::uint64_t) override { return {}; }
  Result<void> free_space(std::uint64_t, std::uint64_t) override { return {}; }
  Result<void> sync() override { return {}; }
  Result<std::uint64_t> size() const override { return file_->size(); }
  int descriptor() const noexcept override { return -1; }

 private:
  const std::shared_ptr<File> file_;
  const std::uint64_t first_bad_;
};

/// A file whose first write waits until it is let go.
class SlowFile final : public File {
 public:
  explicit SlowFile(std::shared_ptr<File> file) : file_(std::move(file)) {}
  Result<void> read_at(std::uint64_t offset, std::span<std::byte> bytes) const override {
    return file_->read_at(offset, bytes);
  }
  Result<void> write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
    {
      std::unique_lock lock(mutex_);
      ++begun_;
      changed_.notify_all();
      changed_.wait(lock, [this] { return let_go_; });
    }
    return file_->write_at(offset, bytes);
  }
  Result<void> allocate(std::uint64_t) override { return {}; }
  Result<void> free_space(std::uint64_t, std::uint64_t) override { return {}; }
  Result<void> sync() override { return {}; }
  Result<std::uint64_t> size() const override { return file_->size(); }
  int descriptor() const noexcept override { return -1; }

  /// Waits until a write has begun.
  void wait_for_write() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(60), [this] { return begun_ > 0; }));
  }
  /// How many writes had begun by then.
  int let_go() {
    const std::lock_guard lock(mutex_);
    let_go_ = true;
    changed_.notify_all();
    return begun_;
  }

 private:
  const std::shared_ptr<File> file_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int begun_ = 0;
  bool let_go_ = false;
};

using DataPathTest = PathTest;

/// Paths that wait for nothing long.
class HastyPathTest : public PathTest {
 protected:
  HastyPathTest() : PathTest(1000) {}
  void SetUp() override {
    PathTest::SetUp();
    // The first use of libfabric may take longer than these paths may be silent.
    if (GetParam() == "libfabric") {
      ASSERT_TRUE(endpoints()("tcp", "127.0.0.1"));
    }
  }
};

TEST_P(DataPathTest, bytes_of_requests_arrive_in_order) {
  Random random(test_seed());
  Path path = connect();
  ASSERT_TRUE(path.client);
  const std::vector<std::uint64_t> sizes{1,       4096,    65'536,       65'537,      mib - 1,     mib,
                                         mib + 1, 4 * mib, 5 * mib + 77, 8 * mib - 5, 3 * mib + 1, 2 * mib + 65'536};
  std::uint64_t ticket = 0;
  for (const std::uint64_t size : sizes) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> places;
    std::vector<std::byte> expected;
    while (expected.size() < size) {
      const std::uint64_t offset = below(random, file_bytes);
      const std::uint64_t length = std::min({1 + below(random, 2 * mib), file_bytes - offset, size - expected.size()});
      places.emplace_back(offset, length);
      expected.insert(expected.end(), content_.begin() + static_cast<std::ptrdiff_t>(offset),
                      content_.begin() + static_cast<std::ptrdiff_t>(offset + length));
    }
    std::vector<std::byte> out(size);
    ASSERT_TRUE(path.server->send(transfer(++ticket, places)));
    const auto before = static_cast<std::uint32_t>(ticket);
    std::uint32_t checksum = before;
    const auto received = path.client->receive(ticket, fabric::Incoming(out, &checksum), wait_on);
    ASSERT_TRUE(received) << size << ": " << received.error().message();
    EXPECT_TRUE(out == expected) << size;
    EXPECT_EQ(checksum, crc32c(expected, before)) << size;
  }
}

TEST_P(DataPathTest, bytes_go_to_several_places_each_with_its_checksum) {
  Random random(test_seed() + 2);
  Path path = connect();
  ASSERT_TRUE(path.client);
  for (std::uint64_t ticket = 1; ticket <= 12; ++ticket) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> places;
    std::vector<std::vector<std::byte>> outs;
    const std::uint64_t longest = chance(random, 2) ? 5000 : mib;
    for (std::uint64_t i = 0; i < 1 + below(random, 6); ++i) {
      const std::uint64_t length = 1 + below(random, longest);
      places.emplace_back(below(random, file_bytes - length), length);
      outs.emplace_back(length);
    }
    std::vector<std::uint32_t> checksums(outs.size(), 77);
    std::vector<fabric::Incoming::Part> parts;
    for (std::size_t i = 0; i < outs.size(); ++i) parts.push_back({outs[i], i % 2 == 0 ? &checksums[i] : nullptr});
    ASSERT_TRUE(path.server->send(transfer(ticket, places)));
    if (ticket % 2 == 0) {
      ASSERT_TRUE(path.client->receive(ticket, fabric::Incoming(parts), wait_on));
    } else {
      fabric::Incoming incoming{std::span<const fabric::Incoming::Part>(parts)};
      while (true) {
        const auto all = path.client->receive_some(ticket, incoming, wait_on);
        ASSERT_TRUE(all) << all.error().message();
        if (*all) break;
        pollfd ready{path.client->descriptor(), POLLIN, 0};
        (void)::poll(&ready, 1, 60'000);
      }
    }
    for (std::size_t i = 0; i < outs.size(); ++i) {
      const auto expected = std::span(content_).subspan(places[i].first, places[i].second);
      EXPECT_TRUE(std::ranges::equal(outs[i], expected));
      EXPECT_EQ(checksums[i], i % 2 == 0 ? crc32c(expected) : 77);
    }
  }
}

TEST_P(DataPathTest, a_failure_is_the_answer_to_who_does_not_wait_either) {
  Path path = connect();
  ASSERT_TRUE(path.client);
  std::vector<std::byte> out(4096);
  const fabric::Incoming::Part part{out};
  ASSERT_TRUE(path.server->refuse(1, {ErrorCode::step_gone, "the step was dropped", "step 7"}));
  fabric::Incoming incoming{std::span(&part, 1)};
  auto answer = path.client->receive_some(1, incoming, wait_on);
  while (answer) {
    pollfd ready{path.client->descriptor(), POLLIN, 0};
    (void)::poll(&ready, 1, 60'000);
    answer = path.client->receive_some(1, incoming, wait_on);
  }
  EXPECT_EQ(answer.error().code, ErrorCode::step_gone);
  EXPECT_FALSE(path.client->is_broken());
  ASSERT_TRUE(path.server->send(transfer(2, {{17, 4096}})));
  ASSERT_TRUE(path.client->receive(2, fabric::Incoming(out), wait_on));
  EXPECT_TRUE(std::equal(out.begin(), out.end(), content_.begin() + 17));
}

TEST_P(DataPathTest, one_thread_writes_to_two_servers_by_turns) {
  Random random(test_seed() + 3);
  const auto window = open_window();
  Path paths[2] = {connect(window), {}};
  auto other = posix_device().open(directory_.path("other"), OpenMode::create_new);
  ASSERT_TRUE(other);
  std::shared_ptr<File> other_file(std::move(*other));
  ASSERT_TRUE(other_file->write_at(0, content_));
  auto other_window = std::make_shared<fabric::WriteWindow>();
  other_window->add_segment(4, other_file);
  const fabric::WriteWindow::Range whole{4, 0, file_bytes};
  ASSERT_TRUE(other_window->allow_only({&whole, 1}));
  paths[1] = connect(other_window);
  ASSERT_TRUE(paths[0].client && paths[1].client);
  std::vector<std::byte> bytes(6 * mib + 5);
  std::ranges::generate(bytes, [&] { return static_cast<std::byte>(random()); });
  std::size_t sent[2] = {0, 0};
  while (sent[0] < bytes.size() || sent[1] < bytes.size()) {
    pollfd ready[2] = {};
    for (std::uint32_t i = 0; i < 2; ++i) {
      ready[i] = {sent[i] < bytes.size() ? paths[i].client->descriptor() : -1, POLLIN, 0};
      if (paths[i].client->write_waits_to_send()) ready[i].events = POLLOUT;
      if (sent[i] == bytes.size()) continue;
      const auto count = paths[i].client->write_some(3 + i, 1000 + sent[i], std::span(bytes).subspan(sent[i]), wait_on);
      ASSERT_TRUE(count) << count.error().message();
      sent[i] += *count;
      if (*count > 0) ready[i].fd = -1;
    }
    if (ready[0].fd >= 0 && ready[1].fd >= 0) (void)::poll(ready, 2, 60'000);
  }
  for (const Path& path : paths) {
    EXPECT_FALSE(path.client->is_broken());
    ASSERT_TRUE(path.client->finish_writes(wait_on));
  }
  for (const auto& file : {file_, other_file}) {
    std::vector<std::byte> written(bytes.size());
    ASSERT_TRUE(file->read_at(1000, written));
    EXPECT_TRUE(written == bytes);
  }
}

TEST_P(DataPathTest, one_thread_takes_from_another_server_what_the_first_has_not_sent_yet) {
  // Who waits all the same asks it, and hears that it is not to.
  const auto never_wait = [] { return Result<void>(fail(ErrorCode::cancelled, "it waited")); };
  Path paths[2] = {connect(), connect()};
  ASSERT_TRUE(paths[0].client && paths[1].client);
  constexpr std::uint64_t size = 6 * mib + 5;
  std::vector<std::byte> out[2] = {std::vector<std::byte>(size), std::vector<std::byte>(size)};
  const fabric::Incoming::Part parts[2] = {{out[0]}, {out[1]}};
  fabric::Incoming incoming[2] = {fabric::Incoming{std::span(&parts[0], 1)}, fabric::Incoming{std::span(&parts[1], 1)}};
  ASSERT_TRUE(paths[1].server->send(transfer(1, {{2, size}})));
  for (bool over = false; !over;) {
    const auto none = paths[0].client->receive_some(1, incoming[0], never_wait);
    ASSERT_TRUE(none) << none.error().message();
    ASSERT_FALSE(*none);
    const auto some = paths[1].client->receive_some(1, incoming[1], never_wait);
    ASSERT_TRUE(some) << some.error().message();
    over = *some;
    pollfd ready{paths[1].client->descriptor(), POLLIN, 0};
    if (!over) (void)::poll(&ready, 1, 60'000);
  }
  ASSERT_TRUE(paths[0].server->send(transfer(1, {{1, size}})));
  while (true) {
    const auto some = paths[0].client->receive_some(1, incoming[0], wait_on);
    ASSERT_TRUE(some) << some.error().message();
    if (*some) break;
    pollfd ready{paths[0].client->descriptor(), POLLIN, 0};
    (void)::poll(&ready, 1, 60'000);
  }
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_FALSE(paths[i].client->is_broken());
    EXPECT_TRUE(std::equal(out[i].begin(), out[i].end(), content_.begin() + 1 + static_cast<std::ptrdiff_t>(i)));
  }
}

TEST_P(DataPathTest, what_cannot_be_read_is_the_answer_and_the_path_goes_on) {
  Path path = connect();
  ASSERT_TRUE(path.client);
  const auto bad = std::make_shared<FailingFile>(file_, 5 * mib);
  std::uint64_t ticket = 0;
  for (const std::uint64_t size : {std::uint64_t{4096}, mib, 3 * mib, 7 * mib}) {
    fabric::Transfer failing;
    failing.ticket = ++ticket;
    failing.pieces.push_back({bad, 6 * mib - std::min(size, 6 * mib), size});
    std::vector<std::byte> out(size);
    ASSERT_TRUE(path.server->send(std::move(failing)));
    const auto failed = path.client->receive(ticket, fabric::Incoming(out), wait_on);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().code, ErrorCode::io_error) << failed.error().message();
    EXPECT_FALSE(path.client->is_broken());
    ASSERT_TRUE(path.server->send(transfer(++ticket, {{17, size}})));
    ASSERT_TRUE(path.client->receive(ticket, fabric::Incoming(out), wait_on));
    EXPECT_TRUE(std::equal(out.begin(), out.end(), content_.begin() + 17));
  }
}

TEST_P(DataPathTest, a_refusal_is_the_answer_and_the_path_goes_on) {
  Path path = connect();
  ASSERT_TRUE(path.client);
  std::uint64_t ticket = 0;
  for (const std::uint64_t size : {std::uint64_t{64}, 4 * mib, std::uint64_t{64}}) {
    std::vector<std::byte> out(size);
    ASSERT_TRUE(path.server->refuse(++ticket, {ErrorCode::step_gone, "the step was dropped", "step 7"}));
    const auto refused = path.client->receive(ticket, fabric::Incoming(out), wait_on);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::step_gone);
    EXPECT_FALSE(path.client->is_broken());
    ASSERT_TRUE(path.server->send(transfer(++ticket, {{0, size}})));
    ASSERT_TRUE(path.client->receive(ticket, fabric::Incoming(out), wait_on));
    EXPECT_TRUE(std::equal(out.begin(), out.end(), content_.begin()));
  }
}

TEST_P(DataPathTest, a_client_writes_blocks_of_all_sizes) {
  Random random(test_seed() + 1);
  Path path = connect(open_window());
  ASSERT_TRUE(path.client);
  for (int round = 0; round < 6; ++round) {
    for (int block = 0; block < 5; ++block) {
      const std::uint64_t offset = below(random, file_bytes);
      const std::uint64_t longest = chance(random, 2) ? 8192 : 4 * mib;
      std::vector<std::byte> bytes(std::min(1 + below(random, longest), file_bytes - offset));
      std::ranges::generate(bytes, [&] { return static_cast<std::byte>(random()); });
      // What is written to a place last is what it has.
      std::ranges::copy(bytes, content_.begin() + static_cast<std::ptrdiff_t>(offset));
      ASSERT_TRUE(path.client->write(3, offset, bytes, wait_on));
      std::ranges::fill(bytes, std::byte{0xAA});  // the caller's memory is its own again
    }
    ASSERT_TRUE(path.client->finish_writes(wait_on));
    std::vector<std::byte> written(file_bytes);
    ASSERT_TRUE(file_->read_at(0, written));
    ASSERT_TRUE(written == content_) << "round " << round;
  }
}

TEST_P(DataPathTest, a_failed_write_is_told_at_the_finish_and_only_then) {
  auto window = std::make_shared<fabric::WriteWindow>();
  window->add_segment(3, std::make_shared<FailingFile>(file_, 4 * mib));
  const fabric::WriteWindow::Range whole{3, 0, file_bytes};
  ASSERT_TRUE(window->allow_only({&whole, 1}));
  Path path = connect(window);
  ASSERT_TRUE(path.client);
  const std::vector<std::byte> bytes(6 * mib, std::byte{1});
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(path.client->write(3, 0, bytes, wait_on));
    ASSERT_TRUE(path.client->write(3, 0, std::span(bytes).first(100), wait_on));
    const auto failed = path.client->finish_writes(wait_on);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().code, ErrorCode::no_space);
    EXPECT_FALSE(path.client->is_broken());
    ASSERT_TRUE(path.client->write(3, 0, std::span(bytes).first(2 * mib), wait_on));
    EXPECT_TRUE(path.client->finish_writes(wait_on));
  }
}

TEST_P(DataPathTest, a_write_elsewhere_ends_the_path) {
  auto window = std::make_shared<fabric::WriteWindow>();
  window->add_segment(3, file_);
  const fabric::WriteWindow::Range half{3, 0, 4 * mib};
  ASSERT_TRUE(window->allow_only({&half, 1}));
  Path path = connect(window);
  ASSERT_TRUE(path.client);
  const std::vector<std::byte> bytes(2 * mib, std::byte{1});
  (void)path.client->write(3, 3 * mib, bytes, wait_on);
  EXPECT_FALSE(path.client->finish_writes(wait_on));
  EXPECT_TRUE(path.client->is_broken());
  EXPECT_EQ(ends_.wait_for(1).code, ErrorCode::protocol);
  std::vector<std::byte> after(file_bytes);
  ASSERT_TRUE(file_->read_at(0, after));
  EXPECT_TRUE(std::equal(after.begin() + 4 * mib, after.end(), content_.begin() + 4 * mib));
}

TEST_P(DataPathTest, a_client_that_goes_ends_its_path_and_may_open_another) {
  auto window = open_window();
  Path path = connect(window);
  ASSERT_TRUE(path.client);
  const std::vector<std::byte> bytes(2 * mib, std::byte{1});
  ASSERT_TRUE(path.client->write(3, 0, bytes, wait_on));
  path.client.reset();
  EXPECT_EQ(ends_.wait_for(1).code, ErrorCode::disconnected);
  Path next = connect(window);
  ASSERT_TRUE(next.client);
  EXPECT_TRUE(next.client->write(3, mib, bytes, wait_on));
  EXPECT_TRUE(next.client->finish_writes(wait_on));
}

TEST_P(DataPathTest, an_earlier_path_writes_no_more) {
  auto window = open_window();
  Path earlier = connect(window);
  Path later = connect(window);
  ASSERT_TRUE(earlier.client && later.client);
  const std::vector<std::byte> old(2 * mib, std::byte{1});
  const std::vector<std::byte> bytes(mib, std::byte{2});
  (void)earlier.client->write(3, 0, old, wait_on);
  EXPECT_FALSE(earlier.client->finish_writes(wait_on));
  EXPECT_EQ(ends_.wait_for(1).code, ErrorCode::disconnected);
  EXPECT_TRUE(later.client->write(3, 0, bytes, wait_on));
  EXPECT_TRUE(later.client->finish_writes(wait_on));
  std::vector<std::byte> after(file_bytes);
  ASSERT_TRUE(file_->read_at(0, after));
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), after.begin()));
  EXPECT_TRUE(std::equal(after.begin() + mib, after.end(), content_.begin() + mib));
}

TEST_P(DataPathTest, what_an_earlier_path_is_writing_does_not_overtake) {
  const auto slow = std::make_shared<SlowFile>(file_);
  auto window = std::make_shared<fabric::WriteWindow>();
  window->add_segment(3, slow);
  const fabric::WriteWindow::Range whole{3, 0, file_bytes};
  ASSERT_TRUE(window->allow_only({&whole, 1}));
  Path earlier = connect(window);
  ASSERT_TRUE(earlier.client);
  const std::vector<std::byte> old(4096, std::byte{1});
  const std::vector<std::byte> bytes(4096, std::byte{2});
  ASSERT_TRUE(earlier.client->write(3, 0, old, wait_on));
  slow->wait_for_write();
  // What is being written to nobody else may have.
  EXPECT_FALSE(window->allow_only({}));
  ASSERT_TRUE(window->allow_only({&whole, 1}));
  Path later = connect(window);
  ASSERT_TRUE(later.client);
  ASSERT_TRUE(later.client->write(3, 0, bytes, wait_on));
  EXPECT_EQ(slow->let_go(), 1);
  EXPECT_TRUE(later.client->finish_writes(wait_on));
  std::vector<std::byte> after(bytes.size());
  ASSERT_TRUE(file_->read_at(0, after));
  EXPECT_TRUE(after == bytes);
}

TEST_P(DataPathTest, a_window_is_closed_with_the_end_of_the_write_under_way) {
  const auto slow = std::make_shared<SlowFile>(file_);
  std::weak_ptr<File> held = slow;
  auto window = std::make_shared<fabric::WriteWindow>();
  window->add_segment(3, slow);
  const fabric::WriteWindow::Range whole{3, 0, file_bytes};
  ASSERT_TRUE(window->allow_only({&whole, 1}));
  Path path = connect(window);
  ASSERT_TRUE(path.client);
  const std::vector<std::byte> bytes(4096, std::byte{1});
  ASSERT_TRUE(path.client->write(3, 0, bytes, wait_on));
  slow->wait_for_write();
  window->close();
  EXPECT_TRUE(window->has_segment(3));
  slow->let_go();
  (void)path.client->write(3, 4096, bytes, wait_on);
  EXPECT_FALSE(path.client->finish_writes(wait_on));
  EXPECT_EQ(ends_.wait_for(1).code, ErrorCode::disconnected);
  EXPECT_FALSE(window->has_segment(3));
}

TEST_P(HastyPathTest, a_client_that_takes_nothing_loses_its_path) {
  Path path = connect();
  ASSERT_TRUE(path.client);
  const std::vector<std::pair<std::uint64_t, std::uint64_t>> places(8, {0, file_bytes});
  ASSERT_TRUE(path.server->send(transfer(1, places)));
  EXPECT_EQ(ends_.wait_for(1).code, ErrorCode::disconnected);
}

TEST_P(HastyPathTest, a_server_that_sends_nothing_is_given_up) {
  Path path = connect();
  ASSERT_TRUE(path.client);
  std::vector<std::byte> out(2 * mib);
  const auto silent = path.client->receive(1, fabric::Incoming(out), wait_on);
  ASSERT_FALSE(silent);
  EXPECT_EQ(silent.error().code, ErrorCode::timeout) << silent.error().message();
  EXPECT_TRUE(path.client->is_broken());
}

TEST_P(HastyPathTest, a_path_without_requests_stays) {
  Path path = connect();
  ASSERT_TRUE(path.client);
  Path silent = connect();
  ASSERT_TRUE(silent.client);
  std::vector<std::byte> out(2 * mib);
  EXPECT_FALSE(silent.client->receive(1, fabric::Incoming(out), wait_on));  // as long as a path may be silent
  ASSERT_TRUE(path.server->send(transfer(1, {{0, out.size()}})));
  EXPECT_TRUE(path.client->receive(1, fabric::Incoming(out), wait_on));
}

TEST_P(DataPathTest, a_path_that_the_server_closes_is_lost) {
  Path path = connect();
  ASSERT_TRUE(path.client);
  path.server->close();
  std::vector<std::byte> out(2 * mib);
  const auto lost = path.client->receive(1, fabric::Incoming(out), wait_on);
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code, ErrorCode::disconnected);
  EXPECT_TRUE(path.client->is_broken());
  EXPECT_EQ(ends_.wait_for(1).code, ErrorCode::disconnected);
}

TEST_P(DataPathTest, an_interrupted_client_gives_its_path_up) {
  Path path = connect();
  ASSERT_TRUE(path.client);
  std::vector<std::byte> out(2 * mib);
  const auto interrupted = path.client->receive(
      1, fabric::Incoming(out), []() -> Result<void> { return fail(ErrorCode::cancelled, "interrupted"); });
  ASSERT_FALSE(interrupted);
  EXPECT_EQ(interrupted.error().code, ErrorCode::cancelled);
  EXPECT_TRUE(path.client->is_broken());
  path.client.reset();
  path.server->close();  // as the end of the control connection does
  EXPECT_EQ(ends_.wait_for(1).code, ErrorCode::disconnected);
}

TEST_P(DataPathTest, a_client_that_takes_nothing_keeps_nobody_waiting) {
  Path idle = connect();
  Path busy = connect();
  ASSERT_TRUE(idle.client && busy.client);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> places(8, {0, file_bytes});
  std::uint64_t sent = 0;
  while (sent < 2 * fabric::ServerPath::transfers_max && idle.server->send(transfer(++sent, places))) {
  }
  EXPECT_LE(sent, fabric::ServerPath::transfers_max + 2);
  std::vector<std::byte> out(file_bytes);
  for (std::uint64_t ticket = 1; ticket <= 8; ++ticket) {
    ASSERT_TRUE(busy.server->send(transfer(ticket, {{0, file_bytes}})));
    ASSERT_TRUE(busy.client->receive(ticket, fabric::Incoming(out), wait_on));
    EXPECT_TRUE(out == content_);
  }
}

TEST_P(DataPathTest, a_link_that_falls_silent_is_given_up_by_both_ends) {
  if (!is_fake()) GTEST_SKIP() << "a real link does not fall silent at will";
  Path path = connect();
  ASSERT_TRUE(path.client);
  std::vector<std::byte> out(4 * mib);
  ASSERT_TRUE(path.server->send(transfer(1, {{0, out.size()}})));
  ASSERT_TRUE(path.client->receive(1, fabric::Incoming(out), wait_on));
  path.wire->fall_silent();
  ASSERT_TRUE(path.server->send(transfer(2, {{0, out.size()}})));
  // What a connection does when its heartbeat is not answered.
  int asked = 0;
  const auto lost = path.client->receive(2, fabric::Incoming(out), [&]() -> Result<void> {
    if (++asked < 3) return {};
    return fail(ErrorCode::disconnected, "the server does not answer");
  });
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code, ErrorCode::disconnected);
  EXPECT_TRUE(path.client->is_broken());
  path.client.reset();
  path.server->close();
  EXPECT_EQ(ends_.wait_for(1).code, ErrorCode::disconnected);
}

TEST_P(DataPathTest, paths_are_bounded_and_those_that_ended_do_not_count) {
  std::vector<Path> paths;
  for (int count = 0; count < 16; ++count) paths.push_back(connect());
  EXPECT_TRUE(data_.is_full(by_fabric()));
  paths.back().server->close();
  paths.pop_back();
  (void)ends_.wait_for(1);
  const Deadline deadline = Deadline::after_ms(60'000);
  while (data_.is_full(by_fabric()) && !deadline.passed()) std::this_thread::yield();  // its thread is at its end
  EXPECT_FALSE(data_.is_full(by_fabric()));
}

INSTANTIATE_TEST_SUITE_P(networks, HastyPathTest, ::testing::Values("tcp", "libfabric", "bad_tcp", "bad_fabric"),
                         [](const auto& network) { return network.param; });
INSTANTIATE_TEST_SUITE_P(networks, DataPathTest, ::testing::Values("tcp", "libfabric", "bad_tcp", "bad_fabric"),
                         [](const auto& network) { return network.param; });

}  // namespace
}  // namespace forebay::testing
