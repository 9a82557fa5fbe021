// SPDX-License-Identifier: Apache-2.0
// Lines that somebody outside can cause again and again: some at once, then one after each pause, so that nobody fills
// the disk with a log. The next line says how many were left out.
#pragma once

#include <cstdint>
#include <string>

#include "base/log.h"

namespace forebay::log {

/// One kind of line. Of one thread at a time.
class Limited {
 public:
  static constexpr std::uint32_t at_once_default = 20;
  static constexpr std::int64_t pause_default_ns = 60'000'000'000;

  explicit Limited(std::uint32_t at_once_max = at_once_default, std::int64_t pause_ns = pause_default_ns) noexcept
      : at_once_max_(at_once_max), pause_ns_(pause_ns), tokens_(at_once_max) {}

  template <class... Arguments>
  void info(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    if (has_turn()) write(Level::info, fmt::format(format, std::forward<Arguments>(arguments)...) + left_out());
  }
  template <class... Arguments>
  void warning(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    if (has_turn()) write(Level::warning, fmt::format(format, std::forward<Arguments>(arguments)...) + left_out());
  }
  template <class... Arguments>
  void error(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    if (has_turn()) write(Level::error, fmt::format(format, std::forward<Arguments>(arguments)...) + left_out());
  }

  /// May a line be written now? Counts those that may not. `now_ns`: monotonic.
  bool has_turn(std::int64_t now_ns);
  /// " (12 more like this were left out)", once; empty if there were none.
  std::string left_out();

 private:
  bool has_turn();

  const std::uint32_t at_once_max_;
  const std::int64_t pause_ns_;
  std::uint32_t tokens_;
  std::int64_t last_token_ns_ = 0;
  std::uint64_t left_out_ = 0;
};

}  // namespace forebay::log
