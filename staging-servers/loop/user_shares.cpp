// SPDX-License-Identifier: Apache-2.0
#include "loop/user_shares.h"

namespace forebay::server {

std::size_t PlaceShares::taken_by(uid_t user) const noexcept {
  const auto found = by_user_.find(user);
  return found == by_user_.end() ? 0 : found->second;
}

bool PlaceShares::may_take(std::size_t places, std::size_t taken, std::size_t own) noexcept {
  if (taken >= places) return false;
  const bool in_reserve = places - taken <= places / reserve_share;
  return !in_reserve || own < few;
}

bool PlaceShares::take(uid_t user) {
  if (!may_take(places_, taken_, taken_by(user))) return false;
  take_anyway(user);
  return true;
}

void PlaceShares::take_anyway(uid_t user) {
  ++by_user_[user];
  ++taken_;
}

void PlaceShares::give_back(uid_t user) noexcept {
  const auto found = by_user_.find(user);
  if (found == by_user_.end()) return;
  --taken_;
  if (--found->second == 0) by_user_.erase(found);
}

bool ByteShares::change(uid_t user, std::uint64_t before, std::uint64_t now) {
  if (before == now) return true;
  std::uint64_t& own = by_user_[user];
  own = own - before + now;
  held_ = held_ - before + now;
  const std::uint64_t mine = own;
  if (mine == 0) by_user_.erase(user);
  return now < before || (held_ <= bytes_ && mine <= bytes_ - held_);
}

}  // namespace forebay::server
