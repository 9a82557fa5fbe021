// SPDX-License-Identifier: Apache-2.0
// What the home of a reservation lets a client do on another member: which segments it may write, or that it may read.
// The member knows it for the home's by the pool's key, and needs to ask nobody. docs/design/many-servers.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <forebay/result.h>

#include "fabric/token.h"

namespace forebay::fabric {

struct Permit {
  std::uint64_t key_id = 0;
  std::string reservation_id;  ///< uuid
  std::uint64_t access_generation = 0;
  std::uint32_t uid = 0;
  std::uint16_t member = 0;
  std::uint64_t server_run = 0;         ///< of the member: void when it was started anew
  std::uint64_t number = 0;             ///< the home's next one; those below a fence's are void
  std::string stream;                   ///< of a writer, uuid; empty: it reads
  std::uint32_t incarnation = 0;        ///< of the writer group
  std::uint32_t rank = 0;               ///< in the group
  std::vector<std::uint32_t> segments;  ///< that may be written; a reader reads all that the member has
  std::uint64_t presence = 0;           ///< of a reader that maps there: its file's number (MemberPresence)

  bool writes() const noexcept { return !stream.empty(); }
  bool operator==(const Permit&) const = default;
};

/// Of one permit; more segments take several.
inline constexpr std::size_t permit_segments_max = 16384;

/// As it is sent: with the keyed hash of all before it.
std::vector<std::uint8_t> seal(const Permit& permit, const TokenKey& key);
/// What a client may write with a sealed permit, as it says itself. Nothing if it is none.
std::optional<std::vector<std::uint32_t>> segments_in(std::span<const std::uint8_t> sealed);
/// permission_denied unless it was sealed with this key; protocol if it is none, or one of a newer release.
Result<Permit> unseal(std::span<const std::uint8_t> sealed, const TokenKey& key);

}  // namespace forebay::fabric
