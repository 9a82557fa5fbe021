// SPDX-License-Identifier: Apache-2.0
// The other members of a reservation whose home this server is: who of them is there, what they are asked, and which of
// their answers are still to come.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/device.h"
#include "base/limited_log.h"
#include "fabric/permit.h"
#include "loop/event_loop.h"
#include "loop/worker.h"
#include "members/member_link.h"
#include "members/sync_counters.h"
#include "space/other_members.h"
#include "space/segments.h"

namespace forebay::server {

class HomeMembers final : public OtherMembers {
 public:
  /// What the reservation does when something has changed.
  struct Events {
    std::function<void(const Extent&)> release;          ///< is free again
    std::function<void()> space_changed;                 ///< waiters for space may have some
    std::function<void(std::uint16_t member)> went;      ///< it does not answer any more
    std::function<void(std::uint16_t member)> came;      ///< it answers; its storage may be another one
    std::function<void(std::uint16_t member)> given_up;  ///< its server will not come back
    std::function<std::vector<std::string>()> writing;   ///< uuids of the streams whose writer groups live
    /// It answers, with an older copy: asked after each look, until take_for_current() was called. Which start of its
    /// server that is.
    std::function<void(std::uint16_t member, std::uint64_t server_run)> is_old;
    /// This server itself has an older copy than its members know: nothing it says of them can be trusted.
    std::function<void()> home_is_old;
  };
  struct Services {
    EventLoop& loop;
    MemberLinks& links;
    Device& device;
    Worker& counter_worker;
  };

  /// All of these outlive it. `folder`: the reservation's, for what is to survive.
  HomeMembers(const Services& services, Segments& segments, std::uint64_t access_generation, const std::string& folder,
              Events events);
  ~HomeMembers() override;
  /// At a start, before the first answer. `after_boot`: nobody knows any more what readers elsewhere have mapped.
  void begin(bool after_boot);

  const std::string* absence(std::uint16_t member) const override;
  bool was_looked_at(std::uint16_t member) const override { return members_.at(member).looked_at; }
  const std::string* old_copy(std::uint16_t member) const override;
  /// Why this server must not serve the reservation; empty: it may.
  const std::string& trouble() const noexcept { return trouble_; }
  /// What a member with an old copy has was found to be what it should be, or is lost: it counts as there once it has
  /// synced that and is told a counter above all earlier ones.
  void take_for_current(std::uint16_t member);
  std::uint64_t server_run(std::uint16_t member) const override { return members_.at(member).server_run; }
  std::uint64_t storage_incarnation(std::uint16_t member) const override {
    return members_.at(member).storage_incarnation;
  }
  std::optional<std::uint16_t> member_of_root(const std::string& uuid) const override;
  Result<wire::MemberAnswerT> introduce(std::uint16_t member, uid_t uid, std::uint64_t access_generation, bool writes,
                                        std::int64_t expires_ns, std::uint64_t presence) override;
  void know_presence(std::uint16_t member, std::uint64_t presence) override;
  bool is_gone(std::uint16_t member, std::uint64_t presence, std::int64_t since_ns) const override;
  bool earlier_are_gone() const override;
  std::vector<std::uint8_t> permit(std::uint16_t member, const PermitHolder& holder,
                                   std::vector<std::uint32_t> segments) override;
  void fence(const std::string& stream, std::uint32_t incarnation, std::optional<std::uint32_t> rank,
             const std::vector<Extent>& extents) override;
  void fence_before(std::uint64_t access_generation) override;
  void fence_reader(uid_t uid) override;
  std::vector<Extent> fenced_space() const override;
  /// How many are still to be answered.
  std::size_t fences_left() const;
  bool nobody_writes(std::uint32_t segment) override;
  bool is_unwritten(std::uint32_t segment) override;
  bool may_free_space() const override;
  void sync(const std::set<std::uint32_t>& segments, Synced done) override;
  void syncs_recorded(const std::map<std::uint16_t, std::uint64_t>& syncs) override;
  void checksum(std::uint16_t member, std::vector<Extent> extents, Checksummed done) override;

 private:
  /// What a member is to be told, until it has answered.
  struct Fence {
    wire::MemberFenceT message;
    std::vector<Extent> extents;
  };
  /// Of one kind one is under way at most, and one waits. Those of a stream's ranks follow that of its group.
  struct FenceKind {
    std::string stream;  ///< empty: of all
    bool readers = false;
    std::optional<std::uint32_t> number;  ///< of a rank, or of the user who reads

    auto operator<=>(const FenceKind&) const = default;
  };
  using Fences = std::map<FenceKind, Fence>;
  static constexpr std::size_t fences_waiting_min = 1024;
  static FenceKind kind_of(const wire::MemberFenceT& message);
  struct Member {
    MemberLink* link = nullptr;
    MemberLink* looks = nullptr;  ///< its own way: a sync may take longer than the member waits to hear of its home
    MemberLink* syncs = nullptr;  ///< likewise: fences and probes of others do not wait for it
    std::uint64_t server_run = 0;
    std::uint64_t storage_incarnation = 0;
    std::uint64_t counter = 0;     ///< the highest of its syncs, maybe for an earlier run of this server
    std::uint64_t recorded = 0;    ///< what of that this server has on disk, in a journal or in the file of counters
    std::uint64_t at_look = 0;     ///< what that was when the last look was asked
    bool answers = false;          ///< it did when it was last asked, also where it counts as absent
    bool given_up = false;         ///< its server was
    bool old = false;              ///< its copy is an older one; then `absence` says so
    bool becomes_current = false;  ///< take_for_current() is under way
    std::optional<std::string> absence;
    bool looked_at = false;          ///< one look has come to something
    std::int64_t away_since_ns = 0;  ///< wall clock
    bool asked = false;              ///< the answer to a look is to come
    bool has_answered = false;
    Fences fences_waiting;
    std::size_t fences_waiting_max = fences_waiting_min;  ///< beyond it those of groups that are gone become one
    Fences fences_sent;
    std::size_t groups_fenced = 0;    ///< since it was told of all groups that are gone
    std::set<std::uint64_t> present;  ///< numbers of files that readers keep open there, at the last answer
    std::int64_t present_ns = 0;      ///< monotonic; when that was asked
    std::set<std::uint64_t> known;    ///< of readers that came back before the first answer
    std::set<std::uint64_t> earlier;  ///< of before this run, of which nothing is known
    std::int64_t asked_ns = 0;        ///< monotonic; of the last look
    bool respects_unknown = false;    ///< its space is closed while there are `earlier` ones
    std::set<std::uint32_t> to_map;   ///< segments that readers would map, to be probed with the next look
    std::set<std::uint32_t> wanted;   ///< segments to be probed
    std::set<std::uint32_t> probing;  ///< the question is under way, and nobody got a permit since
  };

  fabric::Permit permit_of(std::uint16_t member, uid_t uid, std::uint64_t access_generation);
  std::set<std::uint16_t> others() const;
  void look();
  void looked(std::uint16_t member, Result<protocol::Message> answer);
  Result<void> take_state(std::uint16_t member, const protocol::Message& answer);
  /// Whether its copy and this server's are as old as they should be.
  void compare_syncs(std::uint16_t member, const wire::MemberShareState& share);
  void take_presences(std::uint16_t member, const wire::MemberShareState& share);
  /// Whether its space may be given to anybody may have changed.
  void open_or_close(std::uint16_t member);
  /// A file that is there while its space is closed for readers that nobody knows.
  std::string unknown_mappings(std::uint16_t member) const;
  /// Some of `earlier` are there no more, or known.
  void earlier_changed(std::uint16_t member);
  void set_absent(std::uint16_t member, const std::string& why);
  /// Its server was given up: what lies there is lost, and nobody asks it any more.
  bool see_given_up(std::uint16_t member);
  /// Once `absence` says why.
  void set_away(std::uint16_t member);
  wire::MemberFenceT fence_below(std::uint64_t number) const;
  void fence_earlier_run(std::uint16_t member);
  void fence_readers(std::uint16_t member, std::optional<uid_t> uid);
  void send_fences(std::uint16_t member);
  void send_fence(std::uint16_t member, const FenceKind& kind);
  void add_fence(std::uint16_t member, wire::MemberFenceT message, const std::vector<Extent>& extents);
  void took_fence(std::uint16_t member, const FenceKind& kind);
  void fold_fences(std::uint16_t member);
  void send_probe(std::uint16_t member);
  struct SyncRound;
  void ask_sync(std::uint16_t member, wire::MemberSyncT message, const std::shared_ptr<SyncRound>& round);
  void took_sync(std::uint16_t member, const Result<protocol::Message>& answer, SyncRound& round);
  struct ChecksumRound;
  void ask_checksums(std::uint16_t member, const std::shared_ptr<ChecksumRound>& round);
  std::uint16_t member_of(std::uint32_t segment) const { return segments_.layout().member_of(segment).value(); }

  EventLoop& loop_;
  MemberLinks& links_;
  Segments& segments_;
  /// By member: what is told to them is in the file, which outlives each stream. In the home's own place: a number that
  /// no permit has reached.
  SyncCounters counters_;
  const Events events_;
  std::string trouble_;
  std::map<std::uint16_t, Member> members_;  ///< but for this server's own
  std::uint64_t next_number_;                ///< of permits; above all that an earlier run can have given
  std::uint64_t access_generation_;          ///< of all shares together, that permits are good for
  std::set<std::uint32_t> unwritten_;        ///< nobody has these open for writing
  std::optional<EventLoop::TimerId> timer_;
  const std::string folder_;
  log::Limited lines_;
  std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
};

}  // namespace forebay::server
