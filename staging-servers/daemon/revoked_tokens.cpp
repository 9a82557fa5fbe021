// SPDX-License-Identifier: Apache-2.0
#include "daemon/revoked_tokens.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/return_error.h"

namespace forebay::server {
namespace {

constexpr const char* file_name = "revoked-tokens";
constexpr std::string_view heading = "forebay-revoked-tokens-2\n";
constexpr std::size_t tokens_max = 65'536;
constexpr std::ptrdiff_t tokens_of_user_max = 1024;
constexpr std::uint64_t revoked_bytes_max = std::uint64_t{4} << 20;
constexpr int hexadecimal = 16;

template <class Number>
bool take(std::string_view text, Number& number, int base) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

Result<RevokedTokens> RevokedTokens::load(Device& device, std::string root) {
  const std::string path = root + "/" + file_name;
  RevokedTokens tokens(device, std::move(root));
  const auto bytes = read_whole(device, path, revoked_bytes_max);
  if (!bytes && bytes.error().code == ErrorCode::not_found) return tokens;
  if (!bytes) return fail(bytes.error());
  const auto refuse = [&path] {
    return fail(ErrorCode::corrupt,
                "not a list of revoked tokens; remove token-key beside it, which voids all tokens, and then the list",
                path);
  };
  std::string_view text(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  if (!text.starts_with(heading)) return refuse();
  text.remove_prefix(heading.size());
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return refuse();
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    const std::size_t space = line.find(' ');
    const std::size_t second = space == std::string_view::npos ? space : line.find(' ', space + 1);
    std::uint64_t serial = 0;
    Token token;
    if (second == std::string_view::npos || !take(line.substr(0, space), serial, hexadecimal) ||
        !take(line.substr(space + 1, second - space - 1), token.expires_ns, 10) ||
        !take(line.substr(second + 1), token.user, 10))
      return refuse();
    tokens.tokens_[serial] = token;
  }
  return tokens;
}

Result<void> RevokedTokens::add(std::uint64_t serial, const Token& token, std::int64_t now_ns) {
  if (token.expires_ns <= now_ns || contains(serial)) return {};
  std::erase_if(tokens_, [now_ns](const auto& entry) { return entry.second.expires_ns <= now_ns; });
  const auto is_users = [&token](const auto& entry) { return entry.second.user == token.user; };
  if (token.user != 0 && std::ranges::count_if(tokens_, is_users) >= tokens_of_user_max) {
    return fail(ErrorCode::busy, fmt::format("user {} has revoked {} tokens that have not expired, as many as one may; "
                                             "make tokens with a shorter --lifetime",
                                             token.user, tokens_of_user_max));
  }
  if (tokens_.size() >= tokens_max) {
    return fail(ErrorCode::busy, fmt::format("{} tokens are revoked and have not expired, as many as may be; remove "
                                             "ROOT/token-key and restart the server, which voids all tokens",
                                             tokens_max));
  }
  tokens_[serial] = token;
  auto written = write();
  if (!written) tokens_.erase(serial);
  return written;
}

Result<void> RevokedTokens::write() const {
  std::string text(heading);
  for (const auto& [serial, token] : tokens_)
    text += fmt::format("{:016x} {} {}\n", serial, token.expires_ns, token.user);
  return write_whole(*device_, root_, file_name, std::as_bytes(std::span(text)));
}

}  // namespace forebay::server
