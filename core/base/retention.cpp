// SPDX-License-Identifier: Apache-2.0
// Text form of retention rules and of a follower's start.
#include <charconv>
#include <optional>

#include <forebay/address.h>
#include <forebay/reader.h>
#include <forebay/writer.h>

namespace forebay {
namespace {

/// As many as a stream has.
constexpr std::size_t retention_consumers_max = 1024;

std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// Splits at `separator`; an empty text has one empty part.
std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const auto at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text = text.substr(at + 1);
  }
}

tl::unexpected<Error> bad_term(std::string_view term) {
  return fail(ErrorCode::invalid_argument, "cannot read the retention term \"" + std::string(term) +
                                               "\"; write all, or terms joined by commas: last:N, first:N, "
                                               "consumers:NAME+NAME, precious:N (for example last:10,first:1)");
}

}  // namespace

Result<Retention> parse_retention(std::string_view text) {
  Retention retention;
  for (std::string_view term : split(text, ',')) {
    if (term == "all") continue;
    const auto colon = term.find(':');
    if (colon == std::string_view::npos) return bad_term(term);
    const std::string_view key = term.substr(0, colon);
    const std::string_view value = term.substr(colon + 1);
    if (key == "last" || key == "first" || key == "precious") {
      const auto number = parse_number(value);
      if (!number || *number == 0) return bad_term(term);
      if (key == "last") {
        retention.last = *number;
      } else if (key == "first") {
        retention.first = *number;
      } else {
        retention.precious_every = *number;
      }
    } else if (key == "consumers") {
      for (std::string_view name : split(value, '+')) {
        if (!is_valid_name(name)) return bad_term(term);
        retention.consumers.emplace_back(name);
      }
      if (retention.consumers.size() > retention_consumers_max) {
        return fail(ErrorCode::invalid_argument,
                    "a retention can name at most " + std::to_string(retention_consumers_max) + " consumers");
      }
    } else {
      return bad_term(term);
    }
  }
  return retention;
}

std::string to_string(const Retention& retention) {
  std::string text;
  const auto add = [&text](const std::string& term) { text += (text.empty() ? "" : ",") + term; };
  if (retention.last) add("last:" + std::to_string(*retention.last));
  if (!retention.consumers.empty()) {
    std::string names;
    for (const std::string& name : retention.consumers) names += (names.empty() ? "" : "+") + name;
    add("consumers:" + names);
  }
  if (text.empty()) add("all");
  if (retention.first != 0) add("first:" + std::to_string(retention.first));
  if (retention.precious_every != 0) add("precious:" + std::to_string(retention.precious_every));
  return text;
}

Result<Start> parse_start(std::string_view text) {
  if (text == "cursor") return Start{Start::Kind::cursor, 0};
  if (text == "oldest") return Start{Start::Kind::oldest, 0};
  if (text == "latest") return Start{Start::Kind::latest, 0};
  if (text == "next") return Start{Start::Kind::next, 0};
  if (const auto number = parse_number(text)) return Start{Start::Kind::step, *number};
  return fail(ErrorCode::invalid_argument, "cannot read the start \"" + std::string(text) +
                                               "\"; write cursor, oldest, latest, next or a step number");
}

}  // namespace forebay
