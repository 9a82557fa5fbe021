// SPDX-License-Identifier: Apache-2.0
#include "storage/stream_state.h"

#include <algorithm>
#include <iterator>

#include <forebay/address.h>

#include "base/return_error.h"
#include "storage/record_body.h"
#include "storage/record_check.h"

namespace forebay::storage {
namespace {

using journal::RecordType;

// Of a stream that is rewound again and again.
constexpr std::size_t epochs_max = 256;
constexpr std::size_t lost_ranges_max = 256;

tl::unexpected<Error> contradiction(std::string what) {
  return fail(ErrorCode::corrupt, std::move(what));
}

std::string step_text(std::uint64_t step) {
  return "step " + std::to_string(step);
}

/// Applies the record in `body` by the overload for its type.
template <class RecordT>
Result<void> apply_body(StreamState& state, std::span<const std::byte> body) {
  ASSIGN_OR_RETURN(auto record, unpack_body<RecordT>(body));
  return state.apply(std::move(record));
}

}  // namespace

StreamState StreamState::fresh(std::string uuid, std::string name, std::int64_t created_ns) {
  StreamState state;
  state.uuid = std::move(uuid);
  state.name = std::move(name);
  state.created_ns = created_ns;
  return state;
}

Result<void> StreamState::apply(RecordType type, std::span<const std::byte> body) {
  const auto dispatch = [&]() -> Result<void> {
    switch (type) {
      case RecordType::checkpoint:
        return apply_body<journal::CheckpointT>(*this, body);
      case RecordType::group_formed:
        return apply_body<journal::GroupFormedT>(*this, body);
      case RecordType::segments_owned:
        return apply_body<journal::SegmentsOwnedT>(*this, body);
      case RecordType::step_committed:
        return apply_body<journal::StepCommittedT>(*this, body);
      case RecordType::steps_dropped:
        return apply_body<journal::StepsDroppedT>(*this, body);
      case RecordType::steps_withdrawn:
        return apply_body<journal::StepsWithdrawnT>(*this, body);
      case RecordType::group_ended:
        return apply_body<journal::GroupEndedT>(*this, body);
      case RecordType::durable_to:
        return apply_body<journal::DurableToT>(*this, body);
      case RecordType::steps_staged:
        return apply_body<journal::StepsStagedT>(*this, body);
      case RecordType::cursor_moved:
        return apply_body<journal::CursorMovedT>(*this, body);
      case RecordType::cursor_removed:
        return apply_body<journal::CursorRemovedT>(*this, body);
      case RecordType::retention_set:
        return apply_body<journal::RetentionSetT>(*this, body);
      case RecordType::precious_set:
        return apply_body<journal::PreciousSetT>(*this, body);
      case RecordType::stream_failed:
        return apply_body<journal::StreamFailedT>(*this, body);
      case RecordType::rank_closed:
        return apply_body<journal::RankClosedT>(*this, body);
      case RecordType::segments_left:
        return apply_body<journal::SegmentsLeftT>(*this, body);
      case RecordType::steps_lost:
        return apply_body<journal::StepsLostT>(*this, body);
      case RecordType::none:
        break;
    }
    return fail(ErrorCode::unsupported,
                "record type " + std::to_string(static_cast<int>(type)) + " is not known to this version");
  };
  auto applied = dispatch();
  if (!applied) {
    Error error = std::move(applied.error());
    const std::string record = "record " + std::string(journal::EnumNameRecordType(type)) + " of stream " + name;
    error.where = error.where.empty() ? record : record + ", " + error.where;
    return fail(std::move(error));
  }
  return {};
}

Result<void> StreamState::apply(const journal::GroupFormedT& record) {
  if (group && record.incarnation <= group->incarnation) {
    return contradiction("group " + std::to_string(record.incarnation) + " follows group " +
                         std::to_string(group->incarnation));
  }
  RETURN_IF_ERROR(check_group(record));
  const bool fits = record.withdraws_from ? record.epoch > epoch && *record.withdraws_from <= next_step &&
                                                record.next_step == *record.withdraws_from
                                          : record.epoch == epoch && record.next_step == next_step;
  if (!fits) {
    return contradiction("a group forms for step " + std::to_string(record.next_step) + " of epoch " +
                         std::to_string(record.epoch) + ", but the next is " + std::to_string(next_step) + " of " +
                         std::to_string(epoch));
  }
  std::optional<Retention> kept_rule;
  if (!record.retention.empty()) {
    auto parsed = parse_retention(record.retention);
    if (!parsed) return contradiction(parsed.error().what);
    kept_rule = std::move(*parsed);
  }
  if (record.withdraws_from) withdraw(*record.withdraws_from, record.epoch);
  held_attributes.clear();
  if (kept_rule) retention = std::move(*kept_rule);
  runs.begin(record.run, next_step, status,
             [this](std::uint64_t first, std::uint64_t end) { return keeps_step(first, end); });
  group = record;
  closed_ranks.clear();
  status = StreamStatus::live;
  status_text.clear();
  group_ended_ns = 0;
  return {};
}

Result<void> StreamState::apply(const journal::SegmentsOwnedT& record) {
  if (!group || record.incarnation != group->incarnation || record.rank >= group->ranks) {
    return contradiction("segments for rank " + std::to_string(record.rank) + " of group " +
                         std::to_string(record.incarnation) + ", which is not the stream's");
  }
  for (const std::uint32_t segment : record.segments) owners[segment] = {record.incarnation, record.rank};
  return {};
}

Result<void> StreamState::apply(const journal::SegmentsLeftT& record) {
  const auto unknown =
      std::ranges::find_if(record.segments, [&](std::uint32_t segment) { return !owners.contains(segment); });
  if (unknown != record.segments.end())
    return contradiction("the stream leaves segment " + std::to_string(*unknown) + ", which it does not have");
  for (const std::uint32_t segment : record.segments) owners.erase(segment);
  return {};
}

Result<void> StreamState::check_attributes(const journal::StepCommittedT& record) const {
  for (const auto& part : record.parts) {
    if (!part->attributes || part->attributes->step == record.step) continue;
    const auto held = held_attributes.find(part->rank);
    if (held != held_attributes.end() && is_same_set(held->second, *part->attributes)) continue;
    return contradiction(step_text(record.step) + " refers to an attribute set of step " +
                         std::to_string(part->attributes->step) + ", which rank " + std::to_string(part->rank) +
                         " does not hold");
  }
  return {};
}

Result<void> StreamState::apply(journal::StepCommittedT record) {
  if (!group || record.incarnation != group->incarnation) {
    return contradiction(step_text(record.step) + " comes from group " + std::to_string(record.incarnation) +
                         ", which is not the stream's");
  }
  if (status != StreamStatus::live && status != StreamStatus::failed) {
    return contradiction(step_text(record.step) + " is committed while the stream is " +
                         std::string(to_string(status)));
  }
  const std::uint64_t due = record.leaves_out_from.value_or(record.step);
  if (due != next_step || record.epoch != epoch || (record.leaves_out_from && record.step <= due)) {
    return contradiction(step_text(record.step) + " of epoch " + std::to_string(record.epoch) +
                         " is committed where step " + std::to_string(next_step) + " of epoch " +
                         std::to_string(epoch) + " was next");
  }
  RETURN_IF_ERROR(check_step(record));
  if (record.parts.size() != group->ranks) {
    return contradiction(step_text(record.step) + " has " + std::to_string(record.parts.size()) + " parts of " +
                         std::to_string(group->ranks));
  }
  if (std::ranges::any_of(record.parts, [&](const auto& part) { return part->rank >= group->ranks; })) {
    return contradiction(step_text(record.step) + " has a part of a rank that the group does not have");
  }
  if (record.step == step_number_max) return contradiction("the stream has no more step numbers");
  RETURN_IF_ERROR(check_attributes(record));
  const std::uint64_t number = record.step;
  for (const auto& part : record.parts) {
    if (!part->attributes) {
      held_attributes.erase(part->rank);
    } else if (part->attributes->step == number) {
      held_attributes.insert_or_assign(part->rank, *part->attributes);
    }
  }
  steps.emplace_hint(steps.end(), number,
                     StepState{.committed = std::move(record), .staged = false, .receipt = nullptr});
  next_step = number + 1;
  return {};
}

Result<void> StreamState::apply(const journal::StepsDroppedT& record) {
  for (const journal::StepRange& range : record.ranges) {
    const auto first = steps.lower_bound(range.first());
    if (range.first() > range.last() || first == steps.end() || first->first > range.last()) {
      return contradiction("steps " + std::to_string(range.first()) + " to " + std::to_string(range.last()) +
                           " are dropped, but none of them exists");
    }
  }
  std::uint64_t last_dropped = 0;
  for (const journal::StepRange& range : record.ranges) {
    steps.erase(steps.lower_bound(range.first()), steps.upper_bound(range.last()));
    last_dropped = std::max(last_dropped, range.last());
  }
  // Those before all that is kept would have gone with what was dropped after them.
  const std::uint64_t end = steps.empty() ? last_dropped : std::min(last_dropped, steps.begin()->first);
  std::erase_if(lost, [end](const LostSteps& range) { return !range.precious && range.last < end; });
  return {};
}

Result<void> StreamState::apply(const journal::StepsLostT& record) {
  const auto find_kept = [this](const journal::StepKey& key) {
    const auto kept = steps.find(key.step());
    return kept == steps.end() || kept->second.committed.epoch == key.epoch() ? kept : steps.end();
  };
  for (const journal::StepKey& key : record.steps) {
    if (find_kept(key) == steps.end() && !retired.contains({key.epoch(), key.step()})) {
      return contradiction("step " + std::to_string(key.step()) + " of epoch " + std::to_string(key.epoch()) +
                           " is lost, but does not exist");
    }
  }
  for (const journal::StepKey& key : record.steps) {
    const auto kept = find_kept(key);
    if (kept != steps.end()) {
      remember_lost(key.step(), kept->second.precious());
      retired.insert_or_assign({key.epoch(), key.step()}, std::move(kept->second));
      steps.erase(kept);
    }
    retired.at({key.epoch(), key.step()}).lost = true;
  }
  return {};
}

void StreamState::remember_lost(std::uint64_t number, bool precious) {
  const auto after = std::ranges::upper_bound(lost, number, {}, &LostSteps::first);
  if (after != lost.begin()) {
    LostSteps& before = *std::prev(after);
    // Of two that became one, which had the step between them.
    if (number <= before.last) {
      before.precious = before.precious || precious;
      return;
    }
    if (number == before.last + 1 && precious == before.precious) {
      before.last = number;
      return;
    }
  }
  lost.insert(after, {number, number, precious});
  if (lost.size() > lost_ranges_max) {
    lost[1] = {lost[0].first, lost[1].last, lost[0].precious || lost[1].precious};
    lost.erase(lost.begin());
  }
}

bool StreamState::is_lost(std::uint64_t number) const {
  return !steps.contains(number) && std::ranges::any_of(lost, [number](const LostSteps& range) {
    return range.first <= number && number <= range.last;
  });
}

Result<void> StreamState::apply(const journal::StepsWithdrawnT& record) {
  if (record.epoch <= epoch || record.first > next_step) {
    return contradiction("withdrawal from step " + std::to_string(record.first) + " as epoch " +
                         std::to_string(record.epoch) + ", but the next step is " + std::to_string(next_step) +
                         " of epoch " + std::to_string(epoch));
  }
  withdraw(record.first, record.epoch);
  return {};
}

void StreamState::withdraw(std::uint64_t first, std::uint32_t new_epoch) {
  for (auto step = steps.lower_bound(first); step != steps.end(); step = steps.erase(step)) {
    retired.insert_or_assign({step->second.committed.epoch, step->first}, std::move(step->second));
  }
  runs.withdraw(first);
  std::erase_if(lost, [first](const LostSteps& range) { return range.first >= first; });
  if (!lost.empty() && first > 0) lost.back().last = std::min(lost.back().last, first - 1);
  std::erase_if(epochs, [first](const EpochStart& start) { return start.first_step >= first; });
  epochs.push_back({new_epoch, first});
  if (epochs.size() > epochs_max) {
    epochs[1].first_step = epochs[0].first_step;
    epochs.erase(epochs.begin());
  }
  held_attributes.clear();
  epoch = new_epoch;
  next_step = first;
  durable_next = std::min(durable_next, first);
  if (newest_staged && *newest_staged >= first) {
    newest_staged.reset();
    for (const auto& [number, step] : steps) {
      if (step.staged) newest_staged = number;
    }
  }
}

Result<void> StreamState::apply(const journal::GroupEndedT& record) {
  if (!group || record.incarnation != group->incarnation) {
    return contradiction("group " + std::to_string(record.incarnation) + " ends, but it is not the stream's group");
  }
  const auto ended = static_cast<StreamStatus>(record.status);
  if (ended != StreamStatus::ended && ended != StreamStatus::interrupted) {
    return contradiction("a group ends with status " + std::to_string(record.status));
  }
  if (status != StreamStatus::live && status != StreamStatus::interrupted && status != StreamStatus::failed) {
    return contradiction("group " + std::to_string(record.incarnation) + " ends while the stream is " +
                         std::string(to_string(status)));
  }
  held_attributes.clear();
  // A failed stream stays failed: that is what its readers must learn.
  if (status == StreamStatus::failed) return {};
  status = ended;
  status_text = record.text;
  group_ended_ns = record.time_ns;
  return {};
}

Result<void> StreamState::apply(const journal::DurableToT& record) {
  if (record.epoch != epoch || record.step >= next_step || record.step + 1 < durable_next) {
    return contradiction(step_text(record.step) + " of epoch " + std::to_string(record.epoch) +
                         " becomes durable, but the next step is " + std::to_string(next_step) + " of epoch " +
                         std::to_string(epoch) + ", durable below " + std::to_string(durable_next));
  }
  if (status == StreamStatus::failed) return contradiction("a failed stream's steps become durable");
  durable_next = record.step + 1;
  for (const journal::MemberSyncs& member : record.syncs) {
    std::uint64_t& syncs = member_syncs[member.member()];
    syncs = std::max(syncs, member.syncs());
  }
  return {};
}

Result<void> StreamState::apply(const journal::StepsStagedT& record) {
  if (record.epoch == 0 || record.epoch > epoch)
    return contradiction("steps of epoch " + std::to_string(record.epoch) +
                         " are staged, but the stream has not reached that epoch");
  const auto receipt = record.receipt.empty() ? nullptr : std::make_shared<const std::string>(record.receipt);
  for (const std::uint64_t number : record.steps) {
    // Numbers of a withdrawn step may have been given again since; that one has no receipt.
    const auto step = steps.find(number);
    if (step == steps.end() || step->second.committed.epoch > record.epoch) continue;
    step->second.staged = true;
    step->second.receipt = receipt;
    newest_staged = std::max(newest_staged.value_or(0), number);
  }
  return {};
}

Result<void> StreamState::apply(const journal::CursorMovedT& record) {
  RETURN_IF_ERROR(check_cursor(record, epoch));
  cursors[record.consumer] = {record.epoch, record.position};
  return {};
}

Result<void> StreamState::apply(const journal::CursorRemovedT& record) {
  const auto cursor = cursors.find(record.consumer);
  if (cursor == cursors.end())
    return contradiction("the cursor of consumer " + record.consumer + " is removed, but it does not exist");
  cursors.erase(cursor);
  return {};
}

Result<void> StreamState::apply(const journal::RetentionSetT& record) {
  auto parsed = parse_retention(record.retention);
  if (!parsed) return contradiction(parsed.error().what);
  retention = std::move(*parsed);
  return {};
}

Result<void> StreamState::apply(const journal::PreciousSetT& record) {
  for (const std::uint64_t number : record.steps) {
    if (const auto step = steps.find(number); step != steps.end()) step->second.committed.precious = record.precious;
  }
  return {};
}

Result<void> StreamState::apply(const journal::StreamFailedT& record) {
  status = StreamStatus::failed;
  status_text = record.text;
  return {};
}

Result<void> StreamState::apply(const journal::RankClosedT& record) {
  if (!group || record.incarnation != group->incarnation || record.rank >= group->ranks) {
    return contradiction("rank " + std::to_string(record.rank) + " of group " + std::to_string(record.incarnation) +
                         " closes, but it is not the stream's group");
  }
  closed_ranks.insert(record.rank);
  return {};
}

bool StreamState::is_dense() const noexcept {
  return steps.empty() || next_step - steps.begin()->first == steps.size();
}

std::uint64_t StreamState::committed_since(std::uint64_t number) const {
  if (number >= next_step) return 0;
  std::uint64_t count = next_step - number;
  const bool dense = is_dense();
  for (auto step = steps.lower_bound(number); step != steps.end(); ++step) {
    if (const auto from = step->second.committed.leaves_out_from) count -= step->first - std::max(*from, number);
    // The numbers after it are all there.
    if (dense) break;
  }
  return count;
}

std::uint64_t StreamState::oldest_of_last(std::uint64_t steps_max) const {
  std::uint64_t left = steps_max;
  std::uint64_t end = next_step;
  if (!is_dense()) {
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
      // This one, and those after it that were dropped.
      const std::uint64_t count = end - step->first;
      if (count >= left) break;
      left -= count;
      end = step->second.committed.leaves_out_from.value_or(step->first);
    }
  }
  return end - std::min(end, left);
}

std::uint64_t StreamState::in_this_epoch(std::uint32_t seen, std::uint64_t number) const {
  const auto later = std::ranges::find_if(epochs, [seen](const EpochStart& start) { return start.epoch > seen; });
  return later == epochs.end() ? number : std::min(number, later->first_step);
}

bool StreamState::keeps_step(std::uint64_t first, std::uint64_t end) const {
  const auto step = steps.lower_bound(first);
  return step != steps.end() && step->first < end;
}

std::optional<RunRange> StreamState::steps_of_run(std::string_view run) const {
  auto range = runs.find(run, [this](std::uint64_t first, std::uint64_t end) { return keeps_step(first, end); });
  // A cut after a boot may have taken the steps of the runs after it, and with them where they began.
  if (range && !range->end && group && group->run != run) {
    range->end = next_step;
    range->status = StreamStatus::interrupted;
  }
  return range;
}

void StreamState::retire_done(std::uint32_t step_epoch, std::uint64_t step) {
  retired.erase({step_epoch, step});
}

}  // namespace forebay::storage
