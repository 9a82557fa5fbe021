// SPDX-License-Identifier: Apache-2.0
// How bytes are dealt out to several members of a reservation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace forebay {

/// How much each member gives: in their order `piece` bytes each, round by round, as far as they have it. `free`: what
/// they have. Those that give nothing are not named. All together give less than `bytes` if there is no more.
inline std::vector<std::pair<std::uint16_t, std::uint64_t>> shares_side_by_side(
    std::uint64_t bytes, std::span<const std::pair<std::uint16_t, std::uint64_t>> free, std::uint64_t piece) {
  std::vector<std::pair<std::uint16_t, std::uint64_t>> shares;
  for (const auto& [member, has] : free) shares.emplace_back(member, 0);
  for (bool any = true; bytes > 0 && any;) {
    any = false;
    for (std::size_t i = 0; i < shares.size(); ++i) {
      const std::uint64_t share = std::min({bytes, free[i].second - shares[i].second, piece});
      shares[i].second += share;
      bytes -= share;
      any = any || share > 0;
    }
  }
  std::erase_if(shares, [](const auto& share) { return share.second == 0; });
  return shares;
}

}  // namespace forebay
