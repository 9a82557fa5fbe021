// SPDX-License-Identifier: Apache-2.0
// A network that a test makes: bytes take time and a share of a rate, some are lost and sent again, peers overtake one
// another, and a link may fall silent without a word. What it does follows from a seed. It carries sockets (by relaying
// them) and RMA (as an endpoint below the fabric path).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <thread>
#include <vector>

#include "base/descriptor.h"
#include "fabric/rma_endpoint.h"
#include "tests/support/randomness.h"

namespace forebay::testing {

struct Weather {
  std::int64_t delay_us_min = 0;
  std::int64_t delay_us_max = 300;
  std::uint64_t bytes_per_second = 0;  ///< of each link and direction; 0: no limit
  std::uint64_t lost_one_in = 20;      ///< transmissions; 0: none
  std::int64_t sent_again_us = 3000;   ///< when a lost one is
};

/// One direction of a link: keeps its order, while other links overtake it.
class FakeLink {
 public:
  FakeLink(const Weather& weather, std::uint64_t seed) : weather_(weather), random_(seed) {}
  /// When `bytes` that leave now arrive, on the monotonic clock.
  std::int64_t arrival_ns(std::uint64_t bytes);
  /// Now and then: what an operation that cannot start says.
  bool refuses() { return chance(random_, 6); }

 private:
  const Weather weather_;
  Random random_;
  std::int64_t free_ns_ = 0;
  std::int64_t last_ns_ = 0;
};

/// Two sockets that a thread for each end relays to one another.
class FakeWire {
 public:
  FakeWire(Descriptor one, Descriptor other, const Weather& weather, std::uint64_t seed);
  ~FakeWire();
  FakeWire(const FakeWire&) = delete;
  FakeWire& operator=(const FakeWire&) = delete;
  /// Nothing arrives any more, and neither end is told.
  void fall_silent() { silent_ = true; }

 private:
  struct Chunk {
    std::int64_t at_ns = 0;
    std::vector<std::byte> bytes;  ///< empty: the end
  };
  struct Direction {
    int from = -1;
    int to = -1;
    std::unique_ptr<FakeLink> link;
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Chunk> chunks;  // guarded by mutex
    std::thread taking;
    std::thread bringing;
  };
  void take(Direction& direction);
  void bring(Direction& direction);

  Descriptor one_;
  Descriptor other_;
  std::atomic<bool> silent_ = false;
  std::atomic<bool> ends_ = false;
  Direction directions_[2];
};

class FakeNetwork {
 public:
  FakeNetwork(const Weather& weather, std::uint64_t seed)
      : weather_(weather), seed_(seed), worker_([this] { work(); }) {}
  ~FakeNetwork();
  FakeNetwork(const FakeNetwork&) = delete;
  FakeNetwork& operator=(const FakeNetwork&) = delete;

  /// For the fabric path: endpoints of this network.
  fabric::EndpointMaker endpoints();
  /// A connected pair like `SocketPair`, through this network.
  std::shared_ptr<FakeWire> relay(Descriptor one, Descriptor other);

 private:
  friend class FakeEndpoint;
  struct Exposed {
    std::span<std::byte> memory;
    fabric::PeerMay may;
  };
  struct Node {
    class FakeEndpoint* endpoint = nullptr;
    std::map<std::uint64_t, Exposed> exposed;  ///< by key
  };
  struct Event {
    std::int64_t at_ns = 0;
    std::uint64_t number = 0;
    std::function<void()> happens;
    bool operator<(const Event& other) const { return std::pair(at_ns, number) < std::pair(other.at_ns, other.number); }
  };
  void work();
  /// Under mutex_.
  void later(std::int64_t at_ns, std::function<void()> happens);

  const Weather weather_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  std::uint64_t seed_;
  std::uint64_t last_node_ = 0;
  std::uint64_t last_event_ = 0;
  std::map<std::uint64_t, Node> nodes_;
  std::multiset<Event> events_;
  bool ends_ = false;
  std::thread worker_;  // last: begins with the object whole
};

}  // namespace forebay::testing
