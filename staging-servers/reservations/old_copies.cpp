// SPDX-License-Identifier: Apache-2.0
#include "reservations/old_copies.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/log.h"
#include "reservations/reservation.h"
#include "streams/stream.h"

namespace forebay::server {

void OldCopies::check(std::uint16_t member, std::uint64_t server_run) {
  Check& check = checks_[member];
  // Its server was started anew, maybe with another copy still.
  if (check.reads) return;
  if (check.server_run != server_run) {
    check = Check();
    check.server_run = server_run;
  }
  if (check.has_read) {
    if (lose(member, check)) {
      checks_.erase(member);
      reservation_.other_members()->take_for_current(member);
    }
    return;
  }
  Segments& segments = reservation_.space().segments();
  if (!segments.all_known()) {
    wait(member, check, "a stream of the reservation cannot be opened, so its steps are not known");
    return;
  }
  // What it was waiting for may be there by now.
  const auto is_absent = [&](std::uint16_t other) {
    return segments.others()->absence(other) != nullptr && segments.others()->old_copy(other) == nullptr;
  };
  if (!std::ranges::any_of(check.absent, is_absent)) read(member, check);
}

std::vector<StepToRead> OldCopies::steps_on(std::uint16_t member) {
  std::vector<StepToRead> found;
  const Segments& segments = reservation_.space().segments();
  const auto paths = paths_of(segments);
  const auto lies_there = [&](const Extent& extent) { return segments.layout().member_of(extent.segment) == member; };
  for (auto& [name, stream] : reservation_.streams()) {
    const auto add = [&, &stream_name = name](const storage::StepState& step) {
      if (std::ranges::any_of(extents_of(step.committed), lies_there))
        found.emplace_back(segments, paths, stream_name, step);
    };
    for (const auto& [number, step] : stream->state().steps) add(step);
    // Those that were withdrawn are read on by who holds them.
    for (const auto& [key, step] : stream->state().retired)
      if (!step.lost) add(step);
  }
  return found;
}

void OldCopies::read(std::uint16_t member, Check& check) {
  check.reads = true;
  check.lost.clear();
  check.waits_for.clear();
  check.absent.clear();
  auto steps = steps_on(member);
  check.steps = steps.size();
  log::info("reservation {}: member {}: {} steps that have a part there are checked", reservation_.name(), member,
            steps.size());
  StepReading::Asker asker;
  asker.others = [this](const StepToRead&) { return reservation_.space().segments().others(); };
  asker.told = [this, &check](const StepToRead& step, const StepRead& found) { take(check, step, found); };
  asker.done = [this, member, &check] { all_read(member, check); };
  StepReading::begin({services_.loop, services_.device, services_.errand_worker}, std::move(steps), member, alive_,
                     std::move(asker));
}

void OldCopies::take(Check& check, const StepToRead& step, const StepRead& found) {
  std::string why;
  if (!found.check && found.check.error().code != ErrorCode::corrupt) {
    // A disk that does not answer, or a server without descriptors.
    check.waits_for = found.check.error().message();
    return;
  }
  if (!found.check) {
    why = found.check.error().message();
  } else if (found.without_checksum > 0) {
    why = "a block has no checksum, so nobody knows whether it is what it was";
  } else {
    for (const auto& [member, reason] : found.not_asked) {
      check.waits_for = reason;
      check.absent.insert(member);
    }
    return;
  }
  check.lost[step.stream].emplace(StepKey{step.epoch, step.step}, std::move(why));
}

void OldCopies::all_read(std::uint16_t member, Check& check) {
  check.reads = false;
  if (!check.waits_for.empty()) {
    wait(member, check, check.waits_for);
    return;
  }
  check.has_read = true;
  std::size_t lost = 0;
  for (const auto& [stream, steps] : check.lost) lost += steps.size();
  log::warning("reservation {}: member {}: of {} steps that have a part in its older copy, {} are not what they were",
               reservation_.name(), member, check.steps, lost);
}

bool OldCopies::lose(std::uint16_t member, Check& check) {
  for (auto entry = check.lost.begin(); entry != check.lost.end();) {
    Stream* const stream = reservation_.find_stream(entry->first);
    if (stream == nullptr || stream->lose(entry->second)) {
      entry = check.lost.erase(entry);
    } else {
      ++entry;
    }
  }
  if (check.lost.empty()) return true;
  wait(member, check, "the journal of a stream cannot say that a step is lost");
  return false;
}

void OldCopies::wait(std::uint16_t member, Check& check, const std::string& why) {
  if (std::exchange(check.told, why) != why)
    log::warning("reservation {}: member {} stays unavailable: {}", reservation_.name(), member, why);
}

}  // namespace forebay::server
