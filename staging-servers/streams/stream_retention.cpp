// SPDX-License-Identifier: Apache-2.0
// Which steps of a stream go, and when their space is free for others.
#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/fail_point.h"
#include "base/log.h"
#include "base/plain_text.h"
#include "base/size_text.h"
#include "storage/record_check.h"
#include "streams/stream.h"

namespace forebay::server {
namespace {

// Of a full reservation's message, which names the largest.
constexpr std::size_t consumers_shown_max = 3;
constexpr std::size_t retention_bytes_shown_max = 80;

}  // namespace

void Stream::unpinned(const StepKey& key) {
  const auto found = state_.retired.find(key);
  if (found == state_.retired.end()) return;
  // Whether the step was durable is not known any more: wait for the sync in any case.
  free_step(found->second, std::numeric_limits<std::uint64_t>::max());
  state_.retire_done(key.first, key.second);
  flusher_.request(false);
}

bool Stream::is_kept_first(std::uint64_t number) const {
  return number < state_.retention.first && state_.status != StreamStatus::ended;
}

bool Stream::may_drop(const storage::StepState& step) const {
  const std::uint64_t number = step.committed.step;
  return !step.precious() && !is_kept_first(number) && !followers_.pins().is_pinned({step.committed.epoch, number});
}

void Stream::apply_retention() {
  followers_.serve_deferred();
  // Who waits for a step gets it before it goes.
  if (followers_.is_serving()) return;
  if (state_.retention.keeps_all() || state_.status == StreamStatus::failed) return;
  std::vector<std::uint64_t> droppable;
  const std::uint64_t last = state_.retention.last ? state_.oldest_of_last(*state_.retention.last) : state_.next_step;
  const std::uint64_t end = std::min(last, followers_.cursors().first_not_passed(state_.retention.consumers));
  for (const auto& [number, step] : state_.steps) {
    if (number >= end) break;
    if (may_drop(step)) droppable.push_back(number);
  }
  (void)drop(droppable);
}

void Stream::what_may_go_changed() {
  apply_retention();
  space_.queue().changed(SpaceChange::more);
}

std::string Stream::need_of(const storage::StepState& step, std::uint64_t first_needed) const {
  const std::uint64_t number = step.committed.step;
  if (step.precious()) return "it is precious and not staged out";
  if (followers_.pins().is_pinned({step.committed.epoch, number})) return "a reader or a writer's array holds it";
  if (number < first_needed) return {};
  for (const ConsumerInfo& consumer : followers_.cursors().list()) {
    if (consumer.position <= number) return "consumer " + consumer.name + " has not passed it";
  }
  return "a consumer has not passed it";
}

Result<void> Stream::drop_steps(const std::vector<std::uint64_t>& steps) {
  followers_.serve_deferred();
  if (state_.status == StreamStatus::failed)
    return fail(ErrorCode::refused, "a failed stream drops nothing; remove it as a whole", "stream " + path());
  const std::uint64_t first_needed = followers_.cursors().first_needed();
  std::set<std::uint64_t> dropped;
  for (const std::uint64_t number : steps) {
    const auto found = state_.steps.find(number);
    const auto where = [&] { return fmt::format("stream {}, step {}", path(), number); };
    if (found == state_.steps.end()) {
      // One that is gone may be gone by this very request, whose answer was lost.
      if (number >= state_.next_step) return fail(ErrorCode::not_found, "there is no such step yet", where());
      continue;
    }
    if (const std::string need = need_of(found->second, first_needed); !need.empty())
      return fail(ErrorCode::refused, need + ", so it is not dropped", where());
    dropped.insert(number);
  }
  if (!drop({dropped.begin(), dropped.end()}))
    return fail(ErrorCode::io_error, "the journal did not take it; the steps stay", "stream " + path());
  what_may_go_changed();
  return {};
}

bool Stream::lose_steps(const std::map<std::uint16_t, std::uint64_t>& incarnations) {
  // Readers that wait are not served first, as before other drops: what is lost would be given to them.
  const auto is_gone = [&](const journal::MemberStorage& storage) {
    const auto now = incarnations.find(storage.member());
    return now != incarnations.end() && now->second != storage.incarnation();
  };
  std::vector<StepKey> lost;
  for (auto step = state_.steps.lower_bound(state_.durable_next); step != state_.steps.end(); ++step) {
    const auto& parts = step->second.committed.parts;
    if (std::ranges::any_of(parts, [&](const auto& part) { return std::ranges::any_of(part->members, is_gone); }))
      lost.emplace_back(step->second.committed.epoch, step->first);
  }
  if (lost.empty()) return false;
  log::warning("stream {}: {} steps from {} on are lost with the power of a member that had a part of them", path(),
               lost.size(), lost.front().second);
  (void)record_lost(lost, "a member of the reservation lost its power, and steps with it that were to be durable");
  return true;
}

bool Stream::lose(const std::map<StepKey, std::string>& steps) {
  followers_.serve_deferred();
  std::vector<StepKey> lost;
  for (const auto& [key, why] : steps) {
    const storage::StepState* const step = followers_.find_step(key);
    if (step == nullptr || step->lost) continue;
    log::warning("stream {}: step {} is lost: {}", path(), key.second, why);
    lost.push_back(key);
  }
  return record_lost_for_good(lost,
                              "a member of the reservation has an older copy, without steps that were to be durable");
}

void Stream::lose_all_on(std::uint16_t member) {
  std::vector<StepKey> lost;
  const auto add = [&](const storage::StepState& step) {
    const bool has_part = std::ranges::any_of(step.committed.parts, [&](const auto& part) {
      return std::ranges::any_of(part->members, [&](const auto& storage) { return storage.member() == member; });
    });
    if (has_part && !step.lost) lost.emplace_back(step.committed.epoch, step.committed.step);
  };
  for (const auto& [key, step] : state_.retired) add(step);
  for (const auto& [number, step] : state_.steps) add(step);
  if (lost.empty()) return;
  log::warning("stream {}: {} steps are lost with member {}, whose server was given up", path(), lost.size(), member);
  (void)record_lost_for_good(lost,
                             "a server of the reservation was given up, and steps with it that were to be durable");
}

bool Stream::record_lost_for_good(const std::vector<StepKey>& steps, const std::string& why) {
  if (!steps.empty() && !record_lost(steps, why)) return false;
  if (auto synced = journal_.sync(); !synced) {
    fail_stream("the journal could not be synced: " + synced.error().message());
    return false;
  }
  return true;
}

bool Stream::record_lost(const std::vector<StepKey>& steps, const std::string& why) {
  const std::uint64_t durable_before = state_.durable_next;
  journal::StepsLostT lost;
  std::optional<std::uint64_t> first_not_durable;
  for (const auto& [step_epoch, number] : steps) {
    lost.steps.emplace_back(step_epoch, number);
    if (state_.steps.contains(number) && number >= durable_before && !first_not_durable) first_not_durable = number;
  }
  if (!record(storage::RecordType::steps_lost, std::move(lost))) return false;
  fail_point("server.lose.after_append");
  if (first_not_durable) group_.steps_lost(*first_not_durable, why);
  free_unheld(steps, durable_before);
  followers_.steps_dropped();
  what_may_go_changed();
  return true;
}

void Stream::free_unheld(const std::vector<StepKey>& steps, std::uint64_t durable_next) {
  for (const StepKey& key : steps) {
    const auto found = state_.retired.find(key);
    if (found == state_.retired.end() || followers_.pins().is_pinned(key)) continue;
    free_step(found->second, durable_next);
    state_.retire_done(key.first, key.second);
  }
}

bool Stream::drop_oldest() {
  followers_.serve_deferred();
  if (followers_.is_serving()) return false;
  if (state_.status == StreamStatus::failed) return false;
  const std::uint64_t first_needed = followers_.cursors().first_needed();
  for (const auto& [number, step] : state_.steps) {
    if (number >= first_needed) break;
    if (may_drop(step)) return drop({number});
  }
  return false;
}

bool Stream::drops_when_let_go() const {
  // A failed stream drops nothing.
  return state_.status != StreamStatus::failed && std::ranges::any_of(state_.steps, [this](const auto& entry) {
           return !entry.second.precious() && !is_kept_first(entry.first);
         });
}

bool Stream::may_free_space() const {
  // Ranks that come back after a restart say what they hold; until then nobody gets what is free beside it.
  if (group_.rejoining()) return true;
  if (followers_.is_serving()) return true;
  if (state_.status == StreamStatus::failed) return false;
  if (!state_.retired.empty()) return true;
  if (state_.steps.empty()) return false;
  const Retention& retention = state_.retention;
  // Only what would go by retention once somebody moves: a stream that keeps everything never frees by itself.
  if (retention.keeps_all()) {
    return false;
  }
  if (!retention.consumers.empty()) return true;
  const std::uint64_t last = state_.oldest_of_last(*retention.last);
  return std::ranges::any_of(state_.steps, [&](const auto& entry) {
    // Held by a pin or by preciousness only.
    return entry.first < last && !is_kept_first(entry.first);
  });
}

std::uint64_t Stream::bytes_that_commits_free() const {
  return group_.may_commit() && !state_.retention.keeps_all() ? kept_bytes() : 0;
}

Holding Stream::holding() const {
  const std::uint64_t granted_bytes = group_.granted_bytes();
  const std::uint64_t kept = kept_bytes();
  if (state_.steps.empty() && kept + granted_bytes == 0) return {};
  std::string text = fmt::format("{}: {} steps, {}, retention {}", name(), state_.steps.size(), size_text(kept),
                                 plain_text(to_string(state_.retention), retention_bytes_shown_max));
  const auto precious = std::ranges::count_if(state_.steps, [](const auto& entry) { return entry.second.precious(); });
  if (precious > 0) text += fmt::format(", {} precious and not staged out", precious);
  const auto pinned = std::ranges::count_if(state_.steps, [&](const auto& entry) {
    return followers_.pins().is_pinned({entry.second.committed.epoch, entry.first});
  });
  if (pinned > 0) text += fmt::format(", {} that readers or a writer's arrays hold", pinned);
  if (granted_bytes > 0) text += fmt::format(", {} of open steps", size_text(granted_bytes));
  std::vector<ConsumerInfo> behind = followers_.cursors().list();
  std::erase_if(behind, [](const ConsumerInfo& consumer) { return consumer.lag_steps == 0; });
  std::ranges::sort(behind, [](const ConsumerInfo& one, const ConsumerInfo& other) {
    return one.lag_steps != other.lag_steps ? one.lag_steps > other.lag_steps : one.name < other.name;
  });
  for (const ConsumerInfo& consumer : std::span(behind).first(std::min(behind.size(), consumers_shown_max)))
    text += fmt::format(", consumer {} {} steps behind", consumer.name, consumer.lag_steps);
  if (behind.size() > consumers_shown_max)
    text += fmt::format(" and {} more consumers behind", behind.size() - consumers_shown_max);
  return {kept + granted_bytes, std::move(text)};
}

Result<void> Stream::note_owned(journal::SegmentsOwnedT owned) {
  return record(storage::RecordType::segments_owned, std::move(owned));
}

Result<void> Stream::note_left(journal::SegmentsLeftT left) {
  return record(storage::RecordType::segments_left, std::move(left));
}

bool Stream::drop(const std::vector<std::uint64_t>& steps) {
  if (steps.empty()) return true;
  journal::StepsDroppedT dropped;
  for (std::uint64_t number : steps) {
    if (!dropped.ranges.empty() && dropped.ranges.back().last() + 1 == number) {
      dropped.ranges.back() = journal::StepRange(dropped.ranges.back().first(), number);
    } else {
      dropped.ranges.emplace_back(number, number);
    }
  }
  std::vector<storage::StepState> gone;
  for (std::uint64_t number : steps) gone.push_back(state_.steps.at(number));
  const std::uint64_t durable_next = state_.durable_next;
  if (auto recorded = record(storage::RecordType::steps_dropped, std::move(dropped)); !recorded) return false;
  fail_point("server.drop.after_append");
  for (const storage::StepState& step : gone) free_step(step, durable_next);
  followers_.steps_dropped();
  return true;
}

void Stream::free_step(const storage::StepState& step, std::uint64_t durable_next) {
  free_space(extents_of(step.committed), step.committed.step < durable_next);
  for (const auto* set : sets_of(step.committed)) let_go(*set, durable_next);
}

void Stream::let_go(const journal::AttributeSetT& set, std::uint64_t durable_next) {
  // The step that brought it may be durable, and come back with the power if no record of its drop does.
  if (sets_.remove(set)) free_space(extents_of(set), set.step < durable_next);
}

void Stream::follow_held_sets(std::uint64_t durable_next) {
  const auto is_held_in = [](const auto& held, const auto& entry) {
    const auto found = held.find(entry.first);
    return found != held.end() && storage::is_same_set(found->second, entry.second);
  };
  std::vector<journal::AttributeSetT> replaced;
  for (const auto& entry : held_sets_) {
    if (!is_held_in(state_.held_attributes, entry)) replaced.push_back(entry.second);
  }
  for (const auto& entry : state_.held_attributes) {
    if (is_held_in(held_sets_, entry)) continue;
    sets_.add(entry.second);
    held_sets_.insert_or_assign(entry.first, entry.second);
  }
  std::erase_if(held_sets_, [this](const auto& entry) { return !state_.held_attributes.contains(entry.first); });
  for (const journal::AttributeSetT& set : replaced) let_go(set, durable_next);
}

void Stream::free_space(std::vector<Extent> extents, bool durable) {
  // The next step gets this step's pieces in the same order: the newest released comes first.
  std::ranges::reverse(extents);
  if (durable) {
    flusher_.release_when_synced(std::move(extents), !space_.queue().is_empty());
    return;
  }
  for (const Extent& extent : extents) space_.release(extent);
}

void Stream::give_way(const Extent& extent) {
  if (damage_.empty() && !end_cut_) return;
  const auto meets = [&](const Extent& held) {
    return held.segment == extent.segment && held.offset < extent.offset + extent.length &&
           extent.offset < held.offset + held.length;
  };
  const auto claims = [&](const auto& entry) {
    return std::ranges::any_of(extents_read(entry.second.committed), meets);
  };
  std::vector<storage::StepState> given_up;
  for (const auto& entry : state_.retired) {
    if (claims(entry)) given_up.push_back(entry.second);
  }
  std::erase_if(state_.retired, claims);
  journal::StepsDroppedT dropped;
  for (const auto& entry : state_.steps) {
    if (!claims(entry)) continue;
    given_up.push_back(entry.second);
    dropped.ranges.emplace_back(entry.first, entry.first);
  }
  for (const storage::StepState& step : given_up) {
    log::warning("stream {}: step {} was dropped, and its space belongs to another stream", path(),
                 step.committed.step);
    followers_.revoke({step.committed.epoch, step.committed.step});
  }
  // A damaged journal takes no record, and a start finds the steps again, to be given up again.
  if (!dropped.ranges.empty() && (!damage_.empty() || !record(storage::RecordType::steps_dropped, std::move(dropped))))
    std::erase_if(state_.steps, claims);
  // A rank that holds such a set cannot refer to it any more: its next step is refused.
  std::erase_if(state_.held_attributes,
                [&](const auto& entry) { return std::ranges::any_of(extents_of(entry.second), meets); });
  follow_held_sets(0);
  for (const storage::StepState& step : given_up) free_step(step, 0);
}

}  // namespace forebay::server
