// SPDX-License-Identifier: Apache-2.0
// How what the server has is shared out between users: one may have nearly all, and something is left for others.
// docs/design/limits.md. Pure bookkeeping.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <unordered_map>

namespace forebay::server {

/// Places that somebody has or has not, such as connections: the last eighth is for users who have few.
class PlaceShares {
 public:
  static constexpr std::size_t few = 8;
  static constexpr std::size_t reserve_share = 8;

  explicit PlaceShares(std::size_t places) noexcept : places_(places) {}

  /// May somebody who has `own` have one more of so many places, of which so many are taken?
  static bool may_take(std::size_t places, std::size_t taken, std::size_t own) noexcept;

  /// False, and nothing changes, if the user may have no more of them now.
  bool take(uid_t user);
  /// Also where there is none: for those who repair the server.
  void take_anyway(uid_t user);
  void give_back(uid_t user) noexcept;
  std::size_t places() const noexcept { return places_; }
  std::size_t taken() const noexcept { return taken_; }
  std::size_t taken_by(uid_t user) const noexcept;

 private:
  const std::size_t places_;
  std::size_t taken_ = 0;
  std::unordered_map<uid_t, std::size_t> by_user_;  ///< none with 0
};

/// Bytes of memory: a user may hold as much as then stays free for others. However many users there are, something is
/// left.
class ByteShares {
 public:
  explicit ByteShares(std::uint64_t bytes) noexcept : bytes_(bytes) {}

  /// The user holds `now` in one place, where it held `before`. False if that is too much; it counts all the same,
  /// until the place is given up.
  bool change(uid_t user, std::uint64_t before, std::uint64_t now);
  std::uint64_t held() const noexcept { return held_; }

 private:
  const std::uint64_t bytes_;
  std::uint64_t held_ = 0;
  std::unordered_map<uid_t, std::uint64_t> by_user_;  ///< none with 0
};

}  // namespace forebay::server
