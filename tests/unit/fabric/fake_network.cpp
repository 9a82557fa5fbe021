// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/fabric/fake_network.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "base/clock.h"
#include "tests/support/randomness.h"

namespace forebay::testing {
namespace {

constexpr std::size_t chunk_bytes = std::size_t{64} << 10;
constexpr std::size_t chunks_max = 32;
constexpr std::int64_t microsecond_ns = 1000;

void wait_until(std::int64_t at_ns, const std::atomic<bool>& ends) {
  while (!ends) {
    const std::int64_t left_ns = at_ns - monotonic_ns();
    if (left_ns <= 0) return;
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::min<std::int64_t>(left_ns, 50'000'000)));
  }
}

}  // namespace

std::int64_t FakeLink::arrival_ns(std::uint64_t bytes) {
  const std::int64_t now_ns = monotonic_ns();
  free_ns_ = std::max(free_ns_, now_ns);
  if (weather_.bytes_per_second > 0)
    free_ns_ +=
        static_cast<std::int64_t>(static_cast<double>(bytes) * 1e9 / static_cast<double>(weather_.bytes_per_second));
  const auto spread = static_cast<std::uint64_t>(weather_.delay_us_max - weather_.delay_us_min + 1);
  std::int64_t delay_us = weather_.delay_us_min + static_cast<std::int64_t>(below(random_, spread));
  if (weather_.lost_one_in > 0 && chance(random_, weather_.lost_one_in)) delay_us += weather_.sent_again_us;
  last_ns_ = std::max(last_ns_, free_ns_ + delay_us * microsecond_ns);
  return last_ns_;
}

FakeWire::FakeWire(Descriptor one, Descriptor other, const Weather& weather, std::uint64_t seed)
    : one_(std::move(one)), other_(std::move(other)) {
  for (int number = 0; number < 2; ++number) {
    Direction& direction = directions_[number];
    direction.from = number == 0 ? one_.get() : other_.get();
    direction.to = number == 0 ? other_.get() : one_.get();
    direction.link = std::make_unique<FakeLink>(weather, seed + static_cast<std::uint64_t>(number));
    direction.taking = std::thread([this, &direction] { take(direction); });
    direction.bringing = std::thread([this, &direction] { bring(direction); });
  }
}

FakeWire::~FakeWire() {
  ends_ = true;
  ::shutdown(one_.get(), SHUT_RDWR);
  ::shutdown(other_.get(), SHUT_RDWR);
  for (Direction& direction : directions_) {
    {
      const std::lock_guard lock(direction.mutex);
      direction.changed.notify_all();
    }
    direction.taking.join();
    direction.bringing.join();
  }
}

void FakeWire::take(Direction& direction) {
  while (!ends_) {
    Chunk chunk;
    chunk.bytes.resize(chunk_bytes);
    const ssize_t count = ::recv(direction.from, chunk.bytes.data(), chunk.bytes.size(), 0);
    if (silent_ && count <= 0) return;  // The end is not told.
    if (silent_) continue;
    chunk.bytes.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    std::unique_lock lock(direction.mutex);
    chunk.at_ns = direction.link->arrival_ns(chunk.bytes.size());
    direction.changed.wait(lock, [&] { return ends_ || direction.chunks.size() < chunks_max; });
    direction.chunks.push_back(std::move(chunk));
    direction.changed.notify_all();
    if (count <= 0) return;
  }
}

void FakeWire::bring(Direction& direction) {
  while (true) {
    Chunk chunk;
    {
      std::unique_lock lock(direction.mutex);
      direction.changed.wait(lock, [&] { return ends_ || !direction.chunks.empty(); });
      if (ends_) return;
      chunk = std::move(direction.chunks.front());
      direction.chunks.pop_front();
      direction.changed.notify_all();
    }
    wait_until(chunk.at_ns, ends_);
    if (silent_) continue;
    if (chunk.bytes.empty()) {
      ::shutdown(direction.to, SHUT_WR);
      return;
    }
    for (std::span<const std::byte> rest(chunk.bytes); !rest.empty();) {
      const ssize_t sent = ::send(direction.to, rest.data(), rest.size(), MSG_NOSIGNAL);
      if (sent <= 0) {
        // As a real connection does: who sends learns that nobody is there.
        ::shutdown(direction.from, SHUT_RD);
        return;
      }
      rest = rest.subspan(static_cast<std::size_t>(sent));
    }
  }
}

/// An endpoint of the network. What others do to its memory, and what comes for it, happens on the network's thread.
class FakeEndpoint final : public fabric::RmaEndpoint {
 public:
  explicit FakeEndpoint(FakeNetwork& network) : network_(network), wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    const std::lock_guard lock(network_.mutex_);
    number_ = ++network_.last_node_;
    network_.nodes_[number_].endpoint = this;
    link_ = std::make_unique<FakeLink>(network_.weather_, network_.seed_++);
    std::memcpy(address_.data(), &number_, sizeof number_);
  }
  ~FakeEndpoint() override {
    const std::lock_guard lock(network_.mutex_);
    network_.nodes_.erase(number_);
  }

  std::span<const std::byte> address() const noexcept override { return address_; }
  Result<void> set_peer(std::span<const std::byte> address, const std::string&) override {
    if (address.size() < sizeof peer_) return fail(ErrorCode::protocol, "no address of this network");
    std::memcpy(&peer_, address.data(), sizeof peer_);
    return {};
  }
  Result<void> use_memory(std::span<std::byte>) override { return {}; }

  Result<std::unique_ptr<fabric::ExposedMemory>> expose(std::span<std::byte> memory, fabric::PeerMay may) override {
    const std::lock_guard lock(network_.mutex_);
    const std::uint64_t key = (network_.seed_++ << 16) ^ 0x9E3779B97F4A7C15ULL;
    network_.nodes_[number_].exposed[key] = {memory, may};
    return std::make_unique<Exposed>(network_, number_, key);
  }

  Result<bool> read(std::uint32_t operation, std::span<std::byte> into, const fabric::MemoryPlace& from) override {
    return access(operation, into, from, fabric::PeerMay::read);
  }
  Result<bool> write(std::uint32_t operation, std::span<const std::byte> from, const fabric::MemoryPlace& to) override {
    return access(operation, {const_cast<std::byte*>(from.data()), from.size()}, to, fabric::PeerMay::write);
  }

  Result<bool> receive(std::uint32_t operation, std::span<std::byte> into) override {
    const std::lock_guard lock(network_.mutex_);
    receives_.push_back({operation, into});
    match();
    return true;
  }
  Result<bool> send(std::span<const std::byte> bytes) override {
    const std::lock_guard lock(network_.mutex_);
    if (lost_) return fail(ErrorCode::disconnected, "the connection of the network was lost");
    if (link_->refuses()) return false;
    network_.later(link_->arrival_ns(bytes.size()),
                   [&network = network_, peer = peer_, sent = std::vector<std::byte>(bytes.begin(), bytes.end())] {
                     const auto node = network.nodes_.find(peer);
                     if (node == network.nodes_.end()) return;
                     node->second.endpoint->inbox_.push_back(sent);
                     node->second.endpoint->match();
                   });
    return true;
  }

  Result<std::optional<Completion>> next() override {
    const std::lock_guard lock(network_.mutex_);
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &count, sizeof count);
    if (completions_.empty()) return std::optional<Completion>();
    Completion first = std::move(completions_.front());
    completions_.pop_front();
    return std::optional(std::move(first));
  }
  int descriptor() const noexcept override { return wake_.get(); }
  bool may_sleep() override {
    const std::lock_guard lock(network_.mutex_);
    return completions_.empty();
  }
  void close_on_exec() noexcept override {}

 private:
  struct Exposed final : fabric::ExposedMemory {
    Exposed(FakeNetwork& network, std::uint64_t node, std::uint64_t key) : network_(network), node_(node), key_(key) {}
    ~Exposed() override {
      const std::lock_guard lock(network_.mutex_);
      if (const auto node = network_.nodes_.find(node_); node != network_.nodes_.end())
        node->second.exposed.erase(key_);
    }
    fabric::MemoryPlace place() const noexcept override { return {key_, 0}; }

    FakeNetwork& network_;
    const std::uint64_t node_;
    const std::uint64_t key_;
  };
  struct Receive {
    std::uint32_t operation = 0;
    std::span<std::byte> into;
  };

  // Under the network's mutex, all below.
  void complete(std::uint32_t operation, std::optional<Error> error = std::nullopt) {
    completions_.push_back({operation, std::move(error)});
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
  }
  void match() {
    while (!receives_.empty() && !inbox_.empty()) {
      const Receive receive = receives_.front();
      receives_.pop_front();
      std::ranges::copy(std::span(inbox_.front()).first(std::min(inbox_.front().size(), receive.into.size())),
                        receive.into.begin());
      inbox_.pop_front();
      complete(receive.operation);
    }
  }
  Result<bool> access(std::uint32_t operation, std::span<std::byte> own, const fabric::MemoryPlace& place,
                      fabric::PeerMay may) {
    const std::lock_guard lock(network_.mutex_);
    if (lost_) return fail(ErrorCode::disconnected, "the connection of the network was lost");
    if (link_->refuses()) return false;
    const auto peer = network_.nodes_.find(peer_);
    std::span<std::byte> theirs;
    bool allowed = false;
    if (peer != network_.nodes_.end()) {
      const auto exposed = peer->second.exposed.find(place.key);
      allowed = exposed != peer->second.exposed.end() && exposed->second.may == may && place.address == 0 &&
                own.size() <= exposed->second.memory.size();
      if (allowed) theirs = exposed->second.memory.first(own.size());
    }
    // What has begun goes on although the memory is taken back. Only the end of an endpoint stops it.
    network_.later(link_->arrival_ns(own.size()), [this, &network = network_, self = number_, peer = peer_, operation,
                                                   own, theirs, may, allowed] {
      // This object may be gone: look before anything of it is used.
      if (!network.nodes_.contains(self)) return;
      if (!allowed || !network.nodes_.contains(peer)) {
        lost_ = true;
        complete(operation, Error{ErrorCode::disconnected, "the peer refused the access, or is gone", ""});
        return;
      }
      const auto from = may == fabric::PeerMay::read ? theirs : own;
      const auto to = may == fabric::PeerMay::read ? own : theirs;
      std::memcpy(to.data(), from.data(), to.size());
      complete(operation);
    });
    return true;
  }

  FakeNetwork& network_;
  const Descriptor wake_;
  std::uint64_t number_ = 0;
  std::uint64_t peer_ = 0;
  std::array<std::byte, 8> address_{};
  std::unique_ptr<FakeLink> link_;
  std::deque<Receive> receives_;
  std::deque<std::vector<std::byte>> inbox_;
  std::deque<Completion> completions_;
  bool lost_ = false;
};

FakeNetwork::~FakeNetwork() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    changed_.notify_all();
  }
  worker_.join();
}

fabric::EndpointMaker FakeNetwork::endpoints() {
  return [this](const std::string& provider, const std::string&) -> Result<fabric::OpenedEndpoint> {
    return fabric::OpenedEndpoint{std::make_unique<FakeEndpoint>(*this), {provider, 0x20000}};
  };
}

std::shared_ptr<FakeWire> FakeNetwork::relay(Descriptor one, Descriptor other) {
  const std::lock_guard lock(mutex_);
  seed_ += 2;
  return std::make_shared<FakeWire>(std::move(one), std::move(other), weather_, seed_);
}

void FakeNetwork::later(std::int64_t at_ns, std::function<void()> happens) {
  events_.insert({at_ns, ++last_event_, std::move(happens)});
  changed_.notify_all();
}

void FakeNetwork::work() {
  std::unique_lock lock(mutex_);
  while (!ends_) {
    if (events_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const std::int64_t left_ns = events_.begin()->at_ns - monotonic_ns();
    if (left_ns > 0) {
      changed_.wait_for(lock, std::chrono::nanoseconds(left_ns));
      continue;
    }
    const auto event = events_.extract(events_.begin());
    event.value().happens();
  }
}

}  // namespace forebay::testing
