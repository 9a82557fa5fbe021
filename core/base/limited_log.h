// SPDX-License-Identifier: Apache-2.0
// Lines that somebody outside can cause again and again: some at once, then one a minute, so that nobody fills the disk
// with a log. The next line says how many were left out.
#pragma once

#include <cstdint>
#include <string>

#include "base/log.h"

namespace forebay::log {

/// One kind of line. Of one thread at a time.
class Limited {
 public:
  static constexpr std::uint32_t at_once_max = 20;
  static constexpr std::int64_t pause_ns = 60'000'000'000;

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

  std::uint32_t tokens_ = at_once_max;
  std::int64_t last_token_ns_ = 0;
  std::uint64_t left_out_ = 0;
};

}  // namespace forebay::log
