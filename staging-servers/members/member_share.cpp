// SPDX-License-Identifier: Apache-2.0
#include "members/member_share.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "base/bounds.h"
#include "base/checksum.h"
#include "base/clock.h"
#include "base/fail_point.h"
#include "base/return_error.h"
#include "loop/connection.h"
#include "members/member_session.h"

namespace forebay::server {
namespace {

constexpr std::int64_t closing_pause_ns = 5'000'000;
constexpr std::size_t read_at_once_bytes = std::size_t{1} << 20;
/// Each is looked at each second.
constexpr std::size_t mapping_of_user_max = 256;
/// Users of whom it is known apart up to which number their permits are void.
constexpr std::size_t readers_known_max = 1024;

/// Its own, and the home's. Without them it counts as an old copy, whose segments the home has checked.
std::vector<std::uint64_t> counters_of(Device& device, const std::string& folder, ReservationSpace& space) {
  auto counters = load_sync_counters(device, folder, 2);
  if (counters) return *counters;
  space.problems.push_back(counters.error().message());
  return {0, 0};
}

struct PlacedExtent {
  std::size_t file = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

/// Nothing if it cannot be read.
std::optional<std::uint32_t> checksum_of(const File& file, const PlacedExtent& extent, std::span<std::byte> chunk) {
  std::uint32_t checksum = 0;
  for (std::uint64_t done = 0; done < extent.length;) {
    const auto part = chunk.first(std::min<std::uint64_t>(chunk.size(), extent.length - done));
    if (!file.read_at(extent.offset + done, part)) return std::nullopt;
    checksum = crc32c(part, checksum);
    done += part.size();
  }
  return checksum;
}

}  // namespace

MemberShare::MemberShare(const Services& services, ReservationSpace& space, const std::string& folder)
    : services_(services),
      space_(space),
      counters_({services.loop, services.device, services.counter_worker}, folder,
                counters_of(services.device, folder, space)),
      heard_ns_(monotonic_ns() - services.silence_ns),
      syncs_(syncs()) {
  if (const auto learned = learn_mapping(folder); !learned) space.problems.push_back(learned.error().message());
}

Result<void> MemberShare::learn_mapping(const std::string& folder) {
  ASSIGN_OR_RETURN(auto presence, ReaderPresence::open(folder));
  ASSIGN_OR_RETURN(const auto numbers, presence.sessions());
  for (const std::uint64_t number : numbers) mapping_.emplace(number, Segments::unknown_user);
  presence_ = std::move(presence);
  return {};
}

MemberShare::~MemberShare() {
  if (closing_timer_) services_.loop.cancel(*closing_timer_);
  if (silence_timer_) services_.loop.cancel(*silence_timer_);
  for (const auto& [presence, user] : mapping_) forget_mapping(user);
  const auto sessions = std::exchange(sessions_, {});
  for (const auto& [session, permit] : sessions) session->share_gone();
}

void MemberShare::heard() {
  heard_ns_ = monotonic_ns();
  if (silence_timer_) services_.loop.cancel(*silence_timer_);
  silence_timer_ = services_.loop.at(heard_ns_ + services_.silence_ns, [this] {
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

Result<void> MemberShare::check_own(const std::vector<wire::Extent>& extents) const {
  const Segments& segments = space_.segments();
  if (extents.empty() || extents.size() > extents_max)
    return fail(ErrorCode::protocol, "a request names no extents, or too many",
                "reservation " + segments.reservation());
  for (const wire::Extent& extent : extents) {
    RETURN_IF_ERROR(check_own(extent.segment()));
    if (extent.length() == 0 || extent.member() != segments.own_member() ||
        !range_within(extent.offset(), extent.length(), segments.record().segment_bytes))
      return fail(ErrorCode::protocol, "a request names an extent that the member does not have",
                  "reservation " + segments.reservation());
  }
  return {};
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
  if (monotonic_ns() - heard_ns_ >= services_.silence_ns)
    return fail(ErrorCode::unavailable, "this member has not heard of the reservation's home for too long", where);
  for (const std::uint32_t segment : permit.segments) RETURN_IF_ERROR(check_own(segment));
  permit_seen_ = std::max(permit_seen_, permit.number);
  return {};
}

Result<Descriptor> MemberShare::admit_mapping(std::uint64_t presence, uid_t user) {
  const std::string where = "reservation " + space_.segments().reservation();
  const auto own = services_.mapping_users.find(user);
  if (own != services_.mapping_users.end() && own->second >= mapping_of_user_max)
    return fail(ErrorCode::no_space, "too many readers of this user have mapped what this server has", where);
  Descriptor descriptor = presence_ ? presence_->admit(presence) : Descriptor();
  if (!descriptor.valid())
    return fail(ErrorCode::no_space, "this member cannot note who has mapped what it has", where);
  const auto known = mapping_.find(presence);
  if (known != mapping_.end()) forget_mapping(known->second);
  mapping_.insert_or_assign(presence, user);
  ++services_.mapping_users[user];
  return descriptor;
}

void MemberShare::forget_mapping(uid_t user) {
  const auto own = services_.mapping_users.find(user);
  // Those of before this server's start are in nobody's number.
  if (own != services_.mapping_users.end() && --own->second == 0) services_.mapping_users.erase(own);
}

Result<std::vector<std::uint64_t>> MemberShare::mapping() {
  if (!presence_) {
    return fail(ErrorCode::io_error, "who has mapped what lies here could not be read at this server's start",
                "reservation " + space_.segments().reservation());
  }
  std::vector<std::uint64_t> present;
  for (auto entry = mapping_.begin(); entry != mapping_.end();) {
    if (presence_->state(entry->first) == ReaderPresence::State::present) {
      present.push_back((entry++)->first);
      continue;
    }
    presence_->forget(entry->first);
    forget_mapping(entry->second);
    entry = mapping_.erase(entry);
  }
  return present;
}

void MemberShare::attach(MemberSession& session, const fabric::Permit& permit) {
  // The oldest one decides: what it opened stays open.
  if (!sessions_.try_emplace(&session, permit).second || !permit.writes()) return;
  // A rank that comes again has lost its connection. Each keeps a descriptor of each of its segments here.
  std::vector<MemberSession*> before;
  for (const auto& [other, known] : sessions_) {
    const bool same =
        known.stream == permit.stream && known.incarnation == permit.incarnation && known.rank == permit.rank;
    if (same && other != &session) before.push_back(other);
  }
  for (MemberSession* const other : before) other->end("its rank has another connection");
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

Result<void> MemberShare::sync(const std::vector<std::uint32_t>& segments, std::uint64_t syncs_before,
                               std::weak_ptr<const bool> wanted, std::function<void(Result<std::uint64_t>)> done) {
  RETURN_IF_ERROR(space_.segments().check_stays());
  SegmentSyncs::Paths paths;
  for (const std::uint32_t segment : segments) {
    RETURN_IF_ERROR(check_own(segment));
    if (space_.segments().has_failed(segment))
      return fail(ErrorCode::io_error, "an earlier sync of it failed", fmt::format("segment {}", segment));
    paths.emplace_back(segment, space_.segments().path(segment));
  }
  if (syncs_before == std::numeric_limits<std::uint64_t>::max())
    return fail(ErrorCode::protocol, "no sync can have a number above this",
                "reservation " + space_.segments().reservation());
  const std::uint64_t number = syncs_ = std::max(syncs_, syncs_before) + 1;
  struct Round {
    int under_way = 2;  ///< the segments, and the counter
    Result<void> synced;
  };
  const auto ended = [round = std::make_shared<Round>(), number, wanted = std::move(wanted),
                      done = std::move(done)](const Result<void>& part) {
    if (!part && round->synced) round->synced = part;
    if (--round->under_way > 0 || wanted.expired()) return;
    done(round->synced ? Result<std::uint64_t>(number) : Result<std::uint64_t>(fail(round->synced.error())));
  };
  services_.sync_worker.add_for(space_.owner_uid(),
                                [this, paths = std::move(paths), ended, syncs = space_.segments().syncs(),
                                 &loop = services_.loop, alive = std::weak_ptr<const bool>(alive_)] {
                                  const auto failure = syncs->sync(paths);
                                  fail_point("server.member.synced");
                                  loop.post([this, alive, ended, failure] {
                                    if (!failure) return ended({});
                                    // Only what the disk says is final.
                                    if (!failure->begun) return ended(fail(ErrorCode::busy, failure->error.message()));
                                    if (!alive.expired()) space_.segment_failed(failure->segment, failure->error);
                                    ended(fail(failure->error));
                                  });
                                });
  // At once: a sync that the home did not hear of does no harm where it counts.
  counters_.raise(own_line, number, ended);
  return {};
}

Result<void> MemberShare::checksum(const std::vector<wire::Extent>& extents, std::weak_ptr<const bool> wanted,
                                   std::function<void(Result<wire::MemberChecksummedT>)> done) {
  const Segments& segments = space_.segments();
  RETURN_IF_ERROR(segments.check_stays());
  RETURN_IF_ERROR(check_own(extents));
  std::uint64_t bytes = 0;
  std::map<std::uint32_t, std::size_t> numbers;
  std::vector<std::string> paths;
  std::vector<PlacedExtent> places;
  for (const wire::Extent& extent : extents) {
    bytes += extent.length();  // each is shorter than a segment, and there are few
    const auto [number, is_new] = numbers.try_emplace(extent.segment(), paths.size());
    if (is_new) paths.push_back(segments.path(extent.segment()));
    places.push_back({number->second, extent.offset(), extent.length()});
  }
  if (bytes > checksum_bytes_max)
    return fail(ErrorCode::protocol, "a request for checksums names too many bytes",
                "reservation " + space_.segments().reservation());
  services_.errand_worker.add([paths = std::move(paths), places = std::move(places), &device = services_.device,
                               &loop = services_.loop, wanted = std::move(wanted), done = std::move(done)] {
    if (wanted.expired()) return;
    Result<wire::MemberChecksummedT> answer{tl::in_place};
    std::vector<std::unique_ptr<File>> files;
    for (const std::string& path : paths) {
      auto file = device.open(path, OpenMode::read);
      // A want of descriptors says nothing of what lies there.
      if (!file && file.error().code != ErrorCode::not_found) answer = fail(ErrorCode::busy, file.error().message());
      files.push_back(file ? std::move(*file) : nullptr);
    }
    std::vector<std::byte> chunk(answer ? read_at_once_bytes : 0);
    for (const PlacedExtent& place : places) {
      if (!answer) break;
      const File* const file = files[place.file].get();
      const auto checksum = file == nullptr ? std::nullopt : checksum_of(*file, place, chunk);
      if (!checksum) answer->unreadable.push_back(static_cast<std::uint32_t>(answer->checksums.size()));
      answer->checksums.push_back(checksum.value_or(0));
    }
    loop.post([wanted, done, answer = std::move(answer)]() mutable {
      if (!wanted.expired()) done(std::move(answer));
    });
  });
  return {};
}

}  // namespace forebay::server
