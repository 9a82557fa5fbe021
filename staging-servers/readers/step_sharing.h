// SPDX-License-Identifier: Apache-2.0
// How the steps of a stream are shared out among the readers of one consumer name: to all of them, in turn, or to
// whoever asks first.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <forebay/reader.h>

#include "storage/stream_state.h"

namespace forebay::server {

class Follower;

using FollowersByNumber = std::map<std::uint64_t, Follower*>;

/// The first step from `from` on that is kept, and before `limit`; null if there is none.
const storage::StepState* first_kept(const storage::StreamState& state, std::uint64_t from, std::uint64_t limit);

class StepSharing {
 public:
  /// It outlives this.
  explicit StepSharing(const storage::StreamState& state) : state_(state) {}

  /// The reader's own choice, or else the writer's.
  StepDistribution distribution_of(const Follower& reader) const;
  bool shares(const Follower& reader) const { return distribution_of(reader) != StepDistribution::all_to_all; }
  /// Chosen by the writer, for readers that do not choose.
  void set_stream_distribution(StepDistribution distribution);

  /// A reader that is about to follow: if it shares, what it shares begins where it stands, unless others share it
  /// already.
  void begin(Follower& reader);
  /// It follows no more. Steps that were its turn and that it never got go to the others.
  void leave(const Follower& reader);
  /// The next step for a reader that shares; null if there is none for it before `limit`. It stays there until the
  /// reader takes it.
  const storage::StepState* first(Follower& reader, std::uint64_t limit);
  void take(const Follower& reader, std::uint64_t step);
  /// The first step that neither it nor anybody it shares steps with has been given.
  std::uint64_t oldest_wanted(const Follower& reader) const;
  /// All who share with it go on from there.
  void seek(const Follower& reader, std::uint64_t position);
  /// Steps from `first` on were withdrawn.
  void rewound(std::uint64_t first);

 private:
  /// What the readers of one consumer name share that take the same steps.
  struct Share {
    std::uint64_t next = 0;                                     ///< first step not given or assigned to anybody
    std::map<std::uint64_t, std::set<std::uint64_t>> assigned;  ///< round robin: whose turn steps are, by session
    std::set<std::uint64_t> returned;                           ///< assigned to readers that went before they got them
    std::size_t turn = 0;
    FollowersByNumber readers;  ///< those that follow and share, or would if the writer said so
  };

  std::vector<Follower*> sharers(const Share& share, StepDistribution distribution) const;
  static void begin_at(Share& share, std::uint64_t position);
  void assign(Share& share, const std::vector<Follower*>& readers, std::uint64_t step);

  const storage::StreamState& state_;
  std::map<std::string, Share> shares_;  ///< by Follower::share
  StepDistribution stream_distribution_ = StepDistribution::all_to_all;
};

}  // namespace forebay::server
