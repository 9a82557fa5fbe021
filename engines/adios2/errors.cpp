// SPDX-License-Identifier: Apache-2.0
#include "errors.h"

#include <stdexcept>

namespace forebay::engine {

void throw_error(const Error& error, std::string_view action) {
  const std::string message = "Forebay, " + std::string(action) + ": " + error.message();
  if (error.code == ErrorCode::invalid_argument || error.code == ErrorCode::unsupported) {
    throw std::invalid_argument(message);
  }
  throw std::runtime_error(message);
}

void throw_misuse(std::string_view action, std::string_view what) {
  throw std::logic_error("Forebay, " + std::string(action) + ": " + std::string(what));
}

std::string shown_name(const std::string& name) {
  constexpr std::size_t shown_bytes_max = 64;
  return name.size() <= shown_bytes_max ? name : name.substr(0, shown_bytes_max) + "...";
}

}  // namespace forebay::engine
