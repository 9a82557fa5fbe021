// SPDX-License-Identifier: Apache-2.0
#include "daemon/root_files.h"

#include <charconv>
#include <sstream>
#include <system_error>

namespace forebay::server {

Result<std::uint64_t> parse_pool(const std::string& text, const std::string& path) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) {
    return fail(ErrorCode::corrupt, "the pool's size cannot be read; start once with --capacity to write it anew",
                path);
  }
  return number;
}

BootNote parse_boot_note(const std::string& text) {
  BootNote note;
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, note.boot_id);
  while (std::getline(lines, line)) {
    if (const auto slash = line.find('/'); slash != std::string::npos)
      note.unchecked[line.substr(0, slash)].insert(line.substr(slash + 1));
  }
  return note;
}

std::string to_text(const BootNote& note) {
  std::string text = note.boot_id + "\n";
  for (const auto& [id, streams] : note.unchecked) {
    for (const std::string& stream : streams) text += id + "/" + stream + "\n";
  }
  return text;
}

}  // namespace forebay::server
