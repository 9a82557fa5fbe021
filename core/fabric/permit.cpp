// SPDX-License-Identifier: Apache-2.0
#include "fabric/permit.h"

#include <algorithm>
#include <cstring>

#include "base/uuid.h"
#include "fabric/handshake.h"

namespace forebay::fabric {
namespace {

constexpr std::uint32_t permit_magic = 0x31534246;  // "FBS1" read as little-endian
constexpr std::size_t permit_uuid_bytes = 36;

/// Little-endian, without padding. Followed by the segments, of 4 bytes each, and the keyed hash.
struct PermitRecord {
  std::uint32_t magic;
  std::uint32_t uid;
  std::uint64_t key_id;
  std::uint64_t access_generation;
  std::uint64_t server_run;
  std::uint64_t number;
  std::uint64_t presence;
  std::uint32_t incarnation;
  std::uint32_t rank;
  std::uint32_t segments;
  std::uint16_t member;
  std::uint16_t reserved;
  char reservation_id[permit_uuid_bytes];
  char stream[permit_uuid_bytes];
};
static_assert(sizeof(PermitRecord) == 136);

}  // namespace

std::vector<std::uint8_t> seal(const Permit& permit, const TokenKey& key) {
  PermitRecord record{};
  record.magic = permit_magic;
  record.uid = permit.uid;
  record.key_id = key.id;
  record.access_generation = permit.access_generation;
  record.server_run = permit.server_run;
  record.number = permit.number;
  record.presence = permit.presence;
  record.incarnation = permit.incarnation;
  record.rank = permit.rank;
  record.segments = static_cast<std::uint32_t>(std::min(permit.segments.size(), permit_segments_max));
  record.member = permit.member;
  permit.reservation_id.copy(record.reservation_id, permit_uuid_bytes);
  permit.stream.copy(record.stream, permit_uuid_bytes);
  const auto fixed = std::as_bytes(std::span(&record, 1));
  const auto segments = std::as_bytes(std::span(permit.segments).first(record.segments));
  std::vector<std::byte> bytes(fixed.begin(), fixed.end());
  bytes.insert(bytes.end(), segments.begin(), segments.end());
  const Secret hash = key.secret_of(bytes);
  const auto* begin = reinterpret_cast<const std::uint8_t*>(bytes.data());
  std::vector<std::uint8_t> sealed(begin, begin + bytes.size());
  sealed.insert(sealed.end(), hash.begin(), hash.end());
  return sealed;
}

std::optional<std::vector<std::uint32_t>> segments_in(std::span<const std::uint8_t> sealed) {
  PermitRecord record{};
  if (sealed.size() < sizeof record + sizeof(Secret)) return std::nullopt;
  std::memcpy(&record, sealed.data(), sizeof record);
  const std::size_t bytes = sealed.size() - sizeof record - sizeof(Secret);
  if (record.magic != permit_magic || bytes != std::size_t{record.segments} * sizeof(std::uint32_t))
    return std::nullopt;
  std::vector<std::uint32_t> segments(record.segments);
  if (bytes > 0) std::memcpy(segments.data(), sealed.data() + sizeof record, bytes);
  return segments;
}

Result<Permit> unseal(std::span<const std::uint8_t> sealed, const TokenKey& key) {
  PermitRecord record{};
  const auto malformed = [] { return fail(ErrorCode::protocol, "this is no permit, or one of a newer release"); };
  constexpr std::size_t least = sizeof record + sizeof(Secret);
  if (sealed.size() < least || sealed.size() > least + permit_segments_max * sizeof(std::uint32_t)) return malformed();
  std::memcpy(&record, sealed.data(), sizeof record);
  const std::size_t segment_bytes = std::size_t{record.segments} * sizeof(std::uint32_t);
  if (record.magic != permit_magic || sealed.size() != least + segment_bytes) return malformed();
  const auto hashed = sealed.first(sizeof record + segment_bytes);
  if (record.key_id != key.id || !is_same(key.secret_of(std::as_bytes(hashed)), sealed.last(sizeof(Secret))))
    return fail(ErrorCode::permission_denied, "the permit was made with another key than this pool's, or was changed");
  Permit permit;
  permit.key_id = record.key_id;
  permit.reservation_id.assign(record.reservation_id, permit_uuid_bytes);
  permit.access_generation = record.access_generation;
  permit.uid = record.uid;
  permit.member = record.member;
  permit.server_run = record.server_run;
  permit.number = record.number;
  permit.presence = record.presence;
  permit.stream.assign(record.stream, strnlen(record.stream, permit_uuid_bytes));
  permit.incarnation = record.incarnation;
  permit.rank = record.rank;
  permit.segments.resize(record.segments);
  if (record.segments > 0) std::memcpy(permit.segments.data(), sealed.data() + sizeof record, segment_bytes);
  if (!is_uuid(permit.reservation_id) || (permit.writes() && !is_uuid(permit.stream))) return malformed();
  return permit;
}

}  // namespace forebay::fabric
