// SPDX-License-Identifier: Apache-2.0
// How far readers are behind the newest step, for writers that wait for them; and which readers wait.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "readers/followers.h"
#include "readers/reader_registry.h"
#include "readers/reader_session.h"

namespace forebay::server {
namespace {

// Who skips to the newest step wants none of those between; to whose run is over, no more come.
bool wants_every_step(const Follower& reader) {
  return reader.follow && !reader.latest_only && !reader.run_end && !reader.closing();
}

}  // namespace

std::optional<ReaderLag> Followers::furthest_behind() const {
  std::optional<ReaderLag> last;
  for (const auto& [number, reader] : readers_) {
    if (!wants_every_step(*reader)) continue;
    const std::uint64_t limit = visible_limit(*reader);
    const std::uint64_t wanted = sharing_.shares(*reader) ? sharing_.oldest_wanted(*reader) : reader->position;
    const std::uint64_t steps = limit > wanted ? state_.committed_since(wanted) - state_.committed_since(limit) : 0;
    if (!last || steps > last->steps) last = ReaderLag{steps, reader->describe()};
  }
  return last;
}

void Followers::describe_waits(std::vector<StreamWait>& waits) const {
  writer_waits_.describe_waits(waits);
  for (const auto& [number, reader] : readers_) {
    if (waits.size() >= waits_told_max) return;
    if (!reader->is_asking() || reader->closing()) continue;
    const std::uint64_t limit = taken_limit(*reader);
    // It may be one that others of its consumer have left to it.
    const std::uint64_t step = std::max(reader->position, limit);
    std::string wanted = fmt::format("step {}", step);
    if (!reader->absence.empty()) {
      wanted = reader->absence;
    } else if (step < state_.next_step) {
      wanted += " to be durable";
    } else if (state_.status == StreamStatus::interrupted) {
      wanted += ", for a restart of its writer";
    } else if (state_.status == StreamStatus::waiting) {
      wanted += ", for a writer";
    }
    const auto kind = reader->absence.empty() ? StreamWait::Kind::step : StreamWait::Kind::server;
    waits.push_back(reader_wait(*reader, kind, reader->describe_wait(wanted)));
  }
}

void Followers::end_with_processes() {
  for (const auto& [number, reader] : readers_) {
    if (wants_every_step(*reader)) reader->end_with_process();
  }
}

}  // namespace forebay::server
