// SPDX-License-Identifier: Apache-2.0
#include "streams/flusher.h"

#include <algorithm>
#include <iterator>
#include <set>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/fail_point.h"
#include "base/log.h"
#include "base/return_error.h"
#include "streams/stream.h"

namespace forebay::server {

struct Flusher::SyncFailure {
  std::optional<std::uint32_t> segment;  ///< of this server
  Error error;
  bool begun = false;  ///< what the disk has answered, which is final
};

/// One round: what it syncs, and what becomes true afterwards.
struct Flusher::Job {
  std::uint64_t target = 0;  ///< steps below become durable
  std::uint64_t rewinds = 0;
  SegmentSyncs::Paths segments;
  std::vector<std::vector<Extent>> releases;
  std::map<std::uint16_t, std::uint64_t> member_syncs;
  std::size_t under_way = 0;  ///< syncs: this server's, and those of other members together
  std::optional<SyncFailure> failure;
};

namespace {

/// How long a journal without room for the watermark is left alone.
constexpr std::int64_t retry_pause_ms = 500;

journal::DurableToT durable_to(const Stream& stream, std::uint64_t target,
                               const std::map<std::uint16_t, std::uint64_t>& member_syncs) {
  journal::DurableToT record;
  record.step = target - 1;
  record.epoch = stream.state().epoch;
  for (const auto& [member, syncs] : member_syncs) record.syncs.emplace_back(member, syncs);
  return record;
}

}  // namespace

/// The segments that hold steps which are committed but not durable.
Result<Flusher::Unsynced> Flusher::unsynced_segments(Stream& stream, std::uint64_t end) {
  std::set<std::uint32_t> numbers;
  const auto& steps = stream.state().steps;
  for (auto step = steps.lower_bound(stream.state().durable_next); step != steps.lower_bound(end); ++step) {
    for (const Extent& extent : extents_of(step->second.committed)) numbers.insert(extent.segment);
  }
  // Also where the step that brought a set is gone: those to come may refer to it.
  for (const Extent& extent : stream.sets().extents_from(stream.state().durable_next)) numbers.insert(extent.segment);
  Unsynced unsynced;
  const Segments& segments = stream.space().segments();
  for (std::uint32_t number : numbers) {
    if (segments.has_failed(number))
      return fail(ErrorCode::io_error, "an earlier sync of it failed", fmt::format("segment {}", number));
    if (segments.is_own(number)) {
      unsynced.own.emplace_back(number, segments.path(number));
    } else {
      unsynced.others.insert(number);
    }
  }
  return unsynced;
}

std::optional<Flusher::SyncFailure> Flusher::sync_all(SegmentSyncs& syncs, const SegmentSyncs::Paths& segments) {
  auto failure = syncs.sync(segments);
  if (!failure) return std::nullopt;
  return SyncFailure{failure->segment, std::move(failure->error), failure->begun};
}

Flusher::Flusher(Stream& stream)
    : stream_(stream), durable_next_(stream.state().durable_next), alive_(std::make_shared<bool>(true)) {}

Flusher::~Flusher() {
  if (timer_) stream_.services().loop.cancel(*timer_);
}

bool Flusher::nothing_to_do() const {
  return stream_.state().status == StreamStatus::failed ||
         (stream_.state().next_step == durable_next_ && releases_.empty());
}

void Flusher::request(bool soon) {
  if (nothing_to_do()) return;
  if (running_) {
    again_ = true;
    again_soon_ = again_soon_ || soon;
    return;
  }
  EventLoop& loop = stream_.services().loop;
  const std::int64_t interval_ms = stream_.services().flush_interval_ms;
  if (!soon && interval_ms < 0) return;
  if (timer_) {
    if (timer_soon_ || !soon) return;
    loop.cancel(*timer_);
  }
  timer_soon_ = soon;
  timer_ = loop.at(monotonic_ns() + (soon ? 0 : interval_ms * 1'000'000), [this] {
    timer_.reset();
    start();
  });
}

void Flusher::release_when_synced(std::vector<Extent> extents, bool soon) {
  releases_.push_back(std::move(extents));
  request(soon);
}

void Flusher::hurry_releases() {
  if (!releases_.empty()) request(true);
}

void Flusher::release_all() {
  release(std::exchange(releases_, {}));
  if (running_) release(std::exchange(running_->releases, {}));
}

void Flusher::release(std::vector<std::vector<Extent>> releases) {
  for (const auto& extents : releases) {
    for (const Extent& extent : extents) stream_.space().release(extent);
  }
}

std::uint64_t Flusher::bytes_to_release() const {
  const auto bytes_of = [](const std::vector<std::vector<Extent>>& releases) {
    std::uint64_t bytes = 0;
    for (const auto& extents : releases) {
      for (const Extent& extent : extents) bytes += extent.length;
    }
    return bytes;
  };
  return bytes_of(releases_) + (running_ ? bytes_of(running_->releases) : 0);
}

void Flusher::list_to_release(std::vector<Extent>& extents) const {
  const auto add = [&](const std::vector<std::vector<Extent>>& releases) {
    for (const auto& release : releases) extents.insert(extents.end(), release.begin(), release.end());
  };
  add(releases_);
  if (running_) add(running_->releases);
}

void Flusher::rewind(std::uint64_t first) {
  ++rewinds_;
  if (durable_next_ > first) durable_next_ = first;
}

void Flusher::start() {
  if (nothing_to_do() || running_) return;
  // Segments are opened by name, and theirs have changed by now. Should the reservation stay all the same, it goes on.
  if (stream_.space().segments().retiring) {
    retry_later();
    return;
  }
  auto job = std::make_shared<Job>();
  job->target = stream_.state().next_step;
  job->rewinds = rewinds_;
  auto unsynced = unsynced_segments(stream_, job->target);
  if (!unsynced) {
    stream_.fail_stream("a segment cannot be synced: " + unsynced.error().message());
    return;
  }
  job->segments = std::move(unsynced->own);
  job->releases = std::exchange(releases_, {});
  running_ = job;
  job->under_way = unsynced->others.empty() ? 1 : 2;
  if (!unsynced->others.empty()) {
    stream_.space().segments().others()->sync(
        unsynced->others,
        [this, job, alive = std::weak_ptr<bool>(alive_)](Result<std::map<std::uint16_t, SyncedMember>> synced) {
          if (!alive.expired()) others_synced(job, std::move(synced));
        });
  }
  const StreamServices& services = stream_.services();
  services.sync_worker.add_for(stream_.space().owner_uid(),
                               [this, job, syncs = stream_.space().segments().syncs(), &loop = services.loop,
                                alive = std::weak_ptr<bool>(alive_)] {
                                 fail_point("server.flush.before_sync");
                                 auto failure = sync_all(*syncs, job->segments);
                                 loop.post([this, job, alive, failure = std::move(failure)] {
                                   if (!alive.expired()) own_synced(job, failure);
                                 });
                               });
}

void Flusher::own_synced(const std::shared_ptr<Job>& job, std::optional<SyncFailure> failure) {
  if (failure) job->failure = std::move(failure);
  if (--job->under_way == 0) segments_synced(job, job->failure);
}

void Flusher::others_synced(const std::shared_ptr<Job>& job, Result<std::map<std::uint16_t, SyncedMember>> synced) {
  if (!synced && synced.error().code == ErrorCode::unavailable) {
    // What lies before becomes durable, and what was dropped comes free; the rest when the member is back.
    job->target = std::min(job->target, first_elsewhere());
  } else if (!synced) {
    const bool begun = synced.error().code != ErrorCode::busy;
    // What this server's own sync has met counts first: that is final.
    if (!job->failure) job->failure = SyncFailure{std::nullopt, std::move(synced.error()), begun};
  } else {
    std::map<std::uint16_t, std::uint64_t> incarnations;
    for (const auto& [member, sync] : *synced) {
      incarnations[member] = sync.storage_incarnation;
      job->member_syncs[member] = sync.syncs;
    }
    if (stream_.lose_steps(incarnations) && !job->failure) {
      job->failure = SyncFailure{
          std::nullopt, {ErrorCode::busy, "a member of the reservation has lost what was to be synced", {}}, false};
    }
  }
  if (--job->under_way == 0) segments_synced(job, job->failure);
}

std::uint64_t Flusher::first_elsewhere() const {
  const auto& steps = stream_.state().steps;
  for (auto step = steps.lower_bound(stream_.state().durable_next); step != steps.end(); ++step) {
    for (const auto& part : step->second.committed.parts)
      if (!part->members.empty()) return step->first;
  }
  return stream_.state().next_step;
}

void Flusher::give_up(Job& job) {
  running_.reset();
  std::ranges::move(std::exchange(job.releases, {}), std::back_inserter(releases_));
}

void Flusher::retry_later() {
  EventLoop& loop = stream_.services().loop;
  if (timer_) loop.cancel(*timer_);
  timer_soon_ = false;
  timer_ = loop.at(monotonic_ns() + retry_pause_ms * 1'000'000, [this] {
    timer_.reset();
    start();
  });
}

void Flusher::could_not_begin(const Error& error) {
  // A segment's name changes while its reservation is destroyed. Should that fail, it goes on.
  if (error.code != ErrorCode::busy && !stream_.space().segments().retiring) {
    stream_.fail_stream("a segment cannot be synced: " + error.message());
    return;
  }
  stream_.space().segments().lines.warning("stream {}: a sync waits: {}", stream_.path(), error.message());
  retry_later();
}

void Flusher::sync_failed(const SyncFailure& failure) {
  stream_.fail_stream("data could not be synced: " + failure.error.message());
  if (failure.segment) stream_.space().segment_failed(*failure.segment, failure.error);
}

void Flusher::segments_synced(const std::shared_ptr<Job>& job, const std::optional<SyncFailure>& failure) {
  if (failure) {
    give_up(*job);
    if (failure->begun) {
      sync_failed(*failure);
    } else {
      could_not_begin(failure->error);
    }
    return;
  }
  // Where another stream's sync of one of the segments has failed meanwhile, this stream has as well.
  if (stream_.state().status == StreamStatus::failed) {
    give_up(*job);
    return;
  }
  if (job->rewinds == rewinds_ && job->target > stream_.state().durable_next) {
    auto recorded =
        stream_.record(storage::RecordType::durable_to, durable_to(stream_, job->target, job->member_syncs));
    if (!recorded) {
      give_up(*job);
      log::warning("stream {}: the durable watermark cannot be recorded: {}", stream_.path(),
                   recorded.error().message());
      if (stream_.state().status != StreamStatus::failed) retry_later();
      return;
    }
  }
  const StreamServices& services = stream_.services();
  services.sync_worker.add_for(
      stream_.space().owner_uid(),
      [this, job, journal = stream_.journal().shared(), &loop = services.loop, alive = std::weak_ptr<bool>(alive_)] {
        fail_point("server.flush.before_journal_sync");
        auto synced = journal->sync();
        loop.post([this, job, alive, synced = std::move(synced)]() mutable {
          if (!alive.expired()) journal_synced(job, std::move(synced));
        });
      });
}

void Flusher::journal_synced(const std::shared_ptr<Job>& job, Result<void> result) {
  fail_point("server.flush.after_journal_sync");
  if (!result) {
    give_up(*job);
    stream_.fail_stream("the journal could not be synced: " + result.error().message());
    return;
  }
  running_.reset();
  if (job->rewinds == rewinds_ && job->target > durable_next_) durable_next_ = job->target;
  if (OtherMembers* const others = stream_.space().segments().others())
    others->syncs_recorded(stream_.state().member_syncs);
  release(std::exchange(job->releases, {}));
  stream_.group().durable_moved();
  stream_.followers().serve_all();
  stream_.apply_retention();
  const bool again = std::exchange(again_, false);
  const bool soon = std::exchange(again_soon_, false);
  if (again || !releases_.empty())
    request(soon || stream_.group().waits_for_durable() || stream_.followers().waits_for_durable() ||
            !stream_.space().queue().is_empty());
}

Result<void> Flusher::flush_now() {
  if (nothing_to_do() || stream_.space().segments().retiring) return {};
  // What lies on other members becomes durable after the next start, when they are asked again.
  const std::uint64_t target = first_elsewhere();
  ASSIGN_OR_RETURN(const auto unsynced, unsynced_segments(stream_, target));
  if (const auto failure = sync_all(*stream_.space().segments().syncs(), unsynced.own)) {
    if (failure->begun) sync_failed(*failure);
    return fail(failure->error);
  }
  if (target > stream_.state().durable_next) {
    RETURN_IF_ERROR(stream_.record(storage::RecordType::durable_to, durable_to(stream_, target, {})));
  }
  RETURN_IF_ERROR(stream_.journal().sync());
  durable_next_ = std::max(durable_next_, target);
  return {};
}

}  // namespace forebay::server
