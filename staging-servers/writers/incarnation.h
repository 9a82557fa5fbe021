// SPDX-License-Identifier: Apache-2.0
// One incarnation of a writer group: its ranks, what each of them holds of the step at hand, and whether it still
// writes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <forebay/storage/journal_generated.h>
#include <forebay/writer.h>

#include "readers/followed_stream.h"
#include "space/space_map.h"
#include "writers/granted_space.h"

namespace forebay::server {

class WriterSession;

/// A pin on the step at hand, for who holds memory that was allocated in it.
struct WriterPin {
  std::uint64_t session = 0;
  pid_t process = 0;
  StepKey key;
};

/// What a rank has sent of the step at hand.
struct PendingPart {
  std::uint32_t request = 0;
  std::uint64_t next_bytes = 0;
  std::optional<WriterPin> pin;
  journal::PartT part;
  std::int64_t since_ns = 0;      ///< wall clock
  std::uint64_t definitions = 0;  ///< digest of what the rank says of its variables; 0: not said
  std::uint64_t step = 0;         ///< the number that the rank gives the step

  /// All space that it takes: that of the step, and of an attribute set that it brings.
  std::vector<journal::Extent> extents() const;
};

struct WriterRank {
  WriterSession* session = nullptr;  ///< null: not there, not yet back, or closed
  GrantedSpace granted;
  std::optional<PendingPart> part;
  bool closed = false;
  /// Why the step at hand is to be given up: what the rank sends of it is refused until it has aborted.
  std::optional<std::string> gives_up;

  bool is_missing() const noexcept { return session == nullptr && !closed; }
  /// Space granted and not yet part of a step.
  std::uint64_t granted_bytes() const;
  bool holds_space_in(std::uint32_t segment) const;
};

class Incarnation {
 public:
  /// `stream`: the server's number for it.
  explicit Incarnation(std::uint64_t stream) noexcept : stream_(stream) {}

  /// The group of this record writes from now on; its ranks are still to come in. Nothing is left of an older one.
  void begin(const journal::GroupFormedT& group);
  /// It writes no more.
  void end() noexcept { active_ = false; }
  void forget_ranks() { ranks_.clear(); }

  /// A group writes, or is expected back.
  bool active() const noexcept { return active_; }
  std::uint32_t number() const noexcept { return number_; }
  Owner owner(std::uint32_t rank) const noexcept { return {stream_, number_, rank}; }
  /// True for a segment that this incarnation writes while it lives.
  bool owns(const Owner& owner) const noexcept;

  // What the group has asked for
  WhenFull when_full() const noexcept { return when_full_; }
  std::int64_t block_timeout_ms() const noexcept { return block_timeout_ms_; }
  std::int64_t grace_ms() const noexcept { return grace_ms_; }
  /// EndStep returns when the step is durable.
  bool waits_till_durable() const noexcept { return durability_ == Durability::durable; }

  std::vector<WriterRank>& ranks() noexcept { return ranks_; }
  const std::vector<WriterRank>& ranks() const noexcept { return ranks_; }
  bool is_member(const WriterSession& session) const noexcept;
  /// Every rank is here or has closed.
  bool is_complete() const;
  bool all_closed() const;
  std::optional<std::uint32_t> first_closed() const;
  /// Every rank has sent its part of the step at hand.
  bool has_all_parts() const;
  bool has_any_part() const;
  std::uint64_t granted_bytes() const;
  bool holds_space_in(std::uint32_t segment) const;
  /// Appends the space that is granted and not yet part of a step.
  void list_granted(std::vector<Extent>& extents) const;
  /// Whose processes the ranks are that are here.
  std::set<uid_t> users() const;
  /// Numbers of the ranks that have not sent their part of the step at hand, for people.
  std::string describe_late() const;
  /// Process numbers of the ranks that are here, for people.
  std::string describe_processes() const;
  /// Numbers of the ranks that are neither here nor closed, for people.
  std::string describe_missing() const;

 private:
  const std::uint64_t stream_;
  std::uint32_t number_ = 0;
  bool active_ = false;
  WhenFull when_full_ = WhenFull::block;
  Durability durability_ = Durability::committed;
  std::int64_t block_timeout_ms_ = 0;
  std::int64_t grace_ms_ = 0;
  std::vector<WriterRank> ranks_;
};

}  // namespace forebay::server
