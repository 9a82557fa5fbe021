// SPDX-License-Identifier: Apache-2.0
#include "daemon/invariant_checks.h"

#include <algorithm>

#include "readers/reader_groups.h"

namespace forebay::server {

void InvariantChecks::turn() {
  owed_ -= std::min(owed_, items_per_turn_);
  const std::size_t all = reservations_.all().size() + 1;
  for (std::size_t looked_at = 0; looked_at < all && owed_ < items_per_turn_; ++looked_at) owed_ += check_next();
}

std::uint64_t InvariantChecks::check_next() {
  const auto& all = reservations_.all();
  const auto next = after_.empty() ? all.begin() : all.upper_bound(after_);
  if (next == all.end()) {
    after_.clear();
    return readers_.pins().check() + readers_.groups().check();
  }
  after_ = next->first;
  return next->second->check();
}

}  // namespace forebay::server
