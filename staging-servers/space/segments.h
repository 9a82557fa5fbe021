// SPDX-License-Identifier: Apache-2.0
// The segments of a reservation: what of them is free, whose they are, which cannot be used, and how they pass from one
// writer to another.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <forebay/result.h>

#include "base/descriptor.h"
#include "base/device.h"
#include "base/limited_log.h"
#include "base/segment_layout.h"
#include "space/other_members.h"
#include "space/segment_syncs.h"
#include "space/space_map.h"
#include "space/space_user.h"
#include "storage/reservation_store.h"

namespace forebay::server {

class Segments {
 public:
  /// `own_member`: which of the reservation's members this server is; 0: its home.
  Segments(Device& device, storage::ReservationStore& store, const reservation::ReservationT& record,
           std::uint16_t own_member = 0);

  const reservation::ReservationT& record() const noexcept { return record_; }
  const std::string& reservation() const noexcept { return record_.name; }
  const SegmentLayout& layout() const noexcept { return layout_; }
  SpaceMap& map() noexcept { return map_; }
  const SpaceMap& map() const noexcept { return map_; }

  // What lies on this server
  std::uint16_t own_member() const noexcept { return own_member_; }
  bool is_own(std::uint32_t segment) const noexcept { return layout_.member_of(segment) == own_member_; }
  /// Segments of a member that is away are not granted.
  void set_away(std::uint16_t member, bool away);
  bool is_away(std::uint32_t segment) const { return away_.contains(layout_.member_of(segment).value_or(0)); }
  /// For people, after how much is free: what is free on members that are away, and who they are. Empty: nothing.
  std::string free_while_away_text() const;
  /// Of another member's, who knows whether they are written; null where there is none.
  void ask_about_others(OtherMembers* others) noexcept { others_ = others; }
  OtherMembers* others() const noexcept { return others_; }

  // Files of its own segments
  std::string path(std::uint32_t segment) const;
  /// What syncs them, in workers, which may outlive this.
  std::shared_ptr<SegmentSyncs> syncs() const noexcept { return syncs_; }
  /// For a client that reads: opened anew, so that what others do with their descriptors does not meet in one file
  /// description.
  Result<Descriptor> open_to_read(std::uint32_t segment) const;
  /// The same for a process of this user that writes: it may hold it from now on.
  Result<Descriptor> open_to_write(std::uint32_t segment, uid_t user);
  /// The same, for the server's own use.
  Result<std::unique_ptr<File>> open_file(std::uint32_t segment, OpenMode mode) const;
  /// The same for a client: busy where only the reserve of descriptors is left.
  Result<std::unique_ptr<File>> open_for_client(std::uint32_t segment, OpenMode mode) const;
  /// To read for clients: one descriptor for all of them, however many requests wait.
  Result<std::shared_ptr<const File>> shared_to_read(std::uint32_t segment) const;

  // The streams that share them, by path
  void add(SpaceUser& user);
  void remove(SpaceUser& user);
  const std::vector<SpaceUser*>& users() const noexcept { return users_; }
  /// A living writer may write in segments of this owner.
  bool is_living(const Owner& owner) const;

  /// Makes segments of groups that are gone the owner's, until they hold that many free bytes; true if there were any.
  /// None in which readers of other users hold steps, which they may have mapped.
  /// `at_home`: only such on this server.
  bool adopt(const Owner& owner, std::uint64_t bytes, bool at_home = false);
  /// Takes emptied segments from groups that still write; true if there were any. For another writer only of the same
  /// users: the first can still write there.
  bool take_emptied(const Owner& owner, std::uint64_t bytes);

  // Who may have a segment open for writing
  using Users = std::set<uid_t>;
  /// Stands for whoever wrote before the server was restarted.
  static constexpr uid_t unknown_user = static_cast<uid_t>(-1);
  /// Those who got a descriptor and may still have it. By no means all of them do.
  const Users& holders(std::uint32_t segment) const;
  const std::map<std::uint32_t, Users>& held() const noexcept { return holders_; }
  void set_holders(std::uint32_t segment, Users users) { holders_[segment] = std::move(users); }
  void add_holder(std::uint32_t segment, uid_t user) { holders_[segment].insert(user); }
  /// Only these, root and the server's own user.
  bool is_held_only_by(std::uint32_t segment, const Users& users) const;
  bool is_held_only_by(std::uint32_t segment, uid_t user) const;
  /// The same, after the lease probe where that may help: for what is to be mapped, and would fault if it were
  /// truncated.
  bool may_map(std::uint32_t segment, uid_t user);
  /// The lease probe. False as well where it cannot tell.
  bool nobody_writes(std::uint32_t segment);

  /// Takes a segment out of use of which some is missing.
  void set_damaged(std::uint32_t segment, std::string what);
  /// It is whole again, and empty.
  void set_mended(std::uint32_t segment);
  const std::map<std::uint32_t, std::string>& damaged() const noexcept { return damaged_; }
  /// Null for one that is whole, as far as is known.
  const std::string* damage_of(std::uint32_t segment) const;
  /// Closed for other reasons than to make room for journals.
  bool is_unusable(std::uint32_t segment) const {
    return has_failed(segment) || damaged_.contains(segment) || is_away(segment);
  }

  /// Takes a segment out of use whose sync failed; false if it is already.
  bool set_failed(std::uint32_t segment);
  bool has_failed(std::uint32_t segment) const { return failed_.contains(segment); }
  bool any_failed() const noexcept { return !failed_.empty(); }
  /// What is free in such segments.
  std::uint64_t failed_bytes() const;

  /// Streams that cannot be opened, with why: which space they hold is not known, so nothing is granted.
  std::map<std::string, std::string> unreadable_streams;
  bool all_known() const noexcept { return unreadable_streams.empty(); }

  /// What its users do, for the log.
  log::Limited lines{lines_at_once_max, lines_pause_ns};

  /// True once the reservation is being destroyed: nothing new is let in, and its files may not be where they were.
  bool retiring = false;
  /// not_found from then on.
  Result<void> check_stays() const;

 private:
  static constexpr std::uint32_t lines_at_once_max = 200;
  static constexpr std::int64_t lines_pause_ns = 6'000'000'000;

  Device& device_;
  storage::ReservationStore& store_;
  const reservation::ReservationT& record_;
  const std::uint16_t own_member_;
  const SegmentLayout layout_;
  std::set<std::uint16_t> away_;  ///< members, whose segments are closed in map_
  OtherMembers* others_ = nullptr;
  SpaceMap map_;
  const std::shared_ptr<SegmentSyncs> syncs_;
  std::vector<SpaceUser*> users_;
  std::set<std::uint32_t> failed_;                ///< closed in map_, too
  std::map<std::uint32_t, std::string> damaged_;  ///< likewise, with what is wrong
  std::map<std::uint32_t, Users> holders_;
  mutable std::map<std::uint32_t, std::weak_ptr<const File>> read_files_;
};

}  // namespace forebay::server
