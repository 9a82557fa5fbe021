// SPDX-License-Identifier: Apache-2.0
// A stream's state as a checkpoint record, out and in.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include <forebay/address.h>

#include "base/return_error.h"
#include "base/size_text.h"
#include "base/uuid.h"
#include "storage/framing.h"
#include "storage/record_check.h"
#include "storage/stream_state.h"

namespace forebay::storage {
namespace {

tl::unexpected<Error> bad_checkpoint(std::string what) {
  return fail(ErrorCode::corrupt, "the checkpoint is invalid: " + std::move(what));
}

/// Takes the step out of `kept`, checked by itself. `receipt`: that of the step before it, and afterwards its own.
Result<StepState> step_of(std::unique_ptr<journal::KeptStepT>& kept, std::shared_ptr<const std::string>& receipt) {
  if (!kept->committed) return bad_checkpoint("a step without its commit");
  RETURN_IF_ERROR(check_step(*kept->committed));
  if (kept->receipt.empty()) {
    receipt = nullptr;
  } else if (!receipt || *receipt != kept->receipt) {
    receipt = std::make_shared<const std::string>(std::move(kept->receipt));
  }
  return StepState{
      .committed = std::move(*kept->committed), .staged = kept->staged, .lost = kept->lost, .receipt = receipt};
}

/// At least what the step takes in a checkpoint.
std::uint64_t bytes_of(const StepState& step) {
  constexpr std::uint64_t table_bytes = 192;
  std::uint64_t bytes = table_bytes + (step.receipt ? step.receipt->size() : 0);
  for (const auto& part : step.committed.parts) {
    std::size_t extents = part->metadata.size() + part->extents.size();
    if (part->attributes) extents += part->attributes->extents.size();
    bytes += (part->attributes ? 2 : 1) * table_bytes + extents * sizeof(journal::Extent) +
             part->members.size() * sizeof(journal::MemberStorage);
  }
  return bytes;
}

using KeptSteps = flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<journal::KeptStep>>>;

/// Packs the steps of a map, in its order.
template <class Steps>
KeptSteps pack_steps(flatbuffers::FlatBufferBuilder& builder, const Steps& steps) {
  std::vector<flatbuffers::Offset<journal::KeptStep>> packed;
  packed.reserve(steps.size());
  for (const auto& [key, step] : steps) {
    const auto committed = journal::StepCommitted::Pack(builder, &step.committed);
    const auto receipt =
        step.receipt ? builder.CreateString(*step.receipt) : flatbuffers::Offset<flatbuffers::String>();
    packed.push_back(journal::CreateKeptStep(builder, committed, step.staged, receipt, step.lost));
  }
  return builder.CreateVector(packed);
}

/// Packs the state with these steps.
void finish(flatbuffers::FlatBufferBuilder& builder, const StreamState& state, KeptSteps packed_steps,
            KeptSteps packed_retired) {
  const auto packed_group = state.group ? journal::GroupFormed::Pack(builder, &*state.group) : 0;
  std::vector<flatbuffers::Offset<journal::CursorMoved>> packed_cursors;
  for (const auto& [consumer, cursor] : state.cursors)
    packed_cursors.push_back(
        journal::CreateCursorMoved(builder, builder.CreateString(consumer), cursor.epoch, cursor.position));
  std::vector<flatbuffers::Offset<journal::Owner>> packed_owners;
  for (const auto& [segment, owner] : state.owners)
    packed_owners.push_back(journal::CreateOwner(builder, segment, owner.incarnation, owner.rank));
  std::vector<flatbuffers::Offset<journal::RunSteps>> packed_runs;
  for (const auto& run : state.runs.to_record()) packed_runs.push_back(journal::RunSteps::Pack(builder, run.get()));
  std::vector<flatbuffers::Offset<journal::EpochBegun>> packed_epochs;
  for (const EpochStart& start : state.epochs)
    packed_epochs.push_back(journal::CreateEpochBegun(builder, start.epoch, start.first_step));
  std::vector<flatbuffers::Offset<journal::HeldAttributes>> packed_held;
  for (const auto& [rank, set] : state.held_attributes)
    packed_held.push_back(journal::CreateHeldAttributes(builder, rank, journal::AttributeSet::Pack(builder, &set)));
  std::vector<journal::MemberSyncs> packed_syncs;
  for (const auto& [member, syncs] : state.member_syncs) packed_syncs.emplace_back(member, syncs);
  std::vector<journal::LostSteps> packed_lost;
  for (const LostSteps& range : state.lost) packed_lost.emplace_back(range.first, range.last, range.precious);
  const auto uuid_text = builder.CreateString(state.uuid);
  const auto name_text = builder.CreateString(state.name);
  const auto status_line = builder.CreateString(state.status_text);
  const auto retention_text = builder.CreateString(to_string(state.retention));
  const auto cursor_tables = builder.CreateVector(packed_cursors);
  const auto owner_tables = builder.CreateVector(packed_owners);
  const auto closed = builder.CreateVector(std::vector(state.closed_ranks.begin(), state.closed_ranks.end()));
  builder.Finish(journal::CreateCheckpoint(
      builder, uuid_text, name_text, state.created_ns, state.epoch, static_cast<std::uint8_t>(state.status),
      status_line, packed_group, state.next_step, state.durable_next, retention_text, cursor_tables, owner_tables,
      packed_steps, packed_retired, state.newest_staged ? *state.newest_staged + 1 : 0, closed, state.group_ended_ns,
      packed_runs.empty() ? 0 : builder.CreateVector(packed_runs),
      packed_epochs.empty() ? 0 : builder.CreateVector(packed_epochs),
      packed_held.empty() ? 0 : builder.CreateVector(packed_held),
      packed_syncs.empty() ? 0 : builder.CreateVectorOfStructs(packed_syncs),
      packed_lost.empty() ? 0 : builder.CreateVectorOfStructs(packed_lost)));
}

}  // namespace

std::uint64_t StreamState::checkpoint_bytes() const {
  flatbuffers::FlatBufferBuilder builder;
  finish(builder, *this, 0, 0);
  std::uint64_t bytes = builder.GetSize() + 64;  // with the vectors of steps
  for (const auto& [number, step] : steps) bytes += bytes_of(step);
  for (const auto& [key, step] : retired) bytes += bytes_of(step);
  return bytes;
}

Result<flatbuffers::DetachedBuffer> StreamState::checkpoint_body() const {
  if (const std::uint64_t bytes = checkpoint_bytes(); bytes > frame_body_bytes_max) {
    return fail(ErrorCode::no_space,
                "the journal's checkpoint would take " + size_text(bytes) + ", more than it may; drop steps",
                "stream " + name);
  }
  flatbuffers::FlatBufferBuilder builder(std::size_t{1024} + 192 * (steps.size() + retired.size()));
  const auto packed_steps = pack_steps(builder, steps);
  const auto packed_retired = pack_steps(builder, retired);
  finish(builder, *this, packed_steps, packed_retired);
  return builder.Release();
}

Result<void> StreamState::apply(journal::CheckpointT record) {
  StreamState loaded = fresh(std::move(record.uuid), std::move(record.name), record.created_ns);
  if (!is_uuid(loaded.uuid)) return bad_checkpoint("the stream's uuid is \"" + loaded.uuid + "\"");
  if (!is_valid_name(loaded.name)) return bad_checkpoint("the stream's name is \"" + loaded.name + "\"");
  if (record.epoch == 0) return bad_checkpoint("epoch 0");
  if (!is_stream_status(record.status)) return bad_checkpoint("status " + std::to_string(record.status));
  if (record.durable_next > record.next_step) return bad_checkpoint("more steps are durable than committed");
  if (record.staged_next > record.next_step) return bad_checkpoint("more steps are staged than committed");
  loaded.epoch = record.epoch;
  loaded.status = static_cast<StreamStatus>(record.status);
  loaded.status_text = std::move(record.status_text);
  loaded.group_ended_ns = record.group_ended_ns;
  loaded.next_step = record.next_step;
  loaded.durable_next = record.durable_next;
  for (const journal::MemberSyncs& member : record.syncs) loaded.member_syncs[member.member()] = member.syncs();
  if (record.staged_next > 0) loaded.newest_staged = record.staged_next - 1;
  auto kept_rule = parse_retention(record.retention);
  if (!kept_rule) return bad_checkpoint(kept_rule.error().what);
  loaded.retention = std::move(*kept_rule);

  if (record.group) {
    RETURN_IF_ERROR(check_group(*record.group));
    if (record.group->epoch > record.epoch) return bad_checkpoint("the group's epoch is later than the stream's");
    loaded.group = std::move(*record.group);
    // Journals from before runs were kept name only the last group's.
    if (record.runs.empty() && !loaded.group->run.empty()) {
      const std::uint64_t first = std::min(loaded.group->next_step, loaded.next_step);
      loaded.runs.begin(loaded.group->run, first, StreamStatus::live, [](auto, auto) { return false; });
    }
    for (const std::uint32_t rank : record.closed_ranks) {
      if (rank >= loaded.group->ranks)
        return bad_checkpoint("rank " + std::to_string(rank) + " has closed, but the group has no such rank");
      loaded.closed_ranks.insert(rank);
    }
  } else if (loaded.status == StreamStatus::live) {
    return bad_checkpoint("a live stream without a group");
  }
  if (!record.runs.empty()) {
    auto runs = RunHistory::of_record(record.runs, loaded.next_step);
    if (!runs) return bad_checkpoint(runs.error().what);
    loaded.runs = std::move(*runs);
  }
  for (const auto& begun : record.epochs) {
    const EpochStart before = loaded.epochs.empty() ? EpochStart{1, 0} : loaded.epochs.back();
    const bool follows = begun->epoch > before.epoch && begun->epoch <= loaded.epoch &&
                         (loaded.epochs.empty() || begun->first > before.first_step) &&
                         begun->first <= loaded.next_step;
    if (!follows) return bad_checkpoint("epoch " + std::to_string(begun->epoch) + " begins where it cannot");
    loaded.epochs.push_back({begun->epoch, begun->first});
  }
  if ((loaded.epochs.empty() ? 1 : loaded.epochs.back().epoch) != loaded.epoch)
    return bad_checkpoint("it does not say where epoch " + std::to_string(loaded.epoch) + " begins");
  for (const auto& cursor : record.cursors) {
    RETURN_IF_ERROR(check_cursor(*cursor, loaded.epoch));
    if (!loaded.cursors.emplace(cursor->consumer, CursorState{cursor->epoch, cursor->position}).second) {
      return bad_checkpoint("two cursors of consumer " + cursor->consumer);
    }
  }
  for (const auto& owner : record.owners) {
    if (!loaded.group || owner->incarnation > loaded.group->incarnation)
      return bad_checkpoint("the owner of a segment is a group that does not exist yet");
    if (!loaded.owners.emplace(owner->segment, SegmentOwner{owner->incarnation, owner->rank}).second) {
      return bad_checkpoint("two owners of segment " + std::to_string(owner->segment));
    }
  }
  for (const auto& held : record.held_attributes) {
    if (!held->set || !loaded.group || held->rank >= loaded.group->ranks || loaded.next_step == 0)
      return bad_checkpoint("a rank holds an attribute set, but there is no such rank or set");
    if (auto checked = check_attribute_set(*held->set, loaded.next_step - 1); !checked)
      return bad_checkpoint(checked.error().what);
    if (!loaded.held_attributes.emplace(held->rank, std::move(*held->set)).second)
      return bad_checkpoint("two attribute sets are held by rank " + std::to_string(held->rank));
  }
  for (const journal::LostSteps& range : record.lost) {
    const bool follows = range.first() <= range.last() && range.last() < loaded.next_step &&
                         (loaded.lost.empty() || loaded.lost.back().last < range.first());
    if (!follows) return bad_checkpoint("steps from " + std::to_string(range.first()) + " on cannot be lost");
    loaded.lost.push_back({range.first(), range.last(), range.precious()});
  }
  std::shared_ptr<const std::string> receipt;
  for (auto& kept : record.steps) {
    ASSIGN_OR_RETURN(auto step, step_of(kept, receipt));
    const std::uint64_t number = step.committed.step;
    if (number >= loaded.next_step || step.committed.epoch > loaded.epoch || step.lost)
      return bad_checkpoint("step " + std::to_string(number) + " does not exist yet");
    if (!loaded.steps.empty() && loaded.steps.rbegin()->first >= number)
      return bad_checkpoint("steps are not in order at " + std::to_string(number));
    loaded.steps.emplace_hint(loaded.steps.end(), number, std::move(step));
  }
  for (auto& kept : record.retired) {
    ASSIGN_OR_RETURN(auto step, step_of(kept, receipt));
    const std::pair key(step.committed.epoch, step.committed.step);
    if (key.first > loaded.epoch || (key.first == loaded.epoch && !step.lost))
      return bad_checkpoint("step " + std::to_string(key.second) + " is withdrawn from the current epoch");
    if (!loaded.retired.emplace(key, std::move(step)).second)
      return bad_checkpoint("step " + std::to_string(key.second) + " is withdrawn twice");
  }
  *this = std::move(loaded);
  return {};
}

}  // namespace forebay::storage
