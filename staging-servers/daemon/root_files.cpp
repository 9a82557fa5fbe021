// SPDX-License-Identifier: Apache-2.0
#include "daemon/root_files.h"

#include <charconv>
#include <sstream>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "base/uuid.h"

namespace forebay::server {
namespace {

/// In front of the root's identity: the version of what a root holds.
constexpr std::string_view root_mark = "forebay-root-1 ";

}  // namespace

Result<std::uint64_t> parse_pool(const std::string& text, const std::string& path) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) {
    return fail(ErrorCode::corrupt, "the pool's size cannot be read; start once with --capacity to write it again",
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

Result<RootIdentity> parse_identity(const std::string& text, const std::string& path) {
  RootIdentity identity;
  if (!text.starts_with(root_mark)) {
    return fail(ErrorCode::unsupported,
                "this is not a root of this version of Forebay; start the version that made it, or choose another root",
                path);
  }
  const std::string_view rest = std::string_view(text).substr(root_mark.size());
  const auto space = rest.find(' ');
  identity.uuid = rest.substr(0, space);
  const std::string_view number = space == rest.npos ? std::string_view() : rest.substr(space + 1);
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), identity.storage_incarnation, 16);
  if (!is_uuid(identity.uuid) || error != std::errc() || end != number.data() + number.size() ||
      identity.storage_incarnation == 0) {
    return fail(ErrorCode::corrupt,
                "the root's identity cannot be read; restore the file: its reservations name the root's uuid", path);
  }
  return identity;
}

std::string to_text(const RootIdentity& identity) {
  return fmt::format("{}{} {:016x}\n", root_mark, identity.uuid, identity.storage_incarnation);
}

}  // namespace forebay::server
