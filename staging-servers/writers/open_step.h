// SPDX-License-Identifier: Apache-2.0
// The step that a writer group has at hand: ranks send their parts, and with the last one it commits.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <forebay/protocol/messages_generated.h>
#include <forebay/result.h>

#include "readers/followers.h"
#include "writers/durable_waits.h"
#include "writers/incarnation.h"
#include "writers/part_agreement.h"
#include "writers/space_grants.h"
#include "writers/written_stream.h"

namespace forebay::server {

class OpenStep {
 public:
  /// All of these outlive it.
  OpenStep(WrittenStream& stream, const storage::StreamState& state, ReservationSpace& space, Followers& followers,
           Incarnation& incarnation, SpaceGrants& grants, DurableWaits& durable_waits)
      : stream_(stream),
        state_(state),
        space_(space),
        followers_(followers),
        incarnation_(incarnation),
        grants_(grants),
        durable_waits_(durable_waits) {}

  /// Takes a part that a rank has sent. With an error, the rank still has the space that the part names.
  Result<void> add(WriterRank& rank, std::uint32_t request, const wire::PartT& part);
  /// Commits the step, of which all parts are here. If they do not agree on a variable, or that cannot be written down,
  /// the ranks have again what they had put into it, and are told why.
  void commit();
  /// It has committed: tells the ranks, unless they wait for it to be durable. `ahead`:
  /// SpaceGrants::answer_committed().
  void answer_commit(bool ahead);
  /// The rank has again what it had put into its part.
  void take_back(WriterRank& rank);
  /// There will be no step: takes all parts back, and tells who has sent them.
  void fail(const Error& error);

 private:
  /// A rank's part in the step that is being committed: what it is to be told, and given back if there is no step.
  struct CommittingPart {
    std::uint32_t request = 0;
    std::uint64_t next_bytes = 0;
    std::optional<WriterPin> pin;
    std::vector<journal::Extent> extents;
  };

  /// What the part has on other members lies in their storage as it is now, and nothing but blocks does. Says so in
  /// `checked`.
  Result<void> check_members(const wire::PartT& part, journal::PartT& checked) const;
  Result<void> pin(WriterRank& rank, std::uint64_t holder);
  void unpin(const std::optional<WriterPin>& pin);
  /// Describes the step of all parts for the journal; they are being committed now.
  journal::StepCommittedT take_parts();
  void undo_commit(std::uint64_t step, const Error& error);

  WrittenStream& stream_;
  const storage::StreamState& state_;
  ReservationSpace& space_;
  Followers& followers_;
  Incarnation& incarnation_;
  SpaceGrants& grants_;
  DurableWaits& durable_waits_;
  PartAgreement agreement_;
  std::vector<CommittingPart> committing_;  ///< by rank, while the step commits
};

}  // namespace forebay::server
