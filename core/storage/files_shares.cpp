// SPDX-License-Identifier: Apache-2.0
#include "storage/files_shares.h"

#include <algorithm>
#include <cstdint>

namespace forebay::storage {
namespace {

using Bits = AccessList::Bits;
constexpr Bits every_bit = 7;

/// Leaves an entry no more than `most`. Where there is none, all others may do more than this one: it gets one.
void limit(std::map<std::uint32_t, Bits>& entries, std::uint32_t id, Bits most, Bits other) {
  if (const auto entry = entries.find(id); entry != entries.end()) {
    entry->second &= most;
  } else if ((other & ~most) != 0) {
    entries[id] = other & most;
  }
}

/// What some group may do, of which it is not known here who is in it.
Bits of_groups(const AccessList& list) {
  Bits bits = list.group;
  for (const auto& [id, more] : list.groups) bits |= more;
  return bits;
}

}  // namespace

Bits bits_of(Rights rights) noexcept {
  if (rights == Rights::none) return 0;
  return rights == Rights::read ? 5 : every_bit;
}

FilesShares::FilesShares(const reservation::ReservationT& record)
    : owner_(record.owner_uid), owning_group_(record.owner_gid), mark_(record.files_group) {
  for (const auto& share : record.shares) {
    const auto rights = static_cast<Rights>(share->rights);
    if (static_cast<Share::Kind>(share->kind) == Share::Kind::user) {
      users_[share->id] = rights;
    } else if (share->id == owning_group_) {
      of_owning_group_ = rights;
    } else {
      groups_[share->id] = rights;
    }
  }
}

void FilesShares::set_mark(AccessList& list) const {
  if (mark_ != 0) list.groups[mark_] = 0;
}

std::map<std::uint32_t, Rights> FilesShares::groups_with_rights() const {
  std::map<std::uint32_t, Rights> found = groups_;
  found[owning_group_] = of_owning_group_;
  std::erase_if(found, [](const auto& entry) { return entry.second == Rights::none; });
  return found;
}

bool FilesShares::give_anything() const noexcept {
  const auto gives = [](const auto& entry) { return entry.second != Rights::none; };
  return std::ranges::any_of(users_, gives) || std::ranges::any_of(groups_, gives);
}

AccessList FilesShares::of_top(AccessList list, const struct stat& status) const {
  list = given(std::move(list), status);
  list.other = 0;
  list.group = status.st_gid == owning_group_ ? bits_of(of_owning_group_) : 0;
  if (status.st_gid == owning_group_) list.groups.erase(owning_group_);
  set_mark(list);
  return list;
}

AccessList FilesShares::given(AccessList list, const struct stat& status) const {
  for (const auto& [id, rights] : users_) list.users[id] = bits_of(rights);
  for (const auto& [id, rights] : groups_) list.groups[id] = bits_of(rights);
  list.groups[owning_group_] = bits_of(of_owning_group_);
  // By the mode's bits a group keeps what the object's owner gave it, at most.
  if (status.st_gid == owning_group_) list.group &= bits_of(of_owning_group_);
  if (const auto share = groups_.find(status.st_gid); share != groups_.end()) list.group &= bits_of(share->second);
  // What others made in the owner's reservation is the owner's to use.
  if (status.st_uid != owner_) list.users[owner_] = every_bit;
  return list;
}

AccessList FilesShares::adopted(AccessList list, const struct stat& status) const {
  list = given(std::move(list), status);
  set_mark(list);
  return list;
}

AccessList FilesShares::taken(AccessList list, const struct stat& status) const {
  const auto take_from_group = [&](std::uint32_t id, Rights rights) {
    if (status.st_gid == id) list.group &= bits_of(rights);
    if (status.st_gid != id || list.groups.contains(id)) limit(list.groups, id, bits_of(rights), list.other);
  };
  for (const auto& [id, rights] : users_) {
    // Whom a share keeps out, none of their groups lets in.
    limit(list.users, id, bits_of(rights), rights == Rights::none ? list.other | of_groups(list) : list.other);
  }
  for (const auto& [id, rights] : groups_) take_from_group(id, rights);
  take_from_group(owning_group_, of_owning_group_);
  return list;
}

AccessList FilesShares::given_by_default(AccessList list) const {
  list.users[owner_] = every_bit;
  for (const auto& [id, rights] : users_) list.users[id] = bits_of(rights);
  // A file belongs to its maker's group, which need not be the owner's.
  list.groups[owning_group_] = bits_of(of_owning_group_);
  for (const auto& [id, rights] : groups_) list.groups[id] = bits_of(rights);
  set_mark(list);
  return list;
}

AccessList FilesShares::fresh_default() const {
  AccessList list;
  list.owner = every_bit;
  list.mask = every_bit;
  return given_by_default(std::move(list));
}

}  // namespace forebay::storage
