// SPDX-License-Identifier: Apache-2.0
#include "readers/next_steps.h"

#include <iterator>

#include <fmt/format.h>

#include "readers/follower.h"
#include "space/other_members.h"

namespace forebay::server {

std::optional<Absence> absence_of(const OtherMembers* others, const journal::StepCommittedT& step,
                                  std::uint64_t durable_next) {
  if (others == nullptr) return std::nullopt;
  std::optional<Absence> lost;
  for (const auto& part : step.parts) {
    for (const journal::MemberStorage& storage : part->members) {
      const std::uint16_t member = storage.member();
      if (const std::string* away = others->absence(member)) {
        return Absence{fmt::format("step {} has a part on member {} of the reservation: {}", step.step, member, *away),
                       others->was_looked_at(member)};
      }
      if (step.step >= durable_next && others->storage_incarnation(member) != storage.incarnation()) {
        lost = {fmt::format("step {} is lost with the power of member {} of the reservation", step.step, member), true,
                true};
      }
    }
  }
  return lost;
}

bool NextSteps::skips(const Follower& reader, const std::optional<Absence>& absence) const {
  if (absence && absence->is_lost) return true;
  // Nobody misses a step only because the home was started a moment ago.
  return reader.on_unavailable == OnUnavailable::skip && absence && absence->is_known;
}

const storage::StepState* NextSteps::first(Follower& reader, std::uint64_t limit) {
  if (sharing_.shares(reader)) return sharing_.first(reader, limit);
  const storage::StepState* const oldest = first_kept(state_, reader.position, limit);
  if (oldest == nullptr || !reader.latest_only) return oldest;
  auto step = std::prev(state_.steps.lower_bound(limit));
  const storage::StepState* const newest = &step->second;
  // An older one is better than none.
  while (&step->second != oldest && skips(reader, absence_of_(step->second.committed))) --step;
  return skips(reader, absence_of_(step->second.committed)) ? newest : &step->second;
}

NextStepFound NextSteps::find(Follower& reader, std::uint64_t limit) {
  NextStepFound found;
  std::optional<std::uint64_t> first_passed;
  while ((found.step = first(reader, limit)) != nullptr) {
    const std::uint64_t number = found.step->committed.step;
    found.absence = absence_of_(found.step->committed);
    if (!skips(reader, found.absence)) break;
    if (!first_passed) first_passed = number;
    const std::string passed = *first_passed == number ? fmt::format("step {} is", number)
                                                       : fmt::format("steps {} to {} are", *first_passed, number);
    found.passed_over = passed + " passed over: " + found.absence->what;
    take(reader, *found.step);
    ++reader.skipped;
  }
  return found;
}

void NextSteps::take(Follower& reader, const storage::StepState& step) {
  const std::uint64_t number = step.committed.step;
  if (sharing_.shares(reader)) {
    sharing_.take(reader, number);
  } else {
    reader.skipped += state_.committed_since(reader.position) - state_.committed_since(number);
  }
  reader.position = number + 1;
}

}  // namespace forebay::server
