// SPDX-License-Identifier: Apache-2.0
// The turns of a reader group: which ranks are there, which have asked for the next turn, and what the last one
// brought. Knows neither connections nor clocks nor streams. docs/design/reader-groups.md has the rules.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <forebay/reader.h>
#include <forebay/result.h>

#include "readers/followed_stream.h"

namespace forebay::server {

/// What a turn brought to all ranks.
struct TurnAnswer {
  std::optional<NextStep::Kind> kind;  ///< nothing: an error, with `text`
  StepKey step;                        ///< of a step
  StreamStatus status = StreamStatus::live;
  std::string text;
  ErrorCode error = ErrorCode::refused;  ///< of an error

  bool operator==(const TurnAnswer&) const = default;
};

class GroupTurns {
 public:
  /// All ranks are expected: to begin(), or to come back after a restart of the server. Takes no memory for them.
  GroupTurns(std::uint32_t ranks, OnReaderLost on_lost) noexcept : ranks_(ranks), on_lost_(on_lost) {}
  /// All of them are there.
  void begin();

  std::uint32_t ranks() const noexcept { return ranks_; }
  /// The last turn that was decided, and its answer. 0: none yet.
  std::uint64_t turn() const noexcept { return turn_; }
  const TurnAnswer& answer() const noexcept { return answer_; }
  /// Why the group has ended; nothing while it has not.
  const std::optional<Error>& ended() const noexcept { return ended_; }
  void end(const Error& error);
  /// Nobody is there any more, and nobody is expected.
  bool is_over() const noexcept { return here_.empty() && awaited() == 0; }

  bool is_here(std::uint32_t rank) const { return here_.contains(rank); }
  bool was_lost(std::uint32_t rank) const;
  /// Is it expected back after a restart of the server?
  bool is_awaited(std::uint32_t rank) const {
    if (others_lost_) return living_.contains(rank);
    return rank < ranks_ && !is_here(rank) && !gone_.contains(rank);
  }
  /// How many are.
  std::uint32_t awaited() const noexcept;
  /// Ranks that have closed or were lost.
  std::vector<std::uint32_t> gone() const;
  std::size_t gone_count() const noexcept { return gone_.size(); }

  /// A rank that is expected back tells its last turn, and those that it knows to have gone. Returns the ranks that
  /// have asked for this turn already: they get answer(). protocol: that cannot be; the group has ended then.
  Result<std::vector<std::uint32_t>> come_back(std::uint32_t rank, std::uint64_t turn, const TurnAnswer& answer,
                                               const std::vector<std::uint32_t>& gone);
  /// A rank that was lost is there again, and asks for the next turn first. Nobody is awaited.
  void join(std::uint32_t rank);
  /// It has closed.
  void leave(std::uint32_t rank);
  /// It is gone without a close; `why`: for people, as the end of "rank 1 of 2 …". The group ends, unless it goes on
  /// without.
  void lose(std::uint32_t rank, const std::string& why);
  /// The same of all that are awaited, without those that still live. Takes no memory for them.
  void lose_awaited(const std::string& why, const std::set<std::uint32_t>& living = {});

  enum class Asked {
    waits,     ///< for the others
    answered,  ///< the turn was decided before: it gets answer()
  };
  /// A rank asks for a turn. Errors: protocol (not its next turn, or it has asked already), group_broken (has ended).
  Result<Asked> ask(std::uint32_t rank, std::uint64_t turn, std::int64_t timeout_ms);
  /// Those that have not asked although they are there, and those that are awaited: the first `count_max` of them,
  /// fewer if many before them have gone. A group may say that it has a million ranks, of which not all are looked at.
  std::vector<std::uint32_t> missing(std::size_t count_max) const;
  /// Those that are there and have not asked.
  std::vector<std::uint32_t> late() const;
  /// Has nobody asked for the next turn?
  bool is_idle() const noexcept { return asked_.empty(); }
  /// All who are there have asked, and nobody is awaited: now the turn can be decided.
  bool is_complete() const noexcept {
    return !ended_ && !asked_.empty() && asked_.size() == here_.size() && awaited() == 0;
  }
  /// The shortest timeout of those that have asked; < 0: none.
  std::int64_t timeout_ms() const noexcept;
  /// The turn is complete: this is its answer. Returns who gets it.
  std::vector<std::uint32_t> decide(TurnAnswer answer);

  /// Ends the process if an invariant is broken; how many things were looked at.
  std::size_t check() const;

 private:
  friend struct InvariantBreaker;  // of a test
  struct Here {
    std::uint64_t answered = 0;  ///< the last turn that it has the answer to
  };
  void remove(std::uint32_t rank, bool lost);
  /// Ends it for this reason, unless it goes on without the rank.
  void end_by(std::uint32_t rank, const std::string& why);
  /// All who have asked have the answer now.
  std::vector<std::uint32_t> take_asked();

  const std::uint32_t ranks_;
  const OnReaderLost on_lost_;
  std::uint64_t turn_ = 0;
  TurnAnswer answer_;
  std::optional<Error> ended_;
  std::map<std::uint32_t, Here> here_;
  std::map<std::uint32_t, std::int64_t> asked_;  ///< timeouts, by rank
  std::multiset<std::int64_t> timeouts_;         ///< of those, without the endless ones
  std::map<std::uint32_t, bool> gone_;           ///< by rank: was it lost?
  bool others_lost_ = false;                     ///< all that are neither here, nor among those, nor in living_
  std::set<std::uint32_t> living_;               ///< those that are awaited then
};

}  // namespace forebay::server
