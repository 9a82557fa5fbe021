// SPDX-License-Identifier: Apache-2.0
// The program's own signal handlers. Libraries below libfabric replace some when they are loaded (libinfinipath those
// of SIGINT, SIGTERM, SIGSEGV and others), so that Ctrl-C would no longer interrupt a program.
#pragma once

#include <array>
#include <csignal>

namespace forebay::fabric {

/// Gives the handlers back that the process had when this was made.
class KeptSignals {
 public:
  KeptSignals() noexcept {
    for (int number = 1; number < signals_end; ++number)
      known_[number] = ::sigaction(number, nullptr, &kept_[number]) == 0;
  }
  ~KeptSignals() {
    for (int number = 1; number < signals_end; ++number) {
      struct sigaction now{};
      if (!known_[number] || ::sigaction(number, nullptr, &now) != 0) continue;
      if (now.sa_sigaction != kept_[number].sa_sigaction || now.sa_flags != kept_[number].sa_flags)
        ::sigaction(number, &kept_[number], nullptr);
    }
  }
  KeptSignals(const KeptSignals&) = delete;
  KeptSignals& operator=(const KeptSignals&) = delete;

 private:
  static constexpr int signals_end = 32;  // the others are queued ones, which nobody has without asking
  std::array<struct sigaction, signals_end> kept_{};
  std::array<bool, signals_end> known_{};
};

}  // namespace forebay::fabric
