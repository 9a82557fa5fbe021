// SPDX-License-Identifier: Apache-2.0
#include "configuration_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "snapshot_file.h"

namespace forebay::slurm {
namespace {

constexpr std::string_view blanks = " \t\r";

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

/// Calls `line(table, text)` for each line below the heading of its table, until it returns false.
template <class Line>
void each_line(std::string_view content, Line&& line) {
  std::string_view table;
  while (!content.empty()) {
    const auto end = std::min(content.find('\n'), content.size());
    const std::string_view text = trimmed(content.substr(0, end));
    content.remove_prefix(std::min(end + 1, content.size()));
    if (text.empty() || text.front() == '#') continue;
    if (text.front() == '[' && text.find(']') != std::string_view::npos) {
      table = trimmed(text.substr(1, text.find(']') - 1));
      continue;
    }
    if (!line(table, text)) return;
  }
}

/// The text between quotes, and nothing but a comment behind it; nothing if it is no such text.
std::optional<std::string> quoted(std::string_view value) {
  if (value.empty() || (value.front() != '"' && value.front() != '\'')) return std::nullopt;
  const char quote = value.front();
  const auto close = value.find(quote, 1);
  if (close == std::string_view::npos) return std::nullopt;
  const std::string_view text = value.substr(1, close - 1);
  const std::string_view rest = trimmed(value.substr(close + 1));
  // Escapes, and texts over several lines, are TOML, too.
  if ((quote == '"' && text.find('\\') != std::string_view::npos) || (!rest.empty() && rest.front() != '#'))
    return std::nullopt;
  return std::string(text);
}

}  // namespace

std::optional<ConfigurationFile> ConfigurationFile::read(std::string& problem) {
  const char* named = std::getenv("FOREBAY_CONFIG");
  ConfigurationFile made;
  made.path_ = named != nullptr && *named != '\0' ? named : "/etc/forebay/forebay.toml";
  auto content = read_file(made.path_, file_bytes_max);
  if (!content && errno != ENOENT) {
    problem = "the configuration " + made.path_ + " cannot be read: " + std::strerror(errno);
    return std::nullopt;
  }
  made.content_ = content.value_or(std::string());
  return made;
}

std::optional<std::string> ConfigurationFile::text(std::string_view table, std::string_view key,
                                                   std::string_view otherwise, std::string& problem) const {
  std::optional<std::string> found = std::string(otherwise);
  each_line(content_, [&](std::string_view in, std::string_view line) {
    const auto equals = line.find('=');
    const std::string_view name = trimmed(line.substr(0, equals));
    if (in.empty() && !table.empty() && (name == table || name.starts_with(std::string(table) + "."))) {
      problem = path_ + ": write the settings of " + std::string(table) + " below a line [" + std::string(table) + "]";
      found = std::nullopt;
      return false;
    }
    if (in != table || name != key || equals == std::string_view::npos) return true;
    found = quoted(trimmed(line.substr(equals + 1)));
    if (!found)
      problem = std::string(key) + " in " + path_ + " is no text in quotes, on one line and without backslashes";
    return false;
  });
  return found;
}

}  // namespace forebay::slurm
