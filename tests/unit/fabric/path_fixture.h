// SPDX-License-Identifier: Apache-2.0
// Both ends of a data path in one process, over each kind of network that there is: what a path promises holds for all.
#pragma once

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/device.h"
#include "fabric/data_server.h"
#include "fabric/fabric_client_path.h"
#include "fabric/libfabric.h"
#include "fabric/tcp_client_path.h"
#include "tests/support/randomness.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/fabric/fake_network.h"

namespace forebay::testing {

inline constexpr std::uint64_t mib = std::uint64_t{1} << 20;

inline Result<void> wait_on() {
  return {};
}

/// Two ends of a TCP connection: the client's does not block, as connect_tcp() makes it.
struct SocketPair {
  Descriptor client;
  Descriptor server;

  static SocketPair make() {
    auto listener = fabric::listen_tcp("127.0.0.1", "0");
    EXPECT_TRUE(listener);
    sockaddr_in address{};
    socklen_t length = sizeof address;
    EXPECT_EQ(::getsockname(listener->get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
    auto client =
        fabric::connect_tcp("127.0.0.1", std::to_string(ntohs(address.sin_port)), Deadline::after_ms(10'000), wait_on);
    EXPECT_TRUE(client);
    Descriptor server(::accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
    EXPECT_TRUE(server.valid());
    return {std::move(*client), std::move(server)};
  }
};

/// What data paths report about their ends.
class Ends {
 public:
  fabric::DataServer::Ended hook() {
    return [this](const Error& why) {
      const std::lock_guard lock(mutex_);
      all_.push_back(why);
      changed_.notify_all();
    };
  }
  /// The n-th of them, from 1.
  Error wait_for(std::size_t n) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(60), [&] { return all_.size() >= n; }));
    return all_.size() >= n ? all_[n - 1] : Error{};
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Error> all_;
};

/// Its parameter is the network: "tcp"; "libfabric", whose own `tcp` it uses; "bad_tcp" and "bad_fabric", each path
/// over the fake network and its weather.
class PathTest : public ::testing::TestWithParam<std::string> {
 protected:
  static constexpr std::uint64_t file_bytes = 8 * mib;

  explicit PathTest(std::int64_t silence_ms = fabric::path_silence_ms_max) : silence_ms_(silence_ms) {}

  struct Path {
    std::shared_ptr<FakeWire> wire = nullptr;  // of the fake network; outlives the client
    std::unique_ptr<fabric::ClientPath> client = nullptr;
    std::shared_ptr<fabric::ServerPath> server = nullptr;
  };

  void SetUp() override {
    auto file = posix_device().open(directory_.path("segment"), OpenMode::create_new);
    ASSERT_TRUE(file);
    file_ = std::move(*file);
    content_.resize(file_bytes);
    Random random(test_seed());
    for (std::size_t at = 0; at + 8 <= content_.size(); at += 8) {
      const std::uint64_t number = random();
      std::memcpy(content_.data() + at, &number, sizeof number);
    }
    ASSERT_TRUE(file_->write_at(0, content_));
  }

  bool by_fabric() const { return GetParam() == "libfabric" || GetParam() == "bad_fabric"; }
  bool is_fake() const { return GetParam().starts_with("bad_"); }

  fabric::EndpointMaker endpoints() { return is_fake() ? network_.endpoints() : fabric::open_libfabric_endpoint; }

  /// The two ends of a connection, through the fake network where that is wanted.
  SocketPair sockets(Path& path) {
    SocketPair near = SocketPair::make();
    if (!is_fake()) return near;
    SocketPair far = SocketPair::make();
    ::fcntl(far.client.get(), F_SETFL, ::fcntl(far.client.get(), F_GETFL) & ~O_NONBLOCK);
    path.wire = network_.relay(std::move(near.server), std::move(far.client));
    return {std::move(near.client), std::move(far.server)};
  }

  Path connect(std::shared_ptr<fabric::WriteWindow> window = nullptr) {
    Path path;
    auto sockets = this->sockets(path);
    std::optional<fabric::FabricChoice> choice;
    if (by_fabric()) choice = {"tcp", endpoints()};
    auto server = data_.serve(std::move(sockets.server), std::move(window), std::move(choice), ends_.hook());
    EXPECT_TRUE(server);
    path.server = std::move(*server);
    if (!by_fabric()) {
      path.client = std::make_unique<fabric::TcpClientPath>(std::move(sockets.client), silence_ms_);
      return path;
    }
    auto client = fabric::FabricClientPath::open(std::move(sockets.client), endpoints(), wait_on, silence_ms_);
    EXPECT_TRUE(client) << client.error().message();
    if (client) path.client = std::move(*client);
    return path;
  }

  /// A window in which all of the file may be written.
  std::shared_ptr<fabric::WriteWindow> open_window() {
    auto window = std::make_shared<fabric::WriteWindow>();
    window->add_segment(3, file_);
    const fabric::WriteWindow::Range whole{3, 0, file_bytes};
    EXPECT_TRUE(window->allow_only({&whole, 1}));
    return window;
  }

  fabric::Transfer transfer(std::uint64_t ticket, std::vector<std::pair<std::uint64_t, std::uint64_t>> places) const {
    fabric::Transfer made;
    made.ticket = ticket;
    for (const auto& [offset, length] : places) made.pieces.push_back({file_, offset, length});
    return made;
  }

  FakeNetwork network_{Weather{}, test_seed()};  // outlives all endpoints
  TemporaryDirectory directory_;
  std::vector<std::byte> content_;
  std::shared_ptr<File> file_;
  Ends ends_;
  const std::int64_t silence_ms_;
  fabric::DataServer data_{16, 16, silence_ms_};  // ends before what its threads use
};

}  // namespace forebay::testing
