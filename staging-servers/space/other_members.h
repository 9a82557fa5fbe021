// SPDX-License-Identifier: Apache-2.0
// What the home of a reservation over several servers knows of its other members, and asks of them. Answers come later,
// in the loop. See docs/design/many-servers.md.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <forebay/protocol/messages_generated.h>
#include <forebay/result.h>

#include "space/space_map.h"

namespace forebay::server {

/// The writer that a permit is for.
struct PermitHolder {
  uid_t uid = 0;
  std::uint64_t access_generation = 0;
  std::string stream;  ///< uuid
  std::uint32_t incarnation = 0;
  std::uint32_t rank = 0;
};

/// What a member has said of a sync.
struct SyncedMember {
  std::uint64_t storage_incarnation = 0;
  std::uint64_t syncs = 0;  ///< its number

  bool operator==(const SyncedMember&) const = default;
};

class OtherMembers {
 public:
  virtual ~OtherMembers() = default;

  // Who is there
  /// Null while it is there; else its server and since when that is away, for people.
  virtual const std::string* absence(std::uint16_t member) const = 0;
  /// The same for one that answers, but with an older copy of its segments than it has synced: it is being checked, and
  /// does not count as there.
  virtual const std::string* old_copy(std::uint16_t member) const = 0;
  /// This run of the home knows whether it is there: it has been asked, and has answered or not.
  virtual bool was_looked_at(std::uint16_t member) const = 0;
  /// Which start of its server has the windows and permits of now.
  virtual std::uint64_t server_run(std::uint16_t member) const = 0;
  /// As it last said; 0: it has not yet.
  virtual std::uint64_t storage_incarnation(std::uint16_t member) const = 0;
  /// The member whose server has this root.
  virtual std::optional<std::uint16_t> member_of_root(const std::string& uuid) const = 0;
  /// What a client needs to go there. `writes`: without a permit to read. unavailable while it is away.
  /// What it shows there is void from `expires_ns` on, since 1970. `presence`: of a reader that maps, else 0.
  virtual Result<wire::MemberAnswerT> introduce(std::uint16_t member, uid_t uid, std::uint64_t access_generation,
                                                bool writes, std::int64_t expires_ns, std::uint64_t presence = 0) = 0;

  // Who has mapped what lies there, by the numbers of files that readers keep open on its node (wire::MemberPresence)
  /// What a reader of before this home's start has mapped was kept for it: it is none of those of which nothing is
  /// known.
  virtual void know_presence(std::uint16_t member, std::uint64_t presence) = 0;
  /// Nobody keeps it open, as the member has found at a question of after `since_ns` (monotonic).
  virtual bool is_gone(std::uint16_t member, std::uint64_t presence, std::int64_t since_ns) const = 0;
  /// The same of all from before this home's start, but those that it knows. Until then none of the member's space is
  /// given to anybody.
  virtual bool earlier_are_gone() const = 0;

  // Who may write there
  /// To write in these segments, all of which the member has. From now on somebody may.
  virtual std::vector<std::uint8_t> permit(std::uint16_t member, const PermitHolder& holder,
                                           std::vector<std::uint32_t> segments) = 0;
  /// Permits of this group, or of one of its ranks, are void once the member has said so. Then the extents are free.
  virtual void fence(const std::string& stream, std::uint32_t incarnation, std::optional<std::uint32_t> rank,
                     const std::vector<Extent>& extents) = 0;
  /// The same for everybody's to read, if this access generation, of all shares together, is a newer one: somebody's
  /// rights have become less. Who still may read gets another one.
  virtual void fence_before(std::uint64_t access_generation) = 0;
  /// The same for those that this user reads with: one of the user's tokens was revoked.
  virtual void fence_reader(uid_t uid) = 0;
  /// Space that is free once a member has answered.
  virtual std::vector<Extent> fenced_space() const = 0;
  /// Known since the last permit for the segment. If it is not known, the member is asked; its answer counts as a
  /// change of space.
  virtual bool nobody_writes(std::uint32_t segment) = 0;
  /// The same for what happens with each step that is read: the member is not asked each time.
  virtual bool is_unwritten(std::uint32_t segment) = 0;
  /// An answer that may free space is under way.
  virtual bool may_free_space() const = 0;

  // What lies there
  /// Calls `done` once all of these segments are synced, for each member that has some; or with the first error:
  /// unavailable, if nothing was begun.
  using Synced = std::function<void(Result<std::map<std::uint16_t, SyncedMember>>)>;
  virtual void sync(const std::set<std::uint32_t>& segments, Synced done) = 0;
  /// A synced journal says that these members have synced so often: one that has not is an old copy.
  virtual void syncs_recorded(const std::map<std::uint16_t, std::uint64_t>& syncs) = 0;
  /// Calls `done` with the CRC-32C of each of these extents of the member, nothing for one that it cannot read; or with
  /// an error: unavailable if the member cannot be asked. One whose copy is an old one can be.
  using Checksummed = std::function<void(Result<std::vector<std::optional<std::uint32_t>>>)>;
  virtual void checksum(std::uint16_t member, std::vector<Extent> extents, Checksummed done) = 0;
};

}  // namespace forebay::server
