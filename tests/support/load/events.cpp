// SPDX-License-Identifier: Apache-2.0
#include "events.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>

#include <fmt/format.h>

namespace forebay::load {
namespace {

std::string in_quotes(std::string_view text) {
  std::string result = "\"";
  for (const char character : text) {
    if (character == '"' || character == '\\') {
      result += '\\';
      result += character;
    } else if (static_cast<unsigned char>(character) < 0x20) {
      result += fmt::format("\\u{:04x}", static_cast<unsigned>(character));
    } else {
      result += character;
    }
  }
  return result + '"';
}

std::string text_of(const std::variant<std::uint64_t, bool, std::string>& value) {
  if (const auto* number = std::get_if<std::uint64_t>(&value)) return std::to_string(*number);
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  return in_quotes(std::get<std::string>(value));
}

}  // namespace

void say(std::string_view event, std::initializer_list<Field> fields) {
  std::string line = "{\"event\": " + in_quotes(event);
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  line += ", \"told_ns\": " + std::to_string(std::chrono::nanoseconds(now).count());
  for (const auto& [name, value] : fields) line += ", " + in_quotes(name) + ": " + text_of(value);
  line += "}\n";
  // Nobody is left to hear it: nothing to go on for.
  if (::write(STDOUT_FILENO, line.data(), line.size()) != static_cast<ssize_t>(line.size())) std::_Exit(4);
}

void say_error(std::string_view call, const Error& error) {
  say("error", {{"call", std::string(call)},
                {"code", std::string(to_string(error.code))},
                {"what", error.what},
                {"where", error.where}});
}

}  // namespace forebay::load
