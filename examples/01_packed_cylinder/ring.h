// SPDX-License-Identifier: Apache-2.0
// How the processes of one run talk: each rank holds a connection to the rank above and the rank below it, in a ring of
// Unix sockets. A neighbour that dies closes its sockets, so its loss is seen at the next call at the latest.
#pragma once

#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <vector>

namespace packed_cylinder {

class PeerLost : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct RingOptions {
  std::size_t rank = 0, ranks = 1;
  std::filesystem::path rendezvous;  // folder for the sockets; unused for one rank
  std::uint64_t agreement = 0;       // must be the same on all ranks
  std::chrono::milliseconds connect_timeout{30000};
};

class Ring {
 public:
  // Returns when both neighbours are connected. Throws std::runtime_error when one does not come in time, runs with
  // other options, or another run uses the folder.
  explicit Ring(const RingOptions& options);
  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // Sends both and receives both at once; all four may be empty. Throws PeerLost.
  void exchange(std::span<const std::byte> to_upper, std::span<std::byte> from_lower,
                std::span<const std::byte> to_lower, std::span<std::byte> from_upper);
  // Everyone's numbers in rank order, on every rank; `counts` says how many each rank brings. Throws PeerLost.
  std::vector<double> gather(std::span<const double> own, std::span<const std::size_t> counts);
  // Waits until `deadline`, or until a signal that `unblocked` lets through. Throws PeerLost as soon as a neighbour is
  // gone.
  void wait_until(std::chrono::steady_clock::time_point deadline, const sigset_t& unblocked);

 private:
  [[noreturn]] void lose(bool upper, const char* what) const;
  void connect_upper(std::chrono::steady_clock::time_point deadline);
  void accept_lower(int listener, std::chrono::steady_clock::time_point deadline);

  const RingOptions options_;
  int upper_ = -1, lower_ = -1;
};

}  // namespace packed_cylinder
