// SPDX-License-Identifier: Apache-2.0
#include "members/member_share.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/fail_point.h"
#include "base/return_error.h"
#include "loop/connection.h"
#include "members/member_session.h"

namespace forebay::server {
namespace {

/// A home says that it lives each second. Without it nobody knows who may still read.
constexpr std::int64_t silence_ns_max = 60'000'000'000;
constexpr std::int64_t closing_pause_ns = 5'000'000;
constexpr std::size_t syncs_bytes = 24;
/// Users of whom it is known apart up to which number their permits are void.
constexpr std::size_t readers_known_max = 1024;

/// In place and in one block: whatever a loss of power leaves of it is the old number or the new one.
Result<void> note_syncs(Device& device, const std::string& folder, std::uint64_t number) {
  const std::string text = fmt::format("{:<20}\n", number);
  const auto bytes = std::as_bytes(std::span(text));
  auto file = device.open(folder + "/syncs", OpenMode::read_write);
  if (!file && file.error().code == ErrorCode::not_found) return write_whole(device, folder, "syncs", bytes);
  if (!file) return fail(std::move(file.error()));
  RETURN_IF_ERROR((*file)->write_at(0, bytes));
  return (*file)->sync();
}

}  // namespace

MemberShare::MemberShare(const Services& services, ReservationSpace& space, std::string folder)
    : services_(services), space_(space), folder_(std::move(folder)), heard_ns_(monotonic_ns() - silence_ns_max) {
  if (auto loaded = load_syncs(); !loaded) space_.problems.push_back(loaded.error().message());
}

MemberShare::~MemberShare() {
  if (closing_timer_) services_.loop.cancel(*closing_timer_);
  if (silence_timer_) services_.loop.cancel(*silence_timer_);
  const auto sessions = std::exchange(sessions_, {});
  for (const auto& [session, permit] : sessions) session->share_gone();
}

Result<void> MemberShare::load_syncs() {
  const auto text = read_whole(services_.device, folder_ + "/syncs", syncs_bytes);
  if (!text) return text.error().code == ErrorCode::not_found ? Result<void>() : fail(text.error());
  const auto* begin = reinterpret_cast<const char*>(text->data());
  const auto read = std::from_chars(begin, begin + text->size(), syncs_);
  if (read.ec == std::errc()) return {};
  return fail(ErrorCode::corrupt, "the number of the share's syncs cannot be read", folder_ + "/syncs");
}

void MemberShare::heard() {
  heard_ns_ = monotonic_ns();
  if (silence_timer_) services_.loop.cancel(*silence_timer_);
  silence_timer_ = services_.loop.at(heard_ns_ + silence_ns_max, [this] {
    silence_timer_.reset();
    const auto sessions = sessions_;
    for (const auto& [session, permit] : sessions) session->end("nothing was heard of the reservation's home");
  });
}

Result<void> MemberShare::check_own(std::uint32_t segment) const {
  const Segments& segments = space_.segments();
  if (segment < segments.map().segment_count() && segments.is_own(segment)) return {};
  return fail(ErrorCode::protocol, fmt::format("segment {} does not lie on this member", segment),
              "reservation " + segments.reservation());
}

std::uint64_t MemberShare::Fence::highest() const {
  std::uint64_t highest = group_below;
  for (const auto& [rank, below] : ranks_below) highest = std::max(highest, below);
  return highest;
}

bool MemberShare::is_void(const fabric::Permit& permit) const {
  if (!permit.writes()) {
    const auto own = reader_below_.find(permit.uid);
    return permit.number < readers_below_ || (own != reader_below_.end() && permit.number < own->second);
  }
  const auto spared = spared_.find(permit.stream);
  if (permit.number < (spared == spared_.end() ? writers_below_ : spared->second)) return true;
  const auto fence = fences_.find(permit.stream);
  if (fence == fences_.end()) return false;
  // A group that has ended gets no further permits, however they are numbered.
  if (permit.incarnation <= fence->second.incarnation && fence->second.group_below > 0) return true;
  const auto rank = fence->second.ranks_below.find(permit.rank);
  return rank != fence->second.ranks_below.end() && permit.number < rank->second;
}

Result<void> MemberShare::check(const fabric::Permit& permit, uid_t peer) {
  const Segments& segments = space_.segments();
  const std::string where = "reservation " + segments.reservation();
  RETURN_IF_ERROR(segments.check_stays());
  if (permit.reservation_id != segments.record().id || permit.member != segments.own_member())
    return fail(ErrorCode::permission_denied, "the permit is for another reservation or member", where);
  if (permit.uid != peer) return fail(ErrorCode::permission_denied, "the permit is another user's", where);
  if (permit.server_run != services_.server_run || is_void(permit)) {
    return fail(ErrorCode::unavailable,
                "the permit is void: this server was started anew since, or the space taken back", where);
  }
  if (monotonic_ns() - heard_ns_ >= silence_ns_max)
    return fail(ErrorCode::unavailable, "this member has not heard of the reservation's home for a minute", where);
  for (const std::uint32_t segment : permit.segments) RETURN_IF_ERROR(check_own(segment));
  permit_seen_ = std::max(permit_seen_, permit.number);
  return {};
}

void MemberShare::attach(MemberSession& session, const fabric::Permit& permit) {
  // The oldest one decides: what it opened stays open.
  sessions_.try_emplace(&session, permit);
}

void MemberShare::detach(MemberSession& session) {
  // Fences wait for what it is writing.
  if (auto window = session.window(); window && !window->is_idle()) closing_.push_back(std::move(window));
  sessions_.erase(&session);
}

void MemberShare::note_fence(const wire::MemberFenceT& asked) {
  if (asked.readers) {
    std::uint64_t& below = asked.reader ? reader_below_[*asked.reader] : readers_below_;
    below = std::max(below, asked.below);
    if (reader_below_.size() > readers_known_max)
      for (const auto& [uid, number] : reader_below_) readers_below_ = std::max(readers_below_, number);
    std::erase_if(reader_below_, [this](const auto& reader) { return reader.second <= readers_below_; });
    return;
  }
  if (asked.stream.empty()) {
    if (asked.below < writers_below_) return;
    // A permit that was void stays so, also of a stream that has a living group again.
    std::map<std::string, std::uint64_t> spared;
    for (const std::string& stream : asked.but) {
      const auto known = spared_.find(stream);
      spared.emplace(stream, known == spared_.end() ? writers_below_ : known->second);
    }
    spared_ = std::move(spared);
    writers_below_ = asked.below;
    std::erase_if(fences_, [this](const auto& entry) {
      const auto& [stream, fence] = entry;
      return !spared_.contains(stream) && fence.highest() <= writers_below_;
    });
    return;
  }
  Fence& fence = fences_[asked.stream];
  if (asked.rank) {
    std::uint64_t& below = fence.ranks_below[*asked.rank];
    below = std::max(below, asked.below);
  } else if (asked.incarnation >= fence.incarnation) {
    fence.incarnation = asked.incarnation;
    fence.group_below = std::max(fence.group_below, asked.below);
    // One that comes late says nothing of what was said of its ranks since.
    std::erase_if(fence.ranks_below, [&](const auto& rank) { return rank.second <= asked.below; });
  }
}

void MemberShare::fence(const wire::MemberFenceT& asked, std::function<void()> closed) {
  note_fence(asked);
  // What is void and was shown already ends with its connection.
  std::vector<MemberSession*> ended;
  for (const auto& [session, permit] : sessions_)
    if (is_void(permit)) ended.push_back(session);
  for (MemberSession* const session : ended) session->end("the home has taken back what its permit said");
  fail_point("server.member.fenced");
  told_when_closed_.push_back(std::move(closed));
  answer_when_closed();
}

void MemberShare::answer_when_closed() {
  std::erase_if(closing_, [](const auto& window) { return window->is_idle(); });
  if (!closing_.empty()) {
    if (!closing_timer_) {
      closing_timer_ = services_.loop.at(monotonic_ns() + closing_pause_ns, [this] {
        closing_timer_.reset();
        answer_when_closed();
      });
    }
    return;
  }
  for (const auto& told : std::exchange(told_when_closed_, {})) told();
}

Result<std::vector<std::uint32_t>> MemberShare::unwritten(const std::vector<std::uint32_t>& segments) {
  std::vector<std::uint32_t> found;
  for (const std::uint32_t segment : segments) {
    RETURN_IF_ERROR(check_own(segment));
    if (space_.segments().nobody_writes(segment)) found.push_back(segment);
  }
  return found;
}

Result<void> MemberShare::sync(const std::vector<std::uint32_t>& segments, std::weak_ptr<const bool> wanted,
                               std::function<void(Result<std::uint64_t>)> done) {
  RETURN_IF_ERROR(space_.segments().check_stays());
  std::vector<std::string> paths;
  for (const std::uint32_t segment : segments) {
    RETURN_IF_ERROR(check_own(segment));
    if (space_.segments().has_failed(segment))
      return fail(ErrorCode::io_error, "an earlier sync of it failed", fmt::format("segment {}", segment));
    paths.push_back(space_.segments().path(segment));
  }
  ++syncs_;
  services_.sync_worker.add([this, paths = std::move(paths), segments, number = syncs_, folder = folder_,
                             &device = services_.device, &loop = services_.loop,
                             alive = std::weak_ptr<const bool>(alive_), wanted = std::move(wanted),
                             done = std::move(done)] {
    Result<void> synced;
    std::optional<std::uint32_t> failed;
    for (std::size_t i = 0; i < paths.size() && synced; ++i) {
      auto file = device.open(paths[i], OpenMode::read);
      // Only what the disk says is final.
      synced = file ? (*file)->sync() : Result<void>(fail(ErrorCode::busy, file.error().message()));
      if (file && !synced) failed = segments[i];
    }
    fail_point("server.member.synced");
    if (synced) {
      synced = note_syncs(device, folder, number);
    }
    loop.post([this, alive, wanted, done, failed, number, synced = std::move(synced)] {
      if (!alive.expired() && failed) space_.segment_failed(*failed, synced.error());
      if (wanted.expired()) return;
      done(synced ? Result<std::uint64_t>(number) : Result<std::uint64_t>(fail(synced.error())));
    });
  });
  return {};
}

}  // namespace forebay::server
