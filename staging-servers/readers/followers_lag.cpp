// SPDX-License-Identifier: Apache-2.0
// How far readers are behind the newest step, for writers that wait for them.
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
  return peer.remote ? fmt::format("{} at {}", name, peer.remote->address)
                     : fmt::format("{} of process {}", name, peer.pid);
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

void Followers::end_with_processes() {
  for (const auto& [number, session] : sessions_) {
    if (wants_every_step(*session)) session->connection().end_with_process();
  }
}

}  // namespace forebay::server
