// SPDX-License-Identifier: Apache-2.0
// Space for the ranks of a writer group: what they ask for, and what they get for the next step with an answer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include <forebay/protocol/messages_generated.h>
#include <forebay/result.h>

#include "base/descriptor.h"
#include "storage/stream_state.h"
#include "writers/incarnation.h"
#include "writers/written_stream.h"

namespace forebay::server {

class ReservationSpace;
class WriterSession;

class SpaceGrants {
 public:
  /// All of these outlive it.
  SpaceGrants(WrittenStream& stream, const storage::StreamState& state, ReservationSpace& space,
              Incarnation& incarnation)
      : stream_(stream), state_(state), space_(space), incarnation_(incarnation) {}

  /// Errors, said before anybody waits: protocol (another step is next), no_space (more than there is in all).
  Result<void> check(const wire::SpaceRequestT& asked) const;
  /// Answers a member's request now, or when there is space.
  void request(WriterSession& session, std::uint32_t request, const wire::SpaceRequestT& asked);
  /// Tells a rank that its step has committed. `ahead`: with space for `next_bytes` of the next one if there is plenty.
  void answer_committed(WriterSession& session, std::uint32_t request, std::uint64_t step, std::uint64_t next_bytes,
                        bool ahead);
  /// The next request begins another step, which has its own place in the queue for space.
  void step_over() noexcept { step_order_.reset(); }
  /// All that the rank has been granted is free again.
  void give_back(WriterRank& rank);
  /// The same of what lies on other members, once they have said that the rank writes there no more.
  void give_back_elsewhere(WriterRank& rank);
  /// To write in these segments of other members, as far as they are there.
  void permit(WriterSession& session, const std::set<std::uint32_t>& segments,
              std::vector<std::unique_ptr<wire::MemberPermitT>>& permits);

 private:
  /// Descriptors of as much fit into one answer, also where it lies in pieces.
  std::uint64_t bytes_max() const;
  /// What was granted to a rank that is no more is free again.
  void answer(const Owner& owner, std::uint32_t request, Result<std::vector<Extent>> space);
  template <class Answer>
  void describe(WriterSession& session, const std::vector<Extent>& extents, Answer& answer,
                std::vector<Descriptor>& descriptors);

  WrittenStream& stream_;
  const storage::StreamState& state_;
  ReservationSpace& space_;
  Incarnation& incarnation_;
  std::optional<std::uint64_t> step_order_;  ///< place of the step at hand in the queue for space
};

}  // namespace forebay::server
