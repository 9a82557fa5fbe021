// SPDX-License-Identifier: Apache-2.0
#include "storage/reservation_check.h"

#include <algorithm>
#include <bit>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <forebay/address.h>
#include <forebay/admin.h>

#include "base/bounds.h"
#include "base/name_rule.h"
#include "base/return_error.h"
#include "base/size_text.h"
#include "base/uuid.h"
#include "storage/framing.h"
#include "storage/record_body.h"
#include "storage/reservation_store.h"

namespace forebay::storage {
namespace {

static_assert(static_cast<int>(Lifetime::job) == 1 && static_cast<int>(Lifetime::persistent) == 2);
static_assert(static_cast<int>(Share::Kind::user) == 1 && static_cast<int>(Share::Kind::group) == 2);
static_assert(static_cast<int>(Rights::none) == 1 && static_cast<int>(Rights::read) == 2 &&
              static_cast<int>(Rights::write) == 3);

constexpr std::uint64_t segment_bytes_min = std::uint64_t{1} << 20;
constexpr std::uint64_t segment_bytes_max = std::uint64_t{256} << 20;
constexpr std::uint64_t segments_wanted = 32;
/// Of each member of several, at least.
constexpr std::uint64_t member_segments_wanted = 8;
constexpr std::uint64_t stripe_bytes_max = std::uint64_t{8} << 20;
constexpr std::uint64_t journal_reserve_bytes_min = std::uint64_t{1} << 20;
constexpr std::uint64_t journal_reserve_bytes_max = std::uint64_t{64} << 20;
constexpr std::uint64_t journal_reserve_share = 64;
constexpr std::uint64_t capacity_bytes_max = segments_max * segment_bytes_max;

tl::unexpected<Error> bad_reservation(const std::string& what) {
  return fail(ErrorCode::invalid_argument, "the reservation's " + what);
}

/// Of several members each is another server, and gives what its segments take.
Result<void> check_reservation_members(const reservation::ReservationT& record) {
  if (record.members.size() == 1) return {};
  std::set<std::string> servers;
  std::uint64_t capacity_bytes = 0;
  for (std::size_t number = 0; number < record.members.size(); ++number) {
    const reservation::MemberT& member = *record.members[number];
    if (!is_uuid(member.server) || !servers.insert(member.server).second)
      return bad_reservation("members are not different servers");
    const std::uint64_t kept_bytes = number == 0 ? record.journal_reserve_bytes : 0;
    const auto taken = checked_add(std::uint64_t{member.segments} * record.segment_bytes, kept_bytes);
    const auto all = checked_add(capacity_bytes, member.capacity_bytes);
    if (member.segments == 0 || !taken || *taken > member.capacity_bytes || !all)
      return bad_reservation("member " + std::to_string(number) + " has segments that do not fit into its capacity");
    capacity_bytes = *all;
  }
  if (capacity_bytes != record.capacity_bytes) return bad_reservation("members' capacities do not add up to its own");
  return {};
}

}  // namespace

std::uint64_t granted_bytes(const reservation::ReservationT& record, std::uint16_t member) noexcept {
  if (record.members.size() <= 1) return record.capacity_bytes + record.files_bytes;
  if (member >= record.members.size()) return 0;
  return record.members[member]->capacity_bytes + (member == 0 ? record.files_bytes : 0);
}

std::optional<std::uint16_t> member_of_root(const reservation::ReservationT& record, const std::string& uuid) {
  const auto found = std::ranges::find_if(record.members, [&](const auto& member) { return member->server == uuid; });
  if (found == record.members.end()) return std::nullopt;
  return static_cast<std::uint16_t>(found - record.members.begin());
}

Result<ReservationLayout> layout_for(std::uint64_t capacity_bytes, std::uint64_t files_bytes) {
  return layout_for(std::span(&capacity_bytes, 1), files_bytes);
}

Result<ReservationLayout> layout_for(std::span<const std::uint64_t> member_bytes, std::uint64_t files_bytes) {
  const bool several = member_bytes.size() > 1;
  std::uint64_t capacity_bytes = 0;
  for (const std::uint64_t bytes : member_bytes) {
    if (bytes > capacity_bytes_max - capacity_bytes) capacity_bytes = capacity_bytes_max + 1;
    if (capacity_bytes <= capacity_bytes_max) capacity_bytes += bytes;
  }
  if (capacity_bytes > capacity_bytes_max || files_bytes > capacity_bytes_max) {
    return fail(ErrorCode::invalid_argument, "a reservation can have at most " +
                                                 std::to_string(capacity_bytes_max >> 40) +
                                                 " TiB for streams, and the same for files");
  }
  ReservationLayout layout;
  layout.files_bytes = round_up(files_bytes, granularity_bytes);
  layout.segment_bytes = segment_bytes_min;
  layout.stripe_bytes = segment_bytes_min;
  layout.segments.assign(member_bytes.size(), 0);
  layout.member_bytes.assign(member_bytes.size(), 0);
  if (!several && capacity_bytes == 0 && files_bytes > 0) return layout;
  if (several && std::ranges::any_of(member_bytes, [](std::uint64_t bytes) { return bytes < capacity_bytes_min; })) {
    return fail(ErrorCode::invalid_argument, "each server gives at least " + size_text(capacity_bytes_min) +
                                                 " for streams; ask for more, or for fewer servers");
  }
  if (capacity_bytes < capacity_bytes_min) {
    return fail(ErrorCode::invalid_argument, "a reservation needs at least " +
                                                 std::to_string(capacity_bytes_min >> 20) +
                                                 " MiB for streams (or none, " + "if it has a capacity for files); " +
                                                 size_text(capacity_bytes) + " were requested");
  }
  for (std::size_t member = 0; member < member_bytes.size(); ++member) {
    layout.member_bytes[member] = round_up(member_bytes[member], granularity_bytes);
    layout.capacity_bytes += layout.member_bytes[member];
  }
  layout.segment_bytes =
      std::clamp(std::bit_floor(layout.capacity_bytes / segments_wanted), segment_bytes_min, segment_bytes_max);
  layout.journal_reserve_bytes =
      std::clamp(layout.capacity_bytes / journal_reserve_share, journal_reserve_bytes_min, journal_reserve_bytes_max);
  if (several) {
    // The home has to have room for metadata beside its journals, and each member for several writers.
    const std::uint64_t home_bytes = layout.member_bytes.front();
    layout.journal_reserve_bytes =
        std::max(journal_reserve_bytes_min, std::min(layout.journal_reserve_bytes, home_bytes / 4));
    const std::uint64_t least =
        std::min(home_bytes - layout.journal_reserve_bytes, *std::ranges::min_element(layout.member_bytes));
    layout.segment_bytes =
        std::max(segment_bytes_min, std::min(layout.segment_bytes, std::bit_floor(least / member_segments_wanted)));
  }
  layout.stripe_bytes = several ? std::min(layout.segment_bytes, stripe_bytes_max) : layout.segment_bytes;
  for (std::size_t member = 0; member < member_bytes.size(); ++member) {
    const std::uint64_t kept_bytes = member == 0 ? layout.journal_reserve_bytes : 0;
    layout.segments[member] =
        static_cast<std::uint32_t>((layout.member_bytes[member] - kept_bytes) / layout.segment_bytes);
  }
  return layout;
}

SegmentLayout layout_of(const reservation::ReservationT& record) {
  std::vector<std::uint32_t> segments;
  for (const auto& member : record.members) segments.push_back(member->segments);
  return SegmentLayout(std::move(segments));
}

Result<void> check_reservation(const reservation::ReservationT& record) {
  if (!is_uuid(record.id)) return bad_reservation("id \"" + record.id + "\" is not a uuid");
  if (!is_valid_name(record.name)) return bad_reservation("name \"" + record.name + "\" is not valid");
  if (!std::has_single_bit(record.segment_bytes) || record.segment_bytes < segment_bytes_min ||
      record.segment_bytes > segment_bytes_max) {
    return bad_reservation("segment size of " + std::to_string(record.segment_bytes) + " bytes is impossible");
  }
  if (record.members.empty() || record.members.size() > members_max)
    return bad_reservation("member count is " + std::to_string(record.members.size()) + "; 1 to " +
                           std::to_string(members_max) + " are possible");
  RETURN_IF_ERROR(check_reservation_members(record));
  std::uint64_t segments = 0;
  for (const auto& member : record.members) segments += member->segments;
  if (record.files_bytes > capacity_bytes_max || record.capacity_bytes > capacity_bytes_max)
    return bad_reservation("capacity of " + std::to_string(record.capacity_bytes) + " bytes for streams and " +
                           std::to_string(record.files_bytes) + " for files is impossible");
  const bool for_files_only = record.capacity_bytes == 0 && record.files_bytes > 0;
  if (segments > segments_max) return bad_reservation(std::to_string(segments) + " segments are more than can be");
  const auto taken = checked_add(segments * record.segment_bytes, record.journal_reserve_bytes);
  if ((segments == 0) != for_files_only || !taken || *taken > record.capacity_bytes) {
    return bad_reservation(std::to_string(segments) + " segments and the journals' reserve do not fit into " +
                           std::to_string(record.capacity_bytes) + " bytes");
  }
  const auto one_or_two = [](std::uint8_t value) { return value == 1 || value == 2; };
  if (!one_or_two(record.lifetime)) return bad_reservation("the lifetime is not known");
  if (record.pool.size() > name_bytes_max || record.account.size() > name_bytes_max)
    return bad_reservation("names of pool and account are too long");
  if (record.shares.size() > shares_max)
    return bad_reservation("shares are " + std::to_string(record.shares.size()) + "; " + std::to_string(shares_max) +
                           " are the most");
  for (std::size_t i = 0; i < record.shares.size(); ++i) {
    const reservation::ShareT& share = *record.shares[i];
    const bool sane = one_or_two(share.kind) && share.rights >= static_cast<std::uint8_t>(Rights::none) &&
                      share.rights <= static_cast<std::uint8_t>(Rights::write);
    if (!sane) return bad_reservation("shares have a kind or rights that are not known");
    if (i == 0) continue;
    const reservation::ShareT& before = *record.shares[i - 1];
    if (std::pair(before.kind, before.id) >= std::pair(share.kind, share.id))
      return bad_reservation("shares are out of order");
  }
  return {};
}

Result<reservation::ReservationT> decode_reservation(std::span<const std::byte> bytes) {
  FrameReader reader(bytes, 0);
  const auto frame = reader.next();
  if (!frame) return fail(ErrorCode::corrupt, "the file does not hold a whole record");
  if (frame->header.version != frame_version || frame->header.type != reservation_record_type)
    return fail(ErrorCode::unsupported, "the file was written by another version of Forebay; start that version");
  auto record = unpack_body<reservation::ReservationT>(frame->body);
  if (!record) return record;
  if (auto checked = check_reservation(*record); !checked)
    return fail(ErrorCode::corrupt, std::move(checked.error().what));
  if (reader.next() || reader.end() != FrameEnd::end)
    return fail(ErrorCode::corrupt, "there is data after the file's record");
  return record;
}

}  // namespace forebay::storage
