// SPDX-License-Identifier: Apache-2.0
#include "base/size_text.h"

#include <array>

#include <fmt/format.h>

namespace forebay {

std::string size_text(std::uint64_t size_bytes) {
  struct Unit {
    int shift;
    const char* name;
  };
  static constexpr std::array<Unit, 5> units{{{50, "PiB"}, {40, "TiB"}, {30, "GiB"}, {20, "MiB"}, {10, "KiB"}}};
  for (const Unit& unit : units) {
    const std::uint64_t factor = std::uint64_t{1} << unit.shift;
    if (size_bytes < factor) continue;
    std::string text = fmt::format("{:.2f}", static_cast<double>(size_bytes) / static_cast<double>(factor));
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
    return text + " " + unit.name;
  }
  return std::to_string(size_bytes) + " B";
}

}  // namespace forebay
