// SPDX-License-Identifier: Apache-2.0
// What a reservation's record says of each user and group, as entries of access lists.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <map>

#include <forebay/admin.h>
#include <forebay/storage/reservation_generated.h>

#include "storage/access_list.h"

namespace forebay::storage {

class FilesShares {
 public:
  explicit FilesShares(const reservation::ReservationT& record);

  std::uint32_t owner() const noexcept { return owner_; }
  std::uint32_t owning_group() const noexcept { return owning_group_; }
  Rights of_owning_group() const noexcept { return of_owning_group_; }
  bool has_users() const noexcept { return !users_.empty(); }
  /// Groups that may do something, the owner's among them.
  std::map<std::uint32_t, Rights> groups_with_rights() const;
  /// Somebody has a right by a share.
  bool give_anything() const noexcept;

  /// What has this list was made in the reservation.
  bool are_on(const AccessList& list) const noexcept { return mark_ != 0 && list.groups.contains(mark_); }

  /// What files/ itself has.
  AccessList of_top(AccessList list, const struct stat& status) const;
  /// What something has that was made in the reservation: the mask stays, and so what its maker allows at most.
  AccessList given(AccessList list, const struct stat& status) const;
  /// The same, and it counts as made in the reservation from now on.
  AccessList adopted(AccessList list, const struct stat& status) const;
  /// What something has that was not: only what is less.
  AccessList taken(AccessList list, const struct stat& status) const;
  /// The same as given() for what a folder gives to what is made in it.
  AccessList given_by_default(AccessList list) const;
  /// What a folder gives that has no such list.
  AccessList fresh_default() const;

 private:
  void set_mark(AccessList& list) const;

  const std::uint32_t owner_;
  const std::uint32_t owning_group_;
  const std::uint32_t mark_;                ///< 0: there is none
  std::map<std::uint32_t, Rights> users_;   ///< but for the owner
  std::map<std::uint32_t, Rights> groups_;  ///< but for the owner's
  Rights of_owning_group_ = Rights::write;
};

/// What an entry with these rights says. Whether a file can be executed, its mask says.
AccessList::Bits bits_of(Rights rights) noexcept;

}  // namespace forebay::storage
