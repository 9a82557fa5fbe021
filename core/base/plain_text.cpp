// SPDX-License-Identifier: Apache-2.0
#include "base/plain_text.h"

#include <cstdint>

#include <fmt/format.h>

namespace forebay {
namespace {

struct Character {
  std::uint32_t code = 0;
  std::size_t bytes = 0;  ///< 0: there is none
};

Character first_character(std::string_view text) {
  const auto at = [text](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t lead = at(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t bytes = lead >= 0xF0 && lead < 0xF8 ? 4 : lead >= 0xE0 && lead < 0xF0 ? 3 : lead >= 0xC0 ? 2 : 0;
  if (bytes == 0 || lead >= 0xF8 || bytes > text.size()) return {};
  std::uint32_t code = lead & (0x7FU >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((at(i) & 0xC0) != 0x80) return {};
    code = code << 6 | (at(i) & 0x3FU);
  }
  constexpr std::uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code < 0xE000;
  if (code < least[bytes] || code > 0x10FFFF || surrogate) return {};
  return {code, bytes};
}

bool is_control(std::uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x2028 || code == 0x2029;
}

/// It could make a name look like another one.
bool turns_text(std::uint32_t code) {
  return code == 0x061C || code == 0x200E || code == 0x200F || (code >= 0x202A && code <= 0x202E) ||
         (code >= 0x2066 && code <= 0x2069) || code == 0xFEFF;
}

}  // namespace

std::string plain_text(std::string_view text, std::size_t bytes_max) {
  constexpr std::string_view cut = "...";
  std::string plain;
  std::size_t end_with_cut = 0;  // where the text may end so that `cut` fits behind it
  while (!text.empty()) {
    const Character next = first_character(text);
    const std::string_view bytes = text.substr(0, next.bytes == 0 ? 1 : next.bytes);
    const std::string_view shown = next.bytes == 0 ? "?" : is_control(next.code) ? " " : bytes;
    if (plain.size() + shown.size() > bytes_max) {
      plain.resize(end_with_cut);
      return plain.append(cut);
    }
    plain += shown;
    if (plain.size() + cut.size() <= bytes_max) end_with_cut = plain.size();
    text.remove_prefix(bytes.size());
  }
  return plain;
}

std::string visible_text(std::string_view text) {
  std::string visible;
  visible.reserve(text.size());
  while (!text.empty()) {
    const Character next = first_character(text);
    const std::string_view bytes = text.substr(0, next.bytes == 0 ? 1 : next.bytes);
    const std::uint32_t code = next.bytes == 0 ? static_cast<std::uint8_t>(text[0]) : next.code;
    if (next.bytes != 0 && !is_control(code) && !turns_text(code)) {
      visible += bytes;
    } else {
      visible += code < 0x100 ? fmt::format("\\x{:02x}", code) : fmt::format("\\u{:04x}", code);
    }
    text.remove_prefix(bytes.size());
  }
  return visible;
}

std::string shown_name(std::string_view name) {
  constexpr std::size_t shown_bytes_max = 64;
  return plain_text(name, shown_bytes_max);
}

}  // namespace forebay
