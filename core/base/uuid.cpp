// SPDX-License-Identifier: Apache-2.0
#include "base/uuid.h"

#include <sys/random.h>

#include <array>
#include <cstdio>

namespace forebay {
namespace {

template <std::size_t Size>
std::array<std::uint8_t, Size> random_bytes() {
  std::array<std::uint8_t, Size> bytes{};
  // Up to 256 bytes getrandom neither fails nor is cut short once the kernel's pool is ready.
  while (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
  }
  return bytes;
}

}  // namespace

std::string random_uuid() {
  auto b = random_bytes<16>();
  b[6] = static_cast<std::uint8_t>((b[6] & 0x0F) | 0x40);
  b[8] = static_cast<std::uint8_t>((b[8] & 0x3F) | 0x80);
  char text[37];
  std::snprintf(text, sizeof text, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
                b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
  return text;
}

bool is_uuid(std::string_view text) noexcept {
  if (text.size() != 36) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    const char c = text[i];
    const bool hex = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
    if (dash ? c != '-' : !hex) return false;
  }
  return true;
}

std::uint64_t random_number() {
  std::uint64_t number = 0;
  while (number == 0) {
    for (std::uint8_t byte : random_bytes<8>()) number = number << 8 | byte;
  }
  return number;
}

}  // namespace forebay
