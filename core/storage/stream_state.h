// SPDX-License-Identifier: Apache-2.0
// What a stream is: the result of applying its journal's records in order. The server changes a stream only by
// appending a record and applying it, so running and recovering go the same way. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <forebay/reader.h>
#include <forebay/result.h>
#include <forebay/storage/journal_generated.h>

#include "storage/run_history.h"

namespace forebay::storage {

struct StepState {
  journal::StepCommittedT committed;  ///< number, epoch, time, parts with their extents
  bool staged = false;
  bool lost = false;                           ///< bytes of it are gone; a lost step is retired
  std::shared_ptr<const std::string> receipt;  ///< null: none. All steps of one share the text
  bool precious() const noexcept { return committed.precious && !staged; }
};

struct CursorState {
  std::uint32_t epoch = 0;
  std::uint64_t position = 0;  ///< next step that the consumer will get
};

/// Steps that were lost, both ends included.
struct LostSteps {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  bool precious = false;
  bool operator==(const LostSteps&) const = default;
};

struct SegmentOwner {
  std::uint32_t incarnation = 0;
  std::uint32_t rank = 0;
};

class StreamState {
 public:
  static StreamState fresh(std::string uuid, std::string name, std::int64_t created_ns);

  /// Applies one record as read from a journal. corrupt if it contradicts the state (a commit of a step that exists,
  /// …).
  Result<void> apply(journal::RecordType type, std::span<const std::byte> body);

  // The same for records at hand. Each requires what docs/formats/journal.md says; violations are corrupt and change
  // nothing.
  Result<void> apply(const journal::GroupFormedT& record);
  Result<void> apply(const journal::SegmentsOwnedT& record);
  Result<void> apply(journal::StepCommittedT record);
  Result<void> apply(const journal::StepsDroppedT& record);
  Result<void> apply(const journal::StepsWithdrawnT& record);
  Result<void> apply(const journal::GroupEndedT& record);
  Result<void> apply(const journal::DurableToT& record);
  Result<void> apply(const journal::StepsStagedT& record);
  Result<void> apply(const journal::CursorMovedT& record);
  Result<void> apply(const journal::CursorRemovedT& record);
  Result<void> apply(const journal::RetentionSetT& record);
  Result<void> apply(const journal::PreciousSetT& record);
  Result<void> apply(const journal::StreamFailedT& record);
  Result<void> apply(const journal::RankClosedT& record);
  Result<void> apply(const journal::SegmentsLeftT& record);
  Result<void> apply(const journal::StepsLostT& record);
  /// Replaces the whole state. Move it in: it may hold many steps.
  Result<void> apply(journal::CheckpointT record);

  /// The body of such a record, made without copying the steps first. no_space if it would be larger than a record can
  /// be; a FlatBuffer is shorter than 2 GiB anyway.
  Result<flatbuffers::DetachedBuffer> checkpoint_body() const;
  /// At least as much as it takes.
  std::uint64_t checkpoint_bytes() const;

  // Constant after construction
  std::string uuid;
  std::string name;
  std::int64_t created_ns = 0;

  std::uint32_t epoch = 1;
  StreamStatus status = StreamStatus::waiting;
  std::string status_text;
  std::optional<journal::GroupFormedT> group;  ///< the last one
  std::set<std::uint32_t> closed_ranks;        ///< of that group, while others still write
  std::int64_t group_ended_ns = 0;             ///< when that group ended, since 1970; 0: not known
  std::uint64_t next_step = 0;                 ///< number of the next commit
  std::uint64_t durable_next = 0;              ///< steps below are durable
  /// How often other members of the reservation have synced what of the stream is durable. Old copies have synced less.
  std::map<std::uint16_t, std::uint64_t> member_syncs;
  /// The newest step with a receipt, kept or dropped since. After a withdrawal that took it: the newest kept one.
  std::optional<std::uint64_t> newest_staged;
  RunHistory runs;
  /// Which epoch steps are of, kept or not: the later ones, by first step. Steps before the first of them are of epoch
  /// 1. Where there are too many, the two oldest count as one, as if its steps had been written again.
  std::vector<EpochStart> epochs;
  Retention retention;
  std::map<std::string, CursorState, std::less<>> cursors;
  std::map<std::uint32_t, SegmentOwner> owners;  ///< by segment
  /// While a group lives: the attribute sets, by rank, that its last step refers to. The next one may refer to them,
  /// even if that step is dropped.
  std::map<std::uint32_t, journal::AttributeSetT> held_attributes;
  /// Steps of the current epoch chain that were lost, in ascending order, until they would have been dropped: see
  /// docs/formats/journal.md. A kept step in one of the ranges is none of them.
  std::vector<LostSteps> lost;
  std::map<std::uint64_t, StepState> steps;  ///< kept steps of the current epoch chain, by number
  /// Withdrawn steps, by (epoch, number) of their commit: readers may hold them. The server releases those without pins
  /// by retire_done(); they are not written to the journal one by one, a checkpoint names those that are left.
  std::map<std::pair<std::uint32_t, std::uint64_t>, StepState> retired;
  /// Where the kept steps of this run lie; see RunHistory::find().
  std::optional<RunRange> steps_of_run(std::string_view run) const;
  /// How many steps from this number on were committed: without the numbers that steps left out.
  std::uint64_t committed_since(std::uint64_t number) const;
  /// The number of the oldest of the last `steps_max` committed steps, or one that it left out.
  std::uint64_t oldest_of_last(std::uint64_t steps_max) const;
  /// A step of this number, next for somebody who has seen this epoch and nothing later: the same, or the first that
  /// was withdrawn since.
  std::uint64_t in_this_epoch(std::uint32_t seen, std::uint64_t number) const;
  /// The step is not kept since it was lost, as far as that is remembered.
  bool is_lost(std::uint64_t number) const;
  void retire_done(std::uint32_t step_epoch, std::uint64_t step);

  /// Ends the process if an invariant is broken; how many things were looked at.
  std::size_t check() const;

 private:
  /// No step since the oldest kept one is missing, so that numbers count steps.
  bool is_dense() const noexcept;
  /// Is one of these steps kept, the last excluded?
  bool keeps_step(std::uint64_t first, std::uint64_t end) const;
  void remember_lost(std::uint64_t number, bool precious);
  /// The sets that the step refers to are new, or those of the rank's last step.
  Result<void> check_attributes(const journal::StepCommittedT& record) const;
  /// The steps from `first` on become retired; `new_epoch` begins.
  void withdraw(std::uint64_t first, std::uint32_t new_epoch);
};

}  // namespace forebay::storage
