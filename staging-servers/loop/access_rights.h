// SPDX-License-Identifier: Apache-2.0
// What a peer may do in one reservation. Decided when something is opened, by Reservation::rights_of().
#pragma once

#include <cstdint>

#include <forebay/admin.h>

namespace forebay::server {

struct AccessRights {
  Rights rights = Rights::none;
  /// The reservation's access generation when this was decided: rights that are carried beyond a connection are void
  /// once it has a newer one.
  std::uint64_t generation = 0;
  /// May only read, in somebody else's reservation: its pins are limited, and its consumers have names of their own.
  bool guest = false;

  bool allow(Rights needed) const noexcept { return rights >= needed; }
};

}  // namespace forebay::server
