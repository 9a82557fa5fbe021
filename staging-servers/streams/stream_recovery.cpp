// SPDX-License-Identifier: Apache-2.0
#include "streams/stream_recovery.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "base/fail_point.h"
#include "base/log.h"
#include "base/return_error.h"
#include "storage/framing.h"
#include "streams/step_check.h"
#include "streams/stream.h"

namespace forebay::server {
namespace {

/// Takes all of the space; nothing if another holds any of it.
bool take_all(ReservationSpace& space, const std::vector<Extent>& extents) {
  for (auto extent = extents.begin(); extent != extents.end(); ++extent) {
    if (space.map().take(*extent)) continue;
    for (auto taken = extents.begin(); taken != extent; ++taken) space.map().release(*taken);
    return false;
  }
  return true;
}

/// Takes the space of a step, and of those of its attribute sets that no other user has taken it for; nothing if
/// another holds any of it.
bool take_step(ReservationSpace& space, AttributeSets& sets, const storage::StepState& step) {
  std::vector<Extent> extents = extents_of(step.committed);
  const auto used = sets_of(step.committed);
  for (const auto* set : used) {
    if (!sets.contains(*set)) std::ranges::move(extents_of(*set), std::back_inserter(extents));
  }
  if (!take_all(space, extents)) return false;
  for (const auto* set : used) sets.add(*set);
  return true;
}

void release_step(ReservationSpace& space, AttributeSets& sets, const storage::StepState& step) {
  std::vector<Extent> extents = extents_of(step.committed);
  for (const auto* set : sets_of(step.committed)) {
    if (sets.remove(*set)) std::ranges::move(extents_of(*set), std::back_inserter(extents));
  }
  for (const Extent& extent : extents) space.map().release(extent);
}

/// The same for the sets that ranks hold for their next step. Those whose space is another's are forgotten: a step that
/// refers to one is refused.
void take_held_sets(ReservationSpace& space, AttributeSets& sets, storage::StreamState& state) {
  if (state.status != StreamStatus::live) state.held_attributes.clear();
  std::erase_if(state.held_attributes, [&](const auto& entry) {
    const journal::AttributeSetT& set = entry.second;
    if (!sets.contains(set) && !take_all(space, extents_of(set))) {
      log::warning("stream {}/{}: the attributes that rank {} wrote with step {} are gone", space.reservation(),
                   state.name, entry.first, set.step);
      return true;
    }
    sets.add(set);
    return false;
  });
}

/// Withdrawn steps that nobody holds were given back before the restart, and their space may be somebody else's now.
void forget_released(const StreamServices& services, storage::StreamState& state) {
  std::erase_if(state.retired, [&](const auto& entry) {
    return !services.readers.held_by_absent(state.uuid, entry.first.first, entry.first.second);
  });
}

/// Space that steps below `end` hold. corrupt, with nothing taken, if two of them claim the same bytes.
Result<void> take_space(const StreamServices& services, ReservationSpace& space, storage::StreamState& state,
                        AttributeSets& sets, std::uint64_t end) {
  forget_released(services, state);
  std::vector<const storage::StepState*> steps;
  for (auto step = state.steps.begin(); step != state.steps.lower_bound(end); ++step) steps.push_back(&step->second);
  for (const auto& [key, step] : state.retired) steps.push_back(&step);
  for (auto step = steps.begin(); step != steps.end(); ++step) {
    if (take_step(space, sets, **step)) continue;
    for (auto taken = steps.begin(); taken != step; ++taken) release_step(space, sets, **taken);
    return fail(
        ErrorCode::corrupt,
        fmt::format("step {} claims space that another step holds or that does not exist", (*step)->committed.step),
        fmt::format("stream {}/{}", space.reservation(), state.name));
  }
  return {};
}

/// What is cut from the journal's end may have dropped steps whose space is another's by now: they are dropped again,
/// and in one with the cut, for once it is made no start could tell that these steps give way.
Result<void> drop_overtaken(ReservationSpace& space, ReadStream& read, std::uint64_t end) {
  journal::StepsDroppedT dropped;
  for (auto step = read.state.steps.begin(); step != read.state.steps.lower_bound(end); ++step) {
    if (take_step(space, read.sets, step->second)) {
      release_step(space, read.sets, step->second);
    } else {
      dropped.ranges.emplace_back(step->first, step->first);
    }
  }
  if (dropped.ranges.empty()) return {};
  log::warning(
      "stream {}/{}: {} steps were dropped by records that are lost, and their space belongs to another stream",
      space.reservation(), read.state.name, dropped.ranges.size());
  RETURN_IF_ERROR(read.state.apply(dropped));
  const auto checkpoint = read.state.checkpoint_body();
  auto written = checkpoint ? read.journal->roll({checkpoint->data(), checkpoint->size()})
                            : Result<void>(fail(checkpoint.error()));
  if (written) read.waste.begin_file(read.state.steps.size() + read.state.retired.size(), checkpoint->size());
  if (!written && written.error().code == ErrorCode::no_space) {
    // A record has room in what the journal has, on a full disk, too.
    const auto body = protocol::pack(dropped);
    written = read.journal->append(storage::RecordType::steps_dropped, {body.data(), body.size()});
    if (written) written = read.journal->sync();
  }
  return written;
}

/// Steps from `first` on are no more, in what this server knows; no record says so yet.
void forget(ReservationSpace& space, storage::StreamState& state, AttributeSets& sets, std::uint64_t first,
            bool space_taken) {
  for (auto step = state.steps.lower_bound(first); step != state.steps.end(); step = state.steps.erase(step)) {
    if (space_taken) release_step(space, sets, step->second);
  }
  state.next_step = first;
}

/// Space of the steps behind the durable watermark, which a loss of power may have called back from the dead: those
/// from the first whose space is another's by now are forgotten.
void take_space_not_durable(ReservationSpace& space, storage::StreamState& state, AttributeSets& sets) {
  for (auto step = state.steps.lower_bound(state.durable_next); step != state.steps.end(); ++step) {
    if (take_step(space, sets, step->second)) continue;
    log::warning(
        "stream {}/{}: step {} was dropped before power was lost, and its space belongs to another stream: cut there",
        space.reservation(), state.name, step->first);
    forget(space, state, sets, step->first, false);
    return;
  }
}

Result<void> check_extents(const SegmentLayout& layout, const std::vector<journal::Extent>& extents,
                           const std::string& where) {
  for (const journal::Extent& extent : extents) {
    const auto member = layout.member_of(extent.segment());
    if (!member || *member == extent.member()) continue;
    return fail(ErrorCode::corrupt,
                fmt::format("an extent names member {} of the reservation, but segment {} lies on {}", extent.member(),
                            extent.segment(), *member),
                where);
  }
  return {};
}

/// corrupt if a step's extent, or a held set's, names a member that does not have its segment.
Result<void> check_members(const SegmentLayout& layout, const storage::StreamState& state) {
  const auto check_all = [&](const journal::StepCommittedT& step) -> Result<void> {
    for (const auto& part : step.parts) {
      const std::string where = fmt::format("step {}, rank {}", step.step, part->rank);
      RETURN_IF_ERROR(check_extents(layout, part->extents, where));
      RETURN_IF_ERROR(check_extents(layout, part->metadata, where));
      if (part->attributes) RETURN_IF_ERROR(check_extents(layout, part->attributes->extents, where));
    }
    return {};
  };
  for (const auto& [number, step] : state.steps) {
    RETURN_IF_ERROR(check_all(step.committed));
  }
  for (const auto& [key, step] : state.retired) {
    RETURN_IF_ERROR(check_all(step.committed));
  }
  for (const auto& [rank, set] : state.held_attributes) {
    RETURN_IF_ERROR(check_extents(layout, set.extents, fmt::format("attributes of rank {}", rank)));
  }
  return {};
}

auto check(ReservationSpace& space, CheckedSets& sets, const storage::StepState& step) {
  const Segments& segments = space.segments();
  return check_step(
      step.committed, segments.layout(), segments.record().segment_bytes,
      [&](std::uint32_t segment) { return segments.open_file(segment, OpenMode::read); }, sets, BlocksRead::home);
}

/// The first step behind the durable watermark that power loss has damaged. An error if that cannot be told now: a disk
/// that does not answer, or a server without descriptors, has not lost a step.
Result<std::optional<std::uint64_t>> first_damaged(ReservationSpace& space, const storage::StreamState& state) {
  const std::string where = "stream " + space.reservation() + "/" + state.name;
  CheckedSets sets;
  for (auto step = state.steps.lower_bound(state.durable_next); step != state.steps.end(); ++step) {
    auto checked = check(space, sets, step->second);
    if (!checked && checked.error().code != ErrorCode::corrupt) {
      // Never not_found, which says of a stream that it was not made whole.
      return fail(ErrorCode::io_error,
                  fmt::format("cannot tell whether step {} survived the loss of power: {}", step->first,
                              checked.error().message()),
                  where);
    }
    if (!checked) {
      log::warning("{}: step {} did not survive the loss of power: {}", where, step->first, checked.error().message());
      return step->first;
    }
    if (checked->blocks_without_checksum > 0) {
      log::warning("{}: step {} has no checksums and was not durable: cut there", where, step->first);
      return step->first;
    }
  }
  return std::nullopt;
}

/// Takes the space of a step that a damaged journal tells of; false if it is another's, or what lies there is not
/// whole.
bool take_if_whole(ReservationSpace& space, AttributeSets& sets, CheckedSets& checked_sets, const std::string& stream,
                   const storage::StepState& step) {
  const std::uint64_t number = step.committed.step;
  if (!take_step(space, sets, step)) {
    log::warning("stream {}/{}: step {} was dropped, and its space belongs to another stream", space.reservation(),
                 stream, number);
    return false;
  }
  // Dropped, and written over since by what is gone as well.
  const auto checked = check(space, checked_sets, step);
  if (checked || checked.error().code != ErrorCode::corrupt) return true;
  log::warning("stream {}/{}: step {} is left out: {}", space.reservation(), stream, number, checked.error().message());
  release_step(space, sets, step);
  return false;
}

/// A stream whose journal is damaged, so that nothing can be added: its steps may have been dropped by records that are
/// gone, and those that power loss has damaged cannot be cut on disk. Takes what is nobody else's and whole.
Result<void> take_what_is_left(const StreamServices& services, ReservationSpace& space, storage::StreamState& state,
                               AttributeSets& sets, bool after_boot) {
  forget_released(services, state);
  state.held_attributes.clear();
  for (auto step = state.retired.begin(); step != state.retired.end();)
    step = take_step(space, sets, step->second) ? std::next(step) : state.retired.erase(step);
  CheckedSets checked_sets;
  for (auto step = state.steps.begin(); step != state.steps.end();) {
    const bool whole = take_if_whole(space, sets, checked_sets, state.name, step->second);
    step = whole ? std::next(step) : state.steps.erase(step);
  }
  if (!after_boot) return {};
  const auto damaged = first_damaged(space, state);
  if (!damaged) {
    forget(space, state, sets, 0, true);
    for (const auto& [key, step] : state.retired) release_step(space, sets, step);
    return fail(damaged.error());
  }
  if (*damaged) forget(space, state, sets, **damaged, true);
  return {};
}

Result<void> close_after_boot(Stream& stream) {
  ASSIGN_OR_RETURN(const auto damaged, first_damaged(stream.space(), stream.state()));
  // Commits may be lost with the journal's tail, without a trace: what is written from now on must not go by their
  // names.
  const std::uint64_t first = damaged.value_or(stream.state().next_step);
  RETURN_IF_ERROR(stream.withdraw(first));
  if (stream.state().status == StreamStatus::live) {
    return stream.group_ended(stream.state().group->incarnation, StreamStatus::interrupted,
                              "the machine was restarted while the stream was written");
  }
  return {};
}

}  // namespace

Result<ReadStream> read_stream(const StreamServices& services, ReservationSpace& space, const std::string& name,
                               bool after_boot) {
  const std::string where = "stream " + space.reservation() + "/" + name;
  ReadStream read;
  storage::JournalOptions options = space.journal_room().options();
  options.same_boot = !after_boot;
  auto journal = storage::Journal::open(
      services.device, services.store.stream_directory(space.segments().record().id, name),
      [&read](storage::RecordType type, std::span<const std::byte> body) {
        auto applied = read.state.apply(type, body);
        if (type == storage::RecordType::checkpoint) {
          read.waste.begin_file(read.state.steps.size() + read.state.retired.size(), body.size());
        } else {
          read.waste.add(type, storage::frame_bytes(body.size()));
        }
        return applied;
      },
      read.recovery, options);
  if (!journal) return fail(std::move(journal.error()));
  read.journal = std::move(*journal);
  fail_point("server.recover.after_replay");
  // The last server may have died before it synced what it wrote: nothing may be called durable before that is done.
  RETURN_IF_ERROR(read.journal->sync());
  if (read.recovery.bytes_cut > 0)
    log::warning("{}: {} bytes of a torn record, and {} whole records behind it, are cut from the journal's end", where,
                 read.recovery.bytes_cut, read.recovery.records_cut);
  for (const auto& [segment, owner] : read.state.owners) {
    if (segment >= space.map().segment_count())
      return fail(ErrorCode::corrupt, fmt::format("segment {} does not exist", segment), where);
  }
  if (auto checked = check_members(space.segments().layout(), read.state); !checked) {
    checked.error().where = where + ", " + checked.error().where;
    return fail(std::move(checked.error()));
  }
  return read;
}

Result<void> take_certain_space(const StreamServices& services, ReservationSpace& space, ReadStream& read,
                                bool after_boot) {
  const std::uint64_t end = after_boot ? read.state.durable_next : read.state.next_step;
  if (read.recovery.bytes_cut > 0) {
    RETURN_IF_ERROR(drop_overtaken(space, read, end));
  }
  RETURN_IF_ERROR(take_space(services, space, read.state, read.sets, end));
  // After a boot no rank comes back.
  if (after_boot) read.state.held_attributes.clear();
  take_held_sets(space, read.sets, read.state);
  return {};
}

Result<std::unique_ptr<Stream>> recover_stream(const StreamServices& services, ReservationSpace& space,
                                               std::uint64_t number, ReadStream read, bool after_boot) {
  auto& [state, journal, recovery, waste, sets] = read;
  const std::string where = "stream " + space.reservation() + "/" + state.name;
  const bool damaged = recovery.damaged;
  if (damaged) {
    RETURN_IF_ERROR(take_what_is_left(services, space, state, sets, after_boot));
  } else {
    // All streams have the space that is certainly theirs: what gives way to them is told from here on by records.
    RETURN_IF_ERROR(journal->cut_tail());
    if (after_boot) take_space_not_durable(space, state, sets);
  }
  auto stream =
      std::make_unique<Stream>(services, space, number, std::move(state), std::move(journal), waste, std::move(sets));
  for (const auto& [segment, owner] : stream->state().owners) {
    // Of several streams the one that still writes has the say; an older owner only ever reads its steps there.
    const bool lives = !damaged && stream->state().group && stream->state().group->incarnation == owner.incarnation &&
                       stream->state().status == StreamStatus::live;
    if (lives || !space.map().owner(segment))
      space.map().set_owner(segment, Owner{stream->number(), owner.incarnation, owner.rank});
  }
  if (damaged) {
    stream->set_damaged(recovery.damage);
    return stream;
  }
  if (recovery.bytes_cut > 0) stream->set_end_cut();
  if (after_boot) {
    if (auto closed = close_after_boot(*stream); !closed) {
      for (const Extent& extent : stream->extents_of_steps()) space.release(extent);
      stream->removed();
      return fail(std::move(closed.error()));
    }
  }
  // A crash may have come between a withdrawal and the cursors' way back: consumers would miss the steps to come.
  stream->followers().cursors().set_back(stream->state().next_step);
  const StreamStatus status = stream->state().status;
  if (status == StreamStatus::live) stream->group().expect_rejoin(services.restart_grace_ms);
  if (status == StreamStatus::interrupted && stream->state().group) stream->resume_grace();
  return stream;
}

}  // namespace forebay::server
