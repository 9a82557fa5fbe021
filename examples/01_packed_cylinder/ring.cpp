// SPDX-License-Identifier: Apache-2.0
#include "ring.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>

namespace packed_cylinder {
namespace {

using Clock = std::chrono::steady_clock;

struct Greeting {
  std::uint64_t magic, rank, ranks, agreement;
};
constexpr std::uint64_t greeting_magic = 0x31474e4952434c50U;

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

std::filesystem::path socket_path(const RingOptions& options, std::size_t rank) {
  return options.rendezvous / ("rank." + std::to_string(rank) + ".socket");
}

sockaddr_un address_of(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.native().size() >= sizeof(address.sun_path)) {
    throw std::runtime_error("the path " + path.string() + " is too long for a socket: take a shorter --rendezvous");
  }
  std::copy(path.native().begin(), path.native().end(), address.sun_path);
  return address;
}

int new_socket() {
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0) {
    fail("cannot make a socket");
  }
  return socket;
}

int milliseconds_left(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<long long>(left, 0, 1 << 30));
}

bool connects(const sockaddr_un& address, int socket) {
  return ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

int listen_at(const std::filesystem::path& path) {
  const sockaddr_un address = address_of(path);
  const int probe = new_socket();
  const bool taken = connects(address, probe);
  ::close(probe);
  if (taken) {
    throw std::runtime_error("another run uses " + path.string() + ": end it or take another --rendezvous");
  }
  ::unlink(path.c_str());
  const int listener = new_socket();
  if (::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(listener, 4) != 0) {
    ::close(listener);
    fail("cannot listen at " + path.string());
  }
  return listener;
}

// One whole greeting before the deadline; false when the other side went away or stayed silent.
bool receive_greeting(int socket, Greeting& greeting, Clock::time_point deadline) {
  auto* bytes = reinterpret_cast<char*>(&greeting);
  std::size_t have = 0;
  while (have < sizeof(greeting)) {
    pollfd item{socket, POLLIN, 0};
    if (::poll(&item, 1, milliseconds_left(deadline)) == 0) {
      return false;
    }
    const ssize_t got = ::recv(socket, bytes + have, sizeof(greeting) - have, 0);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
      return false;
    }
    if (got > 0) {
      have += static_cast<std::size_t>(got);
    }
  }
  return greeting.magic == greeting_magic;
}

bool send_greeting(int socket, const RingOptions& options) {
  const Greeting greeting{greeting_magic, options.rank, options.ranks, options.agreement};
  // An empty socket buffer takes these few bytes whole.
  return ::send(socket, &greeting, sizeof(greeting), MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(greeting));
}

void check_agreement(const Greeting& greeting, const RingOptions& options, std::size_t expected_rank) {
  if (greeting.rank != expected_rank || greeting.ranks != options.ranks) {
    throw std::runtime_error("expected rank " + std::to_string(expected_rank) + " of " + std::to_string(options.ranks) +
                             " but rank " + std::to_string(greeting.rank) + " of " + std::to_string(greeting.ranks) +
                             " came: start every rank once and with the same --ranks");
  }
  if (greeting.agreement != options.agreement) {
    throw std::runtime_error("rank " + std::to_string(expected_rank) +
                             " runs with other options: give all ranks the same grid, physics, steps and --restart");
  }
}

}  // namespace

Ring::Ring(const RingOptions& options) : options_(options) {
  if (options_.ranks == 1) {
    return;
  }
  const Clock::time_point deadline = Clock::now() + options_.connect_timeout;
  const std::filesystem::path own_path = socket_path(options_, options_.rank);
  const int listener = listen_at(own_path);
  try {
    connect_upper(deadline);
    accept_lower(listener, deadline);
    Greeting answer{};
    const std::size_t upper_rank = (options_.rank + 1) % options_.ranks;
    if (!receive_greeting(upper_, answer, deadline)) {
      throw std::runtime_error("rank " + std::to_string(upper_rank) + " did not answer: see what it says");
    }
    check_agreement(answer, options_, upper_rank);
  } catch (...) {
    ::close(listener);
    ::unlink(own_path.c_str());
    ::close(upper_);
    ::close(lower_);
    throw;
  }
  ::close(listener);
  ::unlink(own_path.c_str());
}

Ring::~Ring() {
  if (upper_ >= 0) {
    ::close(upper_);
  }
  if (lower_ >= 0) {
    ::close(lower_);
  }
}

void Ring::connect_upper(Clock::time_point deadline) {
  const std::size_t upper_rank = (options_.rank + 1) % options_.ranks;
  const sockaddr_un address = address_of(socket_path(options_, upper_rank));
  upper_ = new_socket();
  while (!connects(address, upper_)) {
    if (Clock::now() >= deadline) {
      throw std::runtime_error("rank " + std::to_string(upper_rank) + " did not come to " +
                               options_.rendezvous.string() + " within " +
                               std::to_string(options_.connect_timeout.count()) + " ms: start all " +
                               std::to_string(options_.ranks) + " ranks");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (!send_greeting(upper_, options_)) {
    fail("cannot greet rank " + std::to_string(upper_rank));
  }
}

void Ring::accept_lower(int listener, Clock::time_point deadline) {
  const std::size_t lower_rank = (options_.rank + options_.ranks - 1) % options_.ranks;
  while (true) {
    pollfd item{listener, POLLIN, 0};
    if (::poll(&item, 1, milliseconds_left(deadline)) == 0) {
      throw std::runtime_error("rank " + std::to_string(lower_rank) + " did not come to " +
                               options_.rendezvous.string() + " within " +
                               std::to_string(options_.connect_timeout.count()) + " ms: start all " +
                               std::to_string(options_.ranks) + " ranks");
    }
    lower_ = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (lower_ < 0) {
      continue;
    }
    Greeting greeting{};
    if (receive_greeting(lower_, greeting, deadline)) {
      // Answered before it is judged, so that both sides name the disagreement.
      if (!send_greeting(lower_, options_)) {
        fail("cannot answer rank " + std::to_string(lower_rank));
      }
      check_agreement(greeting, options_, lower_rank);
      return;
    }
    ::close(lower_);  // a rank that gave up, or another run's probe
    lower_ = -1;
  }
}

void Ring::lose(bool upper, const char* what) const {
  const std::size_t rank = (options_.rank + (upper ? 1 : options_.ranks - 1)) % options_.ranks;
  throw PeerLost("rank " + std::to_string(rank) + " is gone (" + what +
                 "): restart all ranks, from a checkpoint if there is one");
}

void Ring::exchange(std::span<const std::byte> to_upper, std::span<std::byte> from_lower,
                    std::span<const std::byte> to_lower, std::span<std::byte> from_upper) {
  if (options_.ranks == 1) {
    std::copy(to_upper.begin(), to_upper.end(), from_lower.begin());
    std::copy(to_lower.begin(), to_lower.end(), from_upper.begin());
    return;
  }
  struct Side {
    int socket;
    bool upper;
    std::span<const std::byte> out;
    std::span<std::byte> in;
  };
  std::array<Side, 2> sides{{{upper_, true, to_upper, from_upper}, {lower_, false, to_lower, from_lower}}};
  while (true) {
    std::array<pollfd, 2> items{};
    bool busy = false;
    for (std::size_t i = 0; i < sides.size(); ++i) {
      const int events = (sides[i].out.empty() ? 0 : POLLOUT) | (sides[i].in.empty() ? 0 : POLLIN);
      items[i] = {events == 0 ? -1 : sides[i].socket, static_cast<short>(events), 0};
      busy = busy || events != 0;
    }
    if (!busy) {
      return;
    }
    if (::poll(items.data(), items.size(), -1) < 0 && errno != EINTR) {
      fail("cannot wait for the neighbours");
    }
    for (std::size_t i = 0; i < sides.size(); ++i) {
      Side& side = sides[i];
      if (items[i].revents == 0) {
        continue;
      }
      if (!side.out.empty()) {
        const ssize_t sent = ::send(side.socket, side.out.data(), side.out.size(), MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN && errno != EINTR) {
          lose(side.upper, std::strerror(errno));
        }
        if (sent > 0) {
          side.out = side.out.subspan(static_cast<std::size_t>(sent));
        }
      }
      if (!side.in.empty()) {
        const ssize_t got = ::recv(side.socket, side.in.data(), side.in.size(), 0);
        if (got == 0) {
          lose(side.upper, "it closed the connection");
        }
        if (got < 0 && errno != EAGAIN && errno != EINTR) {
          lose(side.upper, std::strerror(errno));
        }
        if (got > 0) {
          side.in = side.in.subspan(static_cast<std::size_t>(got));
        }
      }
    }
  }
}

std::vector<double> Ring::gather(std::span<const double> own, std::span<const std::size_t> counts) {
  std::vector<std::vector<double>> parts(options_.ranks);
  parts[options_.rank].assign(own.begin(), own.end());
  // In each round every rank hands on what it got in the round before.
  std::size_t sending = options_.rank;
  for (std::size_t round = 1; round < options_.ranks; ++round) {
    const std::size_t receiving = (sending + options_.ranks - 1) % options_.ranks;
    parts[receiving].resize(counts[receiving]);
    exchange(std::as_bytes(std::span(parts[sending])), std::as_writable_bytes(std::span(parts[receiving])), {}, {});
    sending = receiving;
  }
  std::vector<double> all;
  for (const std::vector<double>& part : parts) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

void Ring::wait_until(Clock::time_point deadline, const sigset_t& unblocked) {
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - Clock::now()).count();
    if (left <= 0) {
      return;
    }
    const timespec timeout{left / 1000000000, left % 1000000000};
    // Only the end of a connection wakes us: a neighbour that is ahead may have sent its faces already.
    std::array<pollfd, 2> items{{{upper_, POLLRDHUP, 0}, {lower_, POLLRDHUP, 0}}};
    const int count = ::ppoll(items.data(), items.size(), &timeout, &unblocked);
    if (count < 0 && errno == EINTR) {
      return;
    }
    if (count < 0) {
      fail("cannot wait for the next step");
    }
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (items[i].revents != 0) {
        lose(i == 0, "it closed the connection");
      }
    }
  }
}

}  // namespace packed_cylinder
