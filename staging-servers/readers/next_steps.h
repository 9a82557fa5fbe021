// SPDX-License-Identifier: Apache-2.0
// Which step each reader gets next, and what becomes of steps with parts on members that are away (OnUnavailable).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "readers/step_sharing.h"
#include "storage/stream_state.h"

namespace forebay::server {

class OtherMembers;

/// Why bytes of a step cannot be read now.
struct Absence {
  std::string what;      ///< for people: member, server, since when
  bool is_known = true;  ///< false: the home, which was just started, has not heard from the member yet
  bool is_lost = false;  ///< for good: the step goes as soon as nobody holds it any more
};

/// Nothing while all members are there that have parts of the step, with what they had when it was written. `others`:
/// null where the reservation lies on one server. `durable_next`: no step before it is lost with a member's power.
std::optional<Absence> absence_of(const OtherMembers* others, const journal::StepCommittedT& step,
                                  std::uint64_t durable_next);

/// What there is for a reader.
struct NextStepFound {
  const storage::StepState* step = nullptr;  ///< null: none yet
  std::optional<Absence> absence;            ///< why the step cannot be given
  std::string passed_over;                   ///< which steps the reader has passed over now, for people; empty: none
};

class NextSteps {
 public:
  using AbsenceOf = std::function<std::optional<Absence>(const journal::StepCommittedT&)>;
  /// `state` and `sharing` outlive it.
  NextSteps(const storage::StreamState& state, StepSharing& sharing, AbsenceOf absence_of)
      : state_(state), sharing_(sharing), absence_of_(std::move(absence_of)) {}

  /// The reader's next step before `limit`. Every reader passes over those that are lost, and one that skips over all
  /// that cannot be given.
  NextStepFound find(Follower& reader, std::uint64_t limit);
  /// The reader gets this step, which find() found: its position is the next one.
  void take(Follower& reader, const storage::StepState& step);

 private:
  const storage::StepState* first(Follower& reader, std::uint64_t limit);
  /// May the reader pass over it now?
  bool skips(const Follower& reader, const std::optional<Absence>& absence) const;

  const storage::StreamState& state_;
  StepSharing& sharing_;
  const AbsenceOf absence_of_;
};

}  // namespace forebay::server
