// SPDX-License-Identifier: Apache-2.0
#include "readers/reader_registry.h"

#include <algorithm>

#include "base/clock.h"
#include "base/return_error.h"
#include "base/uuid.h"
#include "readers/followers.h"
#include "readers/reader_groups.h"
#include "readers/reader_session.h"
#include "space/other_members.h"
#include "space/reservation_space.h"

namespace forebay::server {
namespace {

/// How soon the steps of a reader that has gone while the server was away are free.
constexpr std::int64_t absent_check_ms = 250;
constexpr std::int64_t absent_first_check_ms = 2;

}  // namespace

ReaderRegistry::ReaderRegistry(EventLoop& loop, ReaderPresence presence)
    : loop_(loop),
      serving_(loop),
      presence_(std::move(presence)),
      groups_(std::make_unique<ReaderGroups>(loop, *this)) {}

ReaderRegistry::~ReaderRegistry() = default;

Result<std::unique_ptr<ReaderRegistry>> ReaderRegistry::open(EventLoop& loop, const std::string& root, bool after_boot,
                                                             std::int64_t restart_grace_ms, std::int64_t cut_grace_ms) {
  ASSIGN_OR_RETURN(auto presence, ReaderPresence::open(root));
  std::unique_ptr<ReaderRegistry> registry(new ReaderRegistry(loop, std::move(presence)));
  ASSIGN_OR_RETURN(auto pins, PinTable::open(root + "/pins", after_boot, registry->presence_, registry->before_));
  registry->pins_ = std::move(pins);
  registry->restart_grace_ms_ = restart_grace_ms;
  registry->cut_grace_ms_ = cut_grace_ms;
  if (!after_boot) registry->ranks_before_ = registry->presence_.ranks();
  return registry;
}

std::uint64_t ReaderRegistry::take_number(std::uint64_t wanted) {
  while (!numbers_.insert(wanted).second) wanted = random_number();
  return wanted;
}

bool ReaderRegistry::held_by_absent(const std::string& stream_uuid, std::uint32_t epoch, std::uint64_t step) const {
  return std::ranges::any_of(before_, [&](const PinTable::Absent& reader) {
    return reader.stream_uuid == stream_uuid &&
           std::ranges::find(reader.keys, std::pair(epoch, step)) != reader.keys.end();
  });
}

void ReaderRegistry::place_absent(bool all_read) {
  std::set<std::uint64_t> sessions;
  for (const PinTable::Absent& reader : std::exchange(before_, {})) {
    const auto found = std::ranges::find_if(
        followers_, [&](const Followers* followers) { return followers->state().uuid == reader.stream_uuid; });
    if (found == followers_.end() && !all_read) {
      // Its stream may be one that could not be read. A later start can: its steps must not be dropped under their
      // readers then.
      sessions.insert(reader.session);
      UnplacedReader& unplaced = unplaced_[reader.session];
      if (reader.pid != 0) unplaced.process.emplace(reader.pid);
      unplaced.keys = reader.keys;
      continue;
    }
    if (found == followers_.end()) {
      for (const auto& [epoch, step] : reader.keys) pins_->remove(reader.session, epoch, step);
      continue;
    }
    (*found)->pins().hold_for_absent(reader.session, reader.keys);
    if (reader.pid == 0) {
      watch_mapping(reader.session, 0, reader.stream_uuid, {});
    } else {
      watch_absent(reader.session, reader.pid);
    }
    sessions.insert(reader.session);
  }
  for (const auto& [rank, session] : ranks_before_) {
    if (sessions.contains(session) || presence_.state(session) != ReaderPresence::State::present) continue;
    // It holds no step, but its group waits for it as long as it lives.
    sessions.insert(session);
    watch_absent(session, 0);
  }
  presence_.keep_only(sessions);
}

void ReaderRegistry::add_remote(ReaderSession& session) {
  remote_sessions_.insert_or_assign(session.number, &session);
}

void ReaderRegistry::remove_remote(const ReaderSession& session) {
  const auto found = remote_sessions_.find(session.number);
  if (found != remote_sessions_.end() && found->second == &session) remote_sessions_.erase(found);
}

void ReaderRegistry::end_connection_before(std::uint64_t session, const ReaderSession& successor) {
  const auto found = remote_sessions_.find(session);
  if (found != remote_sessions_.end() && found->second->is_succeeded_by(successor)) found->second->was_cut();
}

std::vector<std::pair<std::uint32_t, bool>> ReaderRegistry::ranks_of_before(std::uint64_t group_number) const {
  std::vector<std::pair<std::uint32_t, bool>> ranks;
  for (auto known = ranks_before_.lower_bound({group_number, 0});
       known != ranks_before_.end() && known->first.first == group_number; ++known)
    ranks.emplace_back(known->first.second, presence_.state(known->second) == ReaderPresence::State::present);
  return ranks;
}

void ReaderRegistry::watch_absent(std::uint64_t session, pid_t pid) {
  watch(session, {ReaderProcess(pid)});
}

void ReaderRegistry::watch_cut(std::uint64_t session) {
  watch(session, {ReaderProcess(0), monotonic_ns() + cut_grace_ms_ * 1'000'000});
}

void ReaderRegistry::watch_mapping(std::uint64_t session, pid_t pid, const std::string& stream_uuid,
                                   std::set<MemberPresence> presences) {
  watch(session, {ReaderProcess(pid), {}, stream_uuid, std::move(presences), monotonic_ns()});
}

void ReaderRegistry::watch(std::uint64_t session, AbsentReader reader) {
  absent_.insert_or_assign(session, std::move(reader));
  // Neither a lock that ends nor the last handle of a reader that lives on says so by itself.
  // A killed process's connection may be seen to end just before its lock, so the first look is soon.
  if (!std::exchange(absent_check_set_, true))
    loop_.at(monotonic_ns() + absent_first_check_ms * 1'000'000, [this] { check_absent(); });
}

void ReaderRegistry::check_absent() {
  std::vector<std::uint64_t> gone;
  for (const auto& [session, reader] : absent_) {
    if (is_gone(session, reader)) gone.push_back(session);
  }
  for (const std::uint64_t session : gone) {
    absent_.erase(session);
    presence_.forget(session);
    for (Followers* followers : followers_) followers->pins().absent_is_gone(session);
  }
  absent_check_set_ = !absent_.empty();
  if (absent_check_set_) loop_.at(monotonic_ns() + absent_check_ms * 1'000'000, [this] { check_absent(); });
}

bool ReaderRegistry::is_gone(std::uint64_t session, const AbsentReader& reader) const {
  if (reader.until_ns) return monotonic_ns() >= *reader.until_ns;
  if (reader.maps_of_stream.empty()) return is_gone(session, reader.process);
  return maps_nothing(reader) && presence_.state(session) != ReaderPresence::State::present;
}

bool ReaderRegistry::maps_nothing(const AbsentReader& reader) const {
  const auto found = std::ranges::find_if(
      followers_, [&](const Followers* followers) { return followers->state().uuid == reader.maps_of_stream; });
  const OtherMembers* const others = found == followers_.end() ? nullptr : (*found)->space().segments().others();
  if (others == nullptr) return true;
  if (reader.presences.empty()) return others->earlier_are_gone();
  return std::ranges::all_of(reader.presences, [&](const MemberPresence& mapped) {
    return others->is_gone(mapped.first, mapped.second, reader.since_ns);
  });
}

bool ReaderRegistry::is_gone(std::uint64_t session, const ReaderProcess& process) const {
  const auto state = presence_.state(session);
  if (state != ReaderPresence::State::unknown) return state == ReaderPresence::State::gone;
  return process.has_ended();
}

void ReaderRegistry::forget_gone_unplaced(bool earlier_are_gone) {
  for (auto reader = unplaced_.begin(); reader != unplaced_.end();) {
    const std::uint64_t session = reader->first;
    const auto& process = reader->second.process;
    if (process ? !is_gone(session, *process) : !earlier_are_gone) {
      ++reader;
      continue;
    }
    for (const auto& [epoch, step] : reader->second.keys) pins_->remove(session, epoch, step);
    presence_.forget(session);
    reader = unplaced_.erase(reader);
  }
}

void ReaderRegistry::add_stream_waiter(Follower& reader, const std::string& path) {
  stream_waiters_[path].emplace(reader.number, &reader);
}

void ReaderRegistry::remove_stream_waiter(Follower& reader, const std::string& path) {
  const auto waiting = stream_waiters_.find(path);
  if (waiting == stream_waiters_.end()) return;
  waiting->second.erase(reader.number);
  if (waiting->second.empty()) stream_waiters_.erase(waiting);
}

std::vector<AwaitedStream> ReaderRegistry::awaited_streams(const std::string& reservation) const {
  const std::string prefix = reservation + "/";
  std::vector<AwaitedStream> awaited;
  for (auto entry = stream_waiters_.lower_bound(prefix);
       entry != stream_waiters_.end() && entry->first.starts_with(prefix) && awaited.size() < awaited_told_max;
       ++entry) {
    awaited.push_back({entry->first.substr(prefix.size()), {}});
    auto& waits = awaited.back().waits;
    for (const auto& [number, reader] : entry->second) {
      if (waits.size() == waits_told_max) break;
      waits.push_back(reader_wait(*reader, StreamWait::Kind::stream, "a writer to make the stream"));
    }
  }
  return awaited;
}

void ReaderRegistry::stream_made(const std::string& path) {
  loop_.post([this, path] {
    const auto waiting = stream_waiters_.extract(path);
    if (!waiting) return;
    for (const auto& [number, reader] : waiting.mapped()) reader->stream_made();
  });
}

void ReaderRegistry::writer_refused(const std::string& path, const std::string& run, const std::string& why) {
  const auto found = stream_waiters_.find(path);
  if (found == stream_waiters_.end()) return;
  // Who is told leaves them.
  const auto waiting = found->second;
  for (const auto& [number, reader] : waiting) reader->writer_refused(run, why);
}

void ReaderRegistry::reservation_destroyed(const std::string& reservation) {
  const std::string prefix = reservation + "/";
  std::vector<Follower*> gone;
  for (auto entry = stream_waiters_.lower_bound(prefix);
       entry != stream_waiters_.end() && entry->first.starts_with(prefix); entry = stream_waiters_.erase(entry)) {
    for (const auto& [number, reader] : entry->second) gone.push_back(reader);
  }
  for (Follower* reader : gone) reader->reservation_destroyed();
}

}  // namespace forebay::server
