// SPDX-License-Identifier: Apache-2.0
// What a remote client shows: claims that the server made, and the secret that belongs to them. The secret is a keyed
// hash of the claims, so a server knows a token again by its key alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <forebay/result.h>

namespace forebay::fabric {

/// Bits of TokenClaims::rights. Never renumber.
inline constexpr std::uint32_t right_read = 1;
inline constexpr std::uint32_t right_write = 2;
inline constexpr std::uint32_t rights_all = right_read | right_write;

struct TokenClaims {
  std::uint64_t key_id = 0;
  std::string reservation_id;  ///< uuid
  std::uint64_t access_generation = 0;
  std::uint32_t uid = 0;
  std::uint32_t rights = 0;
  std::int64_t expires_ns = 0;  ///< since 1970
  std::uint64_t serial = 0;     ///< makes two tokens differ

  bool operator==(const TokenClaims&) const = default;
};

/// Claims as they are signed and sent.
inline constexpr std::size_t claims_bytes = 80;
std::vector<std::byte> encode(const TokenClaims& claims);
/// protocol unless these are claims of this version.
Result<TokenClaims> decode_claims(std::span<const std::byte> bytes);

using Secret = std::array<std::uint8_t, 32>;

struct Token {
  std::vector<std::byte> claims;
  Secret secret{};
};

/// One line of text, and back. invalid_argument for anything else; `where` names its origin.
std::string to_text(const Token& token);
Result<Token> parse_token(std::string_view text, const std::string& where);
/// permission_denied for a file that others may read: whoever has a token has its rights.
Result<Token> read_token_file(const std::string& path);

/// What a server makes tokens with.
struct TokenKey {
  std::uint64_t id = 0;
  Secret key{};

  static TokenKey draw();
  /// Lines of a small file.
  std::string to_text() const;
  static Result<TokenKey> parse(std::string_view text, const std::string& where);

  Secret secret_of(std::span<const std::byte> claims) const;
};

}  // namespace forebay::fabric
