// SPDX-License-Identifier: Apache-2.0
#include "daemon/config_file.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <set>
#include <type_traits>

#include <fmt/format.h>

#include "base/device.h"
#include "base/return_error.h"

namespace forebay::server {
namespace {

constexpr std::uint64_t config_bytes_max = std::uint64_t{1} << 20;

tl::unexpected<Error> invalid(std::string what) {
  return fail(ErrorCode::invalid_argument, std::move(what));
}

bool is_digit(char letter) {
  return std::isdigit(static_cast<unsigned char>(letter)) != 0;
}

bool is_of_bare_key(char letter) {
  return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '_' || letter == '-';
}

/// One line, read from the left. What it takes is taken off.
class Line {
 public:
  explicit Line(std::string_view rest) noexcept : rest_(rest) {
    if (rest_.ends_with('\r')) rest_.remove_suffix(1);
    skip_space();
  }

  /// Nothing is left but a comment.
  bool is_done() const noexcept { return rest_.empty() || rest_.front() == '#'; }

  Result<std::string> take_key() {
    std::size_t length = 0;
    while (length < rest_.size() && is_of_bare_key(rest_[length])) ++length;
    std::string key(rest_.substr(0, length));
    rest_.remove_prefix(length);
    skip_space();
    if (key.empty() || !take('=')) return invalid("this is not a setting; write name = value, one to a line");
    skip_space();
    return key;
  }

  /// "…" with escapes, or '…' as it stands.
  Result<std::string> take_text() {
    const bool has_escapes = rest_.starts_with('"');
    if (!has_escapes && !rest_.starts_with('\'')) return invalid("the value must be text in quotes");
    const char quote = rest_.front();
    std::string text;
    for (std::size_t i = 1; i < rest_.size() && is_of_text(rest_[i]); ++i) {
      if (rest_[i] == quote) {
        rest_.remove_prefix(i + 1);
        skip_space();
        return text;
      }
      if (rest_[i] != '\\' || !has_escapes) {
        text.push_back(rest_[i]);
        continue;
      }
      constexpr std::string_view escaped = "\"\\tnrbf";
      constexpr std::string_view meant = "\"\\\t\n\r\b\f";
      const std::size_t known = ++i < rest_.size() ? escaped.find(rest_[i]) : std::string_view::npos;
      if (known == std::string_view::npos)
        return invalid("this escape is not allowed here; for a backslash write '…' or \"\\\\\"");
      text.push_back(meant[known]);
    }
    return invalid("the text does not end: its closing quote is missing on this line");
  }

  Result<std::int64_t> take_number() {
    constexpr const char* what = "the value must be a whole number such as 500 or 2_147_483_648";
    const std::size_t length = std::min(rest_.find_first_of(" \t#"), rest_.size());
    std::string_view written = rest_.substr(0, length);
    rest_.remove_prefix(length);
    skip_space();
    if (written.starts_with("+") && !written.starts_with("+-")) written.remove_prefix(1);
    std::string digits;
    for (std::size_t i = 0; i < written.size(); ++i) {
      // Underscores stand between digits.
      const bool divides =
          written[i] == '_' && i > 0 && i + 1 < written.size() && is_digit(written[i - 1]) && is_digit(written[i + 1]);
      if (!divides) digits.push_back(written[i]);
    }
    const bool has_sign = digits.starts_with('-');
    const std::size_t first = has_sign ? 1 : 0;
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error != std::errc() || end != digits.data() + digits.size()) return invalid(what);
    if (digits.size() > first + 1 && digits[first] == '0') return invalid(what);
    return number;
  }

 private:
  static bool is_of_text(char letter) {
    return letter == '\t' || std::iscntrl(static_cast<unsigned char>(letter)) == 0;
  }
  bool take(char expected) {
    if (!rest_.starts_with(expected)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void skip_space() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t"), rest_.size())); }

  std::string_view rest_;
};

template <class T>
Result<void> take(Line& line, std::optional<T>& setting) {
  if constexpr (std::is_integral_v<T>) {
    ASSIGN_OR_RETURN(const std::int64_t number, line.take_number());
    if (std::is_unsigned_v<T> && number < 0) return invalid("the value must not be negative");
    setting = static_cast<T>(number);
  } else {
    ASSIGN_OR_RETURN(setting, line.take_text());
  }
  if (!line.is_done()) return invalid("there is text after the value; a comment begins with #");
  return {};
}

Result<void> take_setting(const std::string& name, Line& line, ConfigFile& config) {
  if (name == "root") return take(line, config.root);
  if (name == "socket") return take(line, config.socket);
  if (name == "listen") return take(line, config.listen);
  if (name == "fabric") return take(line, config.fabric);
  if (name == "control_encryption") return take(line, config.control_encryption);
  if (name == "files_image") return take(line, config.files_image);
  if (name == "capacity_bytes") return take(line, config.capacity_bytes);
  if (name == "flush_interval_ms") return take(line, config.flush_interval_ms);
  if (name == "restart_grace_ms") return take(line, config.restart_grace_ms);
  if (name == "log_level") return take(line, config.log_level);
  return invalid(
      "there is no such setting; there are: root, socket, listen, fabric, control_encryption, files_image, "
      "capacity_bytes, flush_interval_ms, restart_grace_ms, log_level");
}

}  // namespace

Result<ConfigFile> parse_config(std::string_view text, const std::string& path) {
  ConfigFile config;
  std::set<std::string> seen;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    Line line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.is_done()) continue;
    const std::string where = fmt::format("{}, line {}", path, number);
    const auto name = line.take_key();
    if (!name) return fail(ErrorCode::invalid_argument, name.error().what, where);
    const std::string setting = where + ", setting " + *name;
    if (!seen.insert(*name).second) return fail(ErrorCode::invalid_argument, "the setting occurs twice", setting);
    if (auto taken = take_setting(*name, line, config); !taken)
      return fail(ErrorCode::invalid_argument, std::move(taken.error().what), setting);
  }
  return config;
}

Result<ConfigFile> read_config(const std::string& path) {
  ASSIGN_OR_RETURN(const auto file, posix_device().open(path, OpenMode::read));
  ASSIGN_OR_RETURN(const std::uint64_t size, file->size());
  if (size > config_bytes_max)
    return fail(ErrorCode::invalid_argument, "this is too large for a configuration file", path);
  std::string text(size, '\0');
  RETURN_IF_ERROR(file->read_at(0, std::as_writable_bytes(std::span(text))));
  return parse_config(text, path);
}

}  // namespace forebay::server
