// SPDX-License-Identifier: Apache-2.0
#include "readers/step_sharing.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "readers/follower.h"

namespace forebay::server {
namespace {

/// How many dropped steps may wait for a reader whose turn they were, before they are taken out.
constexpr std::size_t assigned_dropped_max = 64;

}  // namespace

const storage::StepState* first_kept(const storage::StreamState& state, std::uint64_t from, std::uint64_t limit) {
  const auto found = state.steps.lower_bound(from);
  if (found == state.steps.end() || found->first >= limit) return nullptr;
  return &found->second;
}

StepDistribution StepSharing::distribution_of(const Follower& reader) const {
  return reader.distribution == StepDistribution::stream_default ? stream_distribution_ : reader.distribution;
}

std::vector<Follower*> StepSharing::sharers(const Share& share, StepDistribution distribution) const {
  std::vector<Follower*> found;
  for (const auto& [number, reader] : share.readers) {
    if (distribution_of(*reader) == distribution) found.push_back(reader);
  }
  return found;
}

void StepSharing::begin_at(Share& share, std::uint64_t position) {
  share.next = position;
  share.assigned.clear();
  share.returned.clear();
  share.turn = 0;
}

void StepSharing::begin(Follower& reader) {
  Share& share = shares_[reader.share];
  // What was given to readers that have all gone is not known to have been dealt with: the cursor tells.
  if (shares(reader) && std::ranges::none_of(share.readers, [&](const auto& entry) {
        return distribution_of(*entry.second) == distribution_of(reader);
      }))
    begin_at(share, reader.position);
  share.readers.emplace(reader.number, &reader);
}

void StepSharing::set_stream_distribution(StepDistribution distribution) {
  if (std::exchange(stream_distribution_, distribution) == distribution) return;
  if (distribution == StepDistribution::all_to_all) return;
  // Readers that came before the writer said so go on from the first that any of them stands at.
  for (auto& [name, share] : shares_) {
    std::optional<std::uint64_t> start;
    for (const auto& [number, reader] : share.readers) {
      if (reader->distribution == StepDistribution::stream_default)
        start = std::min(start.value_or(reader->position), reader->position);
    }
    if (start) begin_at(share, *start);
  }
}

void StepSharing::leave(const Follower& reader) {
  const auto found = shares_.find(reader.share);
  if (found == shares_.end()) return;
  Share& share = found->second;
  if (share.readers.erase(reader.number) == 0) return;
  if (share.readers.empty()) {
    shares_.erase(found);
    return;
  }
  if (const auto turns = share.assigned.find(reader.number); turns != share.assigned.end()) {
    share.returned.merge(turns->second);
    share.assigned.erase(turns);
  }
}

void StepSharing::assign(Share& share, const std::vector<Follower*>& readers, std::uint64_t step) {
  Follower* const reader = readers[share.turn++ % readers.size()];
  std::set<std::uint64_t>& turns = share.assigned[reader->number];
  turns.insert(step);
  // A reader that has stopped must not make the server remember steps that were dropped long ago.
  const auto& kept = state_.steps;
  if (turns.size() <= 2 * kept.size() + assigned_dropped_max) return;
  reader->skipped += std::erase_if(turns, [&](std::uint64_t number) { return !kept.contains(number); });
}

const storage::StepState* StepSharing::first(Follower& reader, std::uint64_t limit) {
  Share& share = shares_[reader.share];
  const auto& kept = state_.steps;
  if (distribution_of(reader) == StepDistribution::on_demand) return first_kept(state_, share.next, limit);
  // Thousands may share, and ask where there is nothing new.
  if (!share.returned.empty() || first_kept(state_, share.next, limit) != nullptr) {
    const auto readers = sharers(share, distribution_of(reader));
    for (const std::uint64_t number : std::exchange(share.returned, {})) {
      if (kept.contains(number)) assign(share, readers, number);
    }
    while (const storage::StepState* step = first_kept(state_, share.next, limit)) {
      share.next = step->committed.step + 1;
      assign(share, readers, step->committed.step);
    }
  }
  std::set<std::uint64_t>& turns = share.assigned[reader.number];
  while (!turns.empty()) {
    const auto found = kept.find(*turns.begin());
    if (found != kept.end()) return &found->second;
    turns.erase(turns.begin());
    ++reader.skipped;
  }
  return nullptr;
}

void StepSharing::take(const Follower& reader, std::uint64_t step) {
  Share& share = shares_[reader.share];
  if (distribution_of(reader) == StepDistribution::on_demand) {
    share.next = step + 1;
  } else {
    share.assigned[reader.number].erase(step);
  }
}

std::uint64_t StepSharing::oldest_wanted(const Follower& reader) const {
  const auto found = shares_.find(reader.share);
  if (found == shares_.end()) return reader.position;
  const Share& share = found->second;
  std::uint64_t oldest = share.next;
  if (!share.returned.empty()) oldest = std::min(oldest, *share.returned.begin());
  const auto turns = share.assigned.find(reader.number);
  if (turns != share.assigned.end() && !turns->second.empty()) oldest = std::min(oldest, *turns->second.begin());
  return oldest;
}

void StepSharing::seek(const Follower& reader, std::uint64_t position) {
  const auto share = shares_.find(reader.share);
  if (share == shares_.end()) return;
  share->second.next = position;
  share->second.assigned.clear();
  share->second.returned.clear();
}

void StepSharing::rewound(std::uint64_t first) {
  for (auto& [name, share] : shares_) {
    share.next = std::min(share.next, first);
    for (auto& [reader, turns] : share.assigned) turns.erase(turns.lower_bound(first), turns.end());
    share.returned.erase(share.returned.lower_bound(first), share.returned.end());
  }
}

}  // namespace forebay::server
