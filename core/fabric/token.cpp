// SPDX-License-Identifier: Apache-2.0
#include "fabric/token.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/descriptor.h"
#include "base/return_error.h"
#include "base/system_error.h"
#include "base/uuid.h"

namespace forebay::fabric {
namespace {

constexpr std::uint32_t claims_magic = 0x31544246;  // "FBT1" read as little-endian
constexpr std::size_t uuid_bytes = 36;
constexpr std::string_view text_prefix = "forebay-token-1.";
constexpr std::string_view key_prefix = "forebay-token-key-1.";
constexpr std::string_view munge_prefix = "FBM1";
constexpr std::string_view payload_prefix = "forebay-remote-hello-1";
constexpr std::size_t file_bytes_max = 4096;
constexpr int base64 = sodium_base64_VARIANT_URLSAFE_NO_PADDING;

/// Little-endian, without padding; as all machines that Forebay runs on have it.
struct ClaimsRecord {
  std::uint32_t magic;
  std::uint32_t uid;
  std::uint64_t key_id;
  std::uint64_t access_generation;
  std::int64_t expires_ns;
  std::uint64_t serial;
  std::uint32_t rights;
  char reservation_id[uuid_bytes];
};
static_assert(sizeof(ClaimsRecord) == claims_bytes);

constexpr std::uint32_t pool_claims_magic = 0x31504246;  // "FBP1"

/// PoolClaimsRecord::kind.
constexpr std::uint32_t pool_user = 0, pool_administrator = 1, pool_segments = 2;

/// Followed by the groups, of 4 bytes each.
struct PoolClaimsRecord {
  std::uint32_t magic;
  std::uint32_t uid;
  std::uint32_t gid;
  std::uint32_t kind;
  std::uint64_t key_id;
  std::int64_t expires_ns;
  std::uint64_t serial;
  std::uint32_t groups;
  char reservation_id[uuid_bytes];
};
static_assert(sizeof(PoolClaimsRecord) == 80);

std::string in_base64(std::span<const std::byte> bytes) {
  std::string text(sodium_base64_encoded_len(bytes.size(), base64), '\0');
  sodium_bin2base64(text.data(), text.size(), reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
                    base64);
  text.resize(std::strlen(text.c_str()));
  return text;
}

/// Nothing if it is something else.
std::vector<std::byte> from_base64(std::string_view text) {
  if (text.empty()) return {};  // an empty vector has no place that sodium could be given
  std::vector<std::byte> out(text.size());
  std::size_t length = 0;
  const char* end = nullptr;
  const int read = sodium_base642bin(reinterpret_cast<unsigned char*>(out.data()), out.size(), text.data(), text.size(),
                                     nullptr, &length, &end, base64);
  out.resize(read == 0 && end == text.data() + text.size() ? length : 0);
  return out;
}

/// Exactly `bytes` of them, or nothing.
std::vector<std::byte> from_base64(std::string_view text, std::size_t bytes) {
  auto out = from_base64(text);
  if (out.size() != bytes) out.clear();
  return out;
}

std::string_view without_space(std::string_view text) {
  const auto is_space = [](char c) { return c == '\n' || c == '\r' || c == ' ' || c == '\t'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace

std::vector<std::byte> encode(const TokenClaims& claims) {
  ClaimsRecord record{};
  record.magic = claims_magic;
  record.uid = claims.uid;
  record.key_id = claims.key_id;
  record.access_generation = claims.access_generation;
  record.expires_ns = claims.expires_ns;
  record.serial = claims.serial;
  record.rights = claims.rights;
  claims.reservation_id.copy(record.reservation_id, uuid_bytes);
  const auto bytes = std::as_bytes(std::span(&record, 1));
  return {bytes.begin(), bytes.end()};
}

Result<TokenClaims> decode_claims(std::span<const std::byte> bytes) {
  ClaimsRecord record{};
  if (bytes.size() != sizeof record) return fail(ErrorCode::protocol, "a token's claims have another size");
  std::memcpy(&record, bytes.data(), sizeof record);
  TokenClaims claims;
  claims.reservation_id.assign(record.reservation_id, uuid_bytes);
  if (record.magic != claims_magic || !is_uuid(claims.reservation_id) || (record.rights & ~rights_all) != 0)
    return fail(ErrorCode::protocol, "these are no token's claims, or those of a newer release");
  claims.uid = record.uid;
  claims.key_id = record.key_id;
  claims.access_generation = record.access_generation;
  claims.expires_ns = record.expires_ns;
  claims.serial = record.serial;
  claims.rights = record.rights;
  return claims;
}

std::vector<std::byte> encode(const PoolClaims& claims) {
  PoolClaimsRecord record{};
  record.magic = pool_claims_magic;
  record.uid = claims.uid;
  record.gid = claims.gid;
  record.kind = claims.administrator ? pool_administrator : claims.segments_only ? pool_segments : pool_user;
  record.key_id = claims.key_id;
  record.expires_ns = claims.expires_ns;
  record.serial = claims.serial;
  record.groups = static_cast<std::uint32_t>(std::min(claims.groups.size(), pool_groups_max));
  claims.reservation_id.copy(record.reservation_id, uuid_bytes);
  const auto fixed = std::as_bytes(std::span(&record, 1));
  const auto groups = std::as_bytes(std::span(claims.groups).first(record.groups));
  std::vector<std::byte> bytes(fixed.begin(), fixed.end());
  bytes.insert(bytes.end(), groups.begin(), groups.end());
  return bytes;
}

bool are_pool_claims(std::span<const std::byte> bytes) noexcept {
  std::uint32_t magic = 0;
  if (bytes.size() < sizeof magic) return false;
  std::memcpy(&magic, bytes.data(), sizeof magic);
  return magic == pool_claims_magic;
}

Result<PoolClaims> decode_pool_claims(std::span<const std::byte> bytes) {
  PoolClaimsRecord record{};
  const bool long_enough = bytes.size() >= sizeof record;
  if (long_enough) std::memcpy(&record, bytes.data(), sizeof record);
  PoolClaims claims;
  claims.reservation_id.assign(record.reservation_id, strnlen(record.reservation_id, uuid_bytes));
  const bool whole = long_enough && record.magic == pool_claims_magic && record.groups <= pool_groups_max &&
                     bytes.size() == sizeof record + record.groups * sizeof(std::uint32_t) &&
                     record.kind <= pool_segments && (claims.reservation_id.empty() || is_uuid(claims.reservation_id));
  if (!whole) return fail(ErrorCode::protocol, "these are no claims of a pool's server, or those of a newer release");
  claims.uid = record.uid;
  claims.gid = record.gid;
  claims.groups.resize(record.groups);
  if (record.groups > 0)
    std::memcpy(claims.groups.data(), bytes.data() + sizeof record, record.groups * sizeof(std::uint32_t));
  claims.administrator = record.kind == pool_administrator;
  claims.segments_only = record.kind == pool_segments;
  claims.key_id = record.key_id;
  claims.expires_ns = record.expires_ns;
  claims.serial = record.serial;
  return claims;
}

std::vector<std::byte> munge_claims(std::string_view credential) {
  std::string text(munge_prefix);
  text += credential;
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::string_view credential_in(std::span<const std::byte> claims) noexcept {
  const std::string_view text(reinterpret_cast<const char*>(claims.data()), claims.size());
  return text.starts_with(munge_prefix) ? text.substr(munge_prefix.size()) : std::string_view();
}

std::vector<std::byte> munge_payload(const Secret& secret, std::span<const std::uint8_t> nonce) {
  std::vector<std::byte> payload;
  const auto add = [&payload](std::span<const std::byte> bytes) {
    payload.insert(payload.end(), bytes.begin(), bytes.end());
  };
  add(std::as_bytes(std::span(payload_prefix)));
  add(std::as_bytes(std::span(nonce)));
  add(std::as_bytes(std::span(secret)));
  return payload;
}

Result<Secret> secret_in(std::span<const std::byte> payload, std::span<const std::uint8_t> nonce) {
  Secret secret{};
  const auto expected = munge_payload(secret, nonce);
  const std::size_t fixed = expected.size() - secret.size();
  if (payload.size() != expected.size() || !std::equal(expected.begin(), expected.begin() + fixed, payload.begin()))
    return fail(ErrorCode::protocol, "the credential was made for something else than this handshake");
  std::memcpy(secret.data(), payload.data() + fixed, secret.size());
  return secret;
}

Secret draw_secret() {
  Secret secret{};
  [[maybe_unused]] const int initialized = sodium_init();
  randombytes_buf(secret.data(), secret.size());
  return secret;
}

std::string to_text(const Token& token) {
  std::vector<std::byte> bytes = token.claims;
  const auto secret = std::as_bytes(std::span(token.secret));
  bytes.insert(bytes.end(), secret.begin(), secret.end());
  return std::string(text_prefix) + in_base64(bytes);
}

Result<Token> parse_token(std::string_view text, const std::string& where) {
  text = without_space(text);
  Token token;
  std::vector<std::byte> bytes;
  if (text.starts_with(text_prefix) && text.size() <= file_bytes_max)
    bytes = from_base64(text.substr(text_prefix.size()));
  const bool whole = bytes.size() == claims_bytes + token.secret.size() ||
                     (bytes.size() > claims_bytes + token.secret.size() && are_pool_claims(bytes));
  if (!whole) {
    return fail(ErrorCode::invalid_argument,
                "this is no token; make one on the server's node with `forebay token create RES --output FILE`", where);
  }
  token.claims.assign(bytes.begin(), bytes.end() - static_cast<std::ptrdiff_t>(token.secret.size()));
  std::memcpy(token.secret.data(), bytes.data() + token.claims.size(), token.secret.size());
  return token;
}

Result<Token> read_token_file(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return system_error(errno, "cannot read the token", path);
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) return system_error(errno, "cannot look at the token's file", path);
  // Root gives a job's token to the job's user by an access list, whose mask is where the group's bits are.
  const bool is_given = status.st_uid == 0 && ::geteuid() != 0;
  if ((status.st_mode & (is_given ? S_IRWXO : S_IRWXG | S_IRWXO)) != 0) {
    return fail(ErrorCode::permission_denied,
                "others may read this token, and whoever has it has its rights; chmod 600 it", path);
  }
  char text[file_bytes_max];
  const ssize_t count = ::read(file.get(), text, sizeof text);
  if (count < 0) return system_error(errno, "cannot read the token", path);
  return parse_token({text, static_cast<std::size_t>(count)}, path);
}

TokenKey TokenKey::draw() {
  TokenKey drawn;
  [[maybe_unused]] const int initialized = sodium_init();  // looks at the processor, once; random numbers need nothing
  drawn.id = random_number();
  randombytes_buf(drawn.key.data(), drawn.key.size());
  return drawn;
}

std::string TokenKey::to_text() const {
  std::vector<std::byte> bytes(sizeof id + key.size());
  std::memcpy(bytes.data(), &id, sizeof id);
  std::memcpy(bytes.data() + sizeof id, key.data(), key.size());
  return std::string(key_prefix) + in_base64(bytes) + "\n";
}

Result<TokenKey> TokenKey::parse(std::string_view text, const std::string& where) {
  text = without_space(text);
  TokenKey read;
  std::vector<std::byte> bytes;
  if (text.starts_with(key_prefix))
    bytes = from_base64(text.substr(key_prefix.size()), sizeof read.id + read.key.size());
  if (bytes.empty())
    return fail(ErrorCode::corrupt, "this is no key for tokens; remove it, and tokens made before are void", where);
  std::memcpy(&read.id, bytes.data(), sizeof read.id);
  std::memcpy(read.key.data(), bytes.data() + sizeof read.id, read.key.size());
  return read;
}

Secret TokenKey::secret_of(std::span<const std::byte> claims) const {
  static_assert(std::tuple_size_v<Secret> == crypto_auth_KEYBYTES);
  Secret secret{};
  crypto_generichash(secret.data(), secret.size(), reinterpret_cast<const unsigned char*>(claims.data()), claims.size(),
                     key.data(), key.size());
  return secret;
}

}  // namespace forebay::fabric
