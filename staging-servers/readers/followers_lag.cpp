// SPDX-License-Identifier: Apache-2.0
// How far readers are behind the newest step, for writers that wait for them; and which readers wait.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "readers/followers.h"
#include "readers/reader_session.h"

namespace forebay::server {
namespace {

// Who skips to the newest step wants none of those between; to whose run is over, no more come.
bool wants_every_step(const ReaderSession& session) {
  return session.follow && !session.latest_only && !session.run_end && !session.connection().closing();
}

std::string describe(const ReaderSession& session) {
  const Peer& peer = session.connection().peer();
  const std::string name =
      session.consumer.empty() ? std::string("the reader") : fmt::format("consumer \"{}\"", session.consumer);
  return fmt::format("{} {} {}", name, peer.remote ? "at" : "of", peer.describe());
}

}  // namespace

std::optional<ReaderLag> Followers::furthest_behind() const {
  std::optional<ReaderLag> last;
  for (const auto& [number, session] : sessions_) {
    if (!wants_every_step(*session)) continue;
    const std::uint64_t limit = visible_limit(*session);
    const std::uint64_t wanted = sharing_.shares(*session) ? sharing_.oldest_wanted(*session) : session->position;
    const std::uint64_t steps = limit > wanted ? limit - wanted : 0;
    if (!last || steps > last->steps) last = ReaderLag{steps, describe(*session)};
  }
  return last;
}

void Followers::describe_waits(std::vector<StreamWait>& waits) const {
  writer_waits_.describe_waits(waits);
  for (const auto& [number, session] : sessions_) {
    if (!session->wait_request || session->connection().closing()) continue;
    const std::uint64_t limit = taken_limit(*session);
    // It may be one that others of its consumer have left to it.
    const std::uint64_t step = std::max(session->position, limit);
    std::string wanted = fmt::format("step {}", step);
    if (step < state_.next_step) {
      wanted += " to be durable";
    } else if (state_.status == StreamStatus::interrupted) {
      wanted += ", for a restart of its writer";
    } else if (state_.status == StreamStatus::waiting) {
      wanted += ", for a writer";
    }
    waits.push_back(reader_wait(*session, StreamWait::Kind::step, std::move(wanted), session->wait_since_ns));
  }
}

void Followers::end_with_processes() {
  for (const auto& [number, session] : sessions_) {
    if (wants_every_step(*session)) session->connection().end_with_process();
  }
}

}  // namespace forebay::server
