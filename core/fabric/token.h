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

/// What a server of a pool says of a client to another one. Who says it shows the pool's key.
struct PoolClaims {
  std::uint64_t key_id = 0;
  std::string reservation_id;  ///< uuid, the only one that is meant; empty: whatever the client may use
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::vector<std::uint32_t> groups;  ///< the others that it is in
  bool administrator = false;
  bool segments_only = false;  ///< it comes for segments of a reservation's member, with a permit, and for nothing else
  std::int64_t expires_ns = 0;  ///< since 1970
  std::uint64_t serial = 0;

  bool operator==(const PoolClaims&) const = default;
};

inline constexpr std::size_t pool_groups_max = 512;
/// The groups after the first pool_groups_max are left out.
std::vector<std::byte> encode(const PoolClaims& claims);
/// These bytes are meant as pool claims, and not as a token's.
bool are_pool_claims(std::span<const std::byte> bytes) noexcept;
/// protocol unless these are pool claims of this version.
Result<PoolClaims> decode_pool_claims(std::span<const std::byte> bytes);

using Secret = std::array<std::uint8_t, 32>;

/// What a client shows whom MUNGE vouches for: the credential, as claims. It carries a secret for this handshake alone,
/// which only the server's user can read, and the client's nonce.
std::vector<std::byte> munge_claims(std::string_view credential);
/// The credential of such claims; empty if these are others.
std::string_view credential_in(std::span<const std::byte> claims) noexcept;
/// What the credential carries.
std::vector<std::byte> munge_payload(const Secret& secret, std::span<const std::uint8_t> nonce);
/// protocol if it carries something else, or was made for another nonce.
Result<Secret> secret_in(std::span<const std::byte> payload, std::span<const std::uint8_t> nonce);
/// Random, and never the same again.
Secret draw_secret();

struct Token {
  std::vector<std::byte> claims;
  Secret secret{};
};

/// One line of text, and back: a token of a server, or a user token, whose claims are a pool's. invalid_argument for
/// anything else; `where` names its origin.
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
