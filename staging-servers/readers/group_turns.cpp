// SPDX-License-Identifier: Apache-2.0
#include "readers/group_turns.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/invariant.h"

namespace forebay::server {
namespace {

/// So many ranks that have gone are passed over in search of those that are missing.
constexpr std::size_t gone_passed_max = 64;

}  // namespace

void GroupTurns::begin() {
  for (std::uint32_t rank = 0; rank < ranks_; ++rank) here_.emplace_hint(here_.end(), rank, Here{});
}

void GroupTurns::end(const Error& error) {
  if (!ended_) ended_ = error;
}

bool GroupTurns::was_lost(std::uint32_t rank) const {
  const auto found = gone_.find(rank);
  return found == gone_.end() ? others_lost_ && !is_here(rank) && !is_awaited(rank) : found->second;
}

std::uint32_t GroupTurns::awaited() const noexcept {
  if (others_lost_) return static_cast<std::uint32_t>(living_.size());
  return ranks_ - static_cast<std::uint32_t>(here_.size() + gone_.size());
}

std::vector<std::uint32_t> GroupTurns::gone() const {
  std::vector<std::uint32_t> ranks;
  for (const auto& [rank, lost] : gone_) ranks.push_back(rank);
  return ranks;
}

Result<std::vector<std::uint32_t>> GroupTurns::come_back(std::uint32_t rank, std::uint64_t turn,
                                                         const TurnAnswer& answer,
                                                         const std::vector<std::uint32_t>& gone) {
  if (!is_awaited(rank)) return fail(ErrorCode::protocol, fmt::format("rank {} is not expected back", rank));
  const bool first = here_.empty();
  here_.emplace(rank, Here{turn});
  living_.erase(rank);
  // They were gone when the turn that it knows was decided: the others did not wait for them either.
  for (const std::uint32_t other : gone) {
    if (!is_awaited(other)) continue;
    gone_.emplace(other, on_lost_ == OnReaderLost::go_on);
    living_.erase(other);
  }
  const std::uint64_t least = turn < turn_ ? turn : turn_;
  const std::uint64_t most = turn < turn_ ? turn_ : turn;
  const bool later = first || turn > turn_;
  if (later) {
    turn_ = turn;
    answer_ = answer;
  }
  const bool same = answer.kind == answer_.kind && answer.step == answer_.step;
  const bool contradicts = !first && (most - least > 1 || (most == least && !same));
  if (contradicts) {
    end({ErrorCode::protocol,
         fmt::format("the ranks of this reader group do not agree on turn {} (rank {} knows turn {})", turn_, rank,
                     turn),
         ""});
    return fail(Error(*ended_));
  }
  return later ? take_asked() : std::vector<std::uint32_t>();
}

void GroupTurns::join(std::uint32_t rank) {
  gone_.erase(rank);
  here_.insert_or_assign(rank, Here{turn_});
}

void GroupTurns::remove(std::uint32_t rank, bool lost) {
  here_.erase(rank);
  living_.erase(rank);
  gone_.emplace(rank, lost);
  const auto asked = asked_.find(rank);
  if (asked == asked_.end()) return;
  if (asked->second >= 0) timeouts_.erase(timeouts_.find(asked->second));
  asked_.erase(asked);
}

void GroupTurns::leave(std::uint32_t rank) {
  if (is_here(rank)) remove(rank, false);
}

void GroupTurns::lose(std::uint32_t rank, const std::string& why) {
  if (!is_here(rank) && !is_awaited(rank)) return;
  remove(rank, true);
  end_by(rank, why);
}

void GroupTurns::lose_awaited(const std::string& why, const std::set<std::uint32_t>& living) {
  std::set<std::uint32_t> kept;
  for (const std::uint32_t rank : living)
    if (is_awaited(rank)) kept.insert(rank);
  if (awaited() == kept.size()) return;
  std::uint32_t first = 0;
  while (!is_awaited(first) || kept.contains(first)) ++first;
  others_lost_ = true;
  living_ = std::move(kept);
  end_by(first, why);
}

void GroupTurns::end_by(std::uint32_t rank, const std::string& why) {
  if (on_lost_ == OnReaderLost::go_on) return;
  end({ErrorCode::group_broken,
       fmt::format("rank {} of {} of this reader group {}; start all ranks anew, or set OnReaderLost=continue", rank,
                   ranks_, why),
       ""});
}

Result<GroupTurns::Asked> GroupTurns::ask(std::uint32_t rank, std::uint64_t turn, std::int64_t timeout_ms) {
  if (ended_) return fail(Error(*ended_));
  const auto here = here_.find(rank);
  if (here == here_.end()) return fail(ErrorCode::group_broken, "this rank is no longer in its reader group");
  if (turn != here->second.answered + 1 || asked_.contains(rank)) {
    return fail(ErrorCode::protocol, fmt::format("rank {} asks for turn {} of a reader group, but has the answer to {}",
                                                 rank, turn, here->second.answered));
  }
  if (turn <= turn_) {
    here->second.answered = turn;
    return Asked::answered;
  }
  asked_.emplace(rank, timeout_ms);
  if (timeout_ms >= 0) timeouts_.insert(timeout_ms);
  return Asked::waits;
}

std::vector<std::uint32_t> GroupTurns::missing(std::size_t count_max) const {
  std::vector<std::uint32_t> ranks;
  if (others_lost_ || awaited() == 0) {
    for (auto here = here_.begin(); here != here_.end() && ranks.size() < count_max; ++here)
      if (!asked_.contains(here->first)) ranks.push_back(here->first);
    ranks.insert(ranks.end(), living_.begin(), living_.end());
    std::ranges::sort(ranks);
    if (ranks.size() > count_max) ranks.resize(count_max);
    return ranks;
  }
  std::size_t passed = 0;
  for (std::uint32_t rank = 0; rank < ranks_ && ranks.size() < count_max && passed < gone_passed_max; ++rank) {
    if (is_awaited(rank) || (is_here(rank) && !asked_.contains(rank))) ranks.push_back(rank);
    if (gone_.contains(rank)) ++passed;
  }
  return ranks;
}

std::vector<std::uint32_t> GroupTurns::late() const {
  std::vector<std::uint32_t> ranks;
  for (const auto& [rank, here] : here_) {
    if (!asked_.contains(rank)) ranks.push_back(rank);
  }
  return ranks;
}

std::int64_t GroupTurns::timeout_ms() const noexcept {
  return timeouts_.empty() ? -1 : *timeouts_.begin();
}

std::vector<std::uint32_t> GroupTurns::decide(TurnAnswer answer) {
  answer_ = std::move(answer);
  ++turn_;
  return take_asked();
}

std::vector<std::uint32_t> GroupTurns::take_asked() {
  std::vector<std::uint32_t> ranks;
  for (const auto& [rank, timeout_ms] : std::exchange(asked_, {})) {
    here_.at(rank).answered = turn_;
    ranks.push_back(rank);
  }
  timeouts_.clear();
  return ranks;
}

std::size_t GroupTurns::check() const {
  const auto about = [this](std::uint32_t rank, const char* what) {
    return fmt::format("reader group, turn {}: rank {} of {} {}", turn_, rank, ranks_, what);
  };
  invariant(here_.size() + gone_.size() + living_.size() <= ranks_, [&] { return about(ranks_, "is one too many"); });
  for (const std::uint32_t rank : living_)
    invariant(rank < ranks_ && !here_.contains(rank) && !gone_.contains(rank),
              [&, which = rank] { return about(which, "is awaited and is not away"); });
  for (const auto& [rank, here] : here_) {
    invariant(rank < ranks_, [&] { return about(rank, "is there"); });
    invariant(!gone_.contains(rank), [&] { return about(rank, "is there and gone"); });
    // Nobody is more than a turn ahead of another: what they read would be different steps.
    const bool keeps_up = here.answered <= turn_ && turn_ - here.answered <= 1;
    invariant(ended_ || keeps_up, [&] { return about(rank, "has the answer to another turn"); });
  }
  std::size_t bounded = 0;
  for (const auto& [rank, timeout_ms] : asked_) {
    const auto here = here_.find(rank);
    invariant(here != here_.end(), [&] { return about(rank, "asks and is not there"); });
    invariant(ended_ || here->second.answered == turn_, [&] { return about(rank, "asks without the last answer"); });
    if (timeout_ms >= 0) ++bounded;
  }
  invariant(bounded == timeouts_.size(), "reader group: the timeouts are not those of who asks");
  for (const auto& [rank, lost] : gone_)
    invariant(rank < ranks_, [&, which = rank] { return about(which, "is gone"); });
  return 1 + here_.size() + gone_.size() + asked_.size();
}

}  // namespace forebay::server
