// SPDX-License-Identifier: Apache-2.0
#include "reservations/files_sharing.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/log.h"
#include "reservations/reservation_table.h"
#include "storage/reservation_store.h"
#include "streams/stream.h"

namespace forebay::server {
namespace {

constexpr std::size_t entries_a_slice = 4096;
constexpr std::int64_t first_pause_ms = 100;
constexpr std::int64_t pause_ms_max = 300'000;

Error gone(const std::string& name) {
  return {ErrorCode::not_found, "the reservation was destroyed", "reservation " + name};
}

}  // namespace

void FilesSharing::begin(const std::string& name, Ended ended) {
  if (stop(name, [this, name, ended] { begin(name, ended); })) return;
  works_[name].pause_ms = first_pause_ms;
  pass_over(name, ended);
}

void FilesSharing::pass_over(const std::string& name, const Ended& ended) {
  const auto found = table_.all().find(name);
  if (found == table_.all().end() || found->second->retiring()) return ended(fail(gone(name)));
  const auto record = std::make_shared<reservation::ReservationT>(found->second->record());
  const std::string files = host_.stream_services().store.files_directory(record->id);
  start(
      *record, [record, files] { return storage::FilesAccessPass::of_shares(*record, files); },
      [this, name, ended](const Result<storage::FilesAccessReport>& report) { pass_ended(name, report, ended); });
}

void FilesSharing::adopt(const std::string& name, const std::string& path, Ended ended) {
  if (stop(name, [this, name, path, ended] { adopt(name, path, ended); })) return;
  const auto found = table_.all().find(name);
  if (found == table_.all().end() || found->second->retiring()) return ended(fail(gone(name)));
  const auto record = std::make_shared<reservation::ReservationT>(found->second->record());
  const std::string files = host_.stream_services().store.files_directory(record->id);
  start(
      *record, [record, files, path] { return storage::FilesAccessPass::of_adoption(*record, files, path); },
      [this, name, ended](const Result<storage::FilesAccessReport>& report) {
        const auto still = table_.all().find(name);
        if (still == table_.all().end()) return ended(fail(gone(name)));
        if (report) still->second->set_files_report(*report);
        ended(report ? Result<void>() : fail(report.error()));
        // A pass that was stopped for this goes on.
        if (still->second->record().files_access_due) pass_later(name);
      });
}

bool FilesSharing::stop(const std::string& name, EventLoop::Task then) {
  const auto found = works_.find(name);
  if (found == works_.end()) return false;
  Work& work = found->second;
  if (work.next) host_.stream_services().loop.cancel(*work.next);
  work.next.reset();
  if (!work.pass) return false;
  work.pass->stopped = true;
  work.after.push_back(std::move(then));
  return true;
}

void FilesSharing::forget(const std::string& name) {
  (void)stop(name, [] {});
  const auto found = works_.find(name);
  if (found != works_.end() && !found->second.pass) works_.erase(found);
}

void FilesSharing::start(const reservation::ReservationT& record, Begin begin,
                         std::function<void(const Result<storage::FilesAccessReport>&)> ended) {
  auto pass = std::make_shared<Pass>();
  pass->name = record.name;
  pass->owner = record.owner_uid;
  pass->begin = std::move(begin);
  pass->ended = std::move(ended);
  works_[record.name].pass = pass;
  take_turn(pass);
}

void FilesSharing::take_turn(const std::shared_ptr<Pass>& pass) {
  if (side_worker_.add_for(pass->owner, pass->wanted, [this, pass] { advance(pass); })) return;
  end(pass, fail(ErrorCode::busy, fmt::format("too much that user {} asked for waits; try again later", pass->owner),
                 "reservation " + pass->name));
}

void FilesSharing::advance(const std::shared_ptr<Pass>& pass) {
  if (!pass->access && !pass->stopped) {
    auto begun = pass->begin();
    if (!begun) return end(pass, fail(std::move(begun.error())));
    pass->access = std::move(*begun);
  }
  // Others get their turn between slices.
  if (!pass->stopped && !pass->access->advance(entries_a_slice)) return take_turn(pass);
  end(pass, pass->stopped
                ? Result<storage::FilesAccessReport>(
                      fail(ErrorCode::busy, "another request took the place of this one", "reservation " + pass->name))
                : pass->access->report());
}

void FilesSharing::end(const std::shared_ptr<Pass>& pass, Result<storage::FilesAccessReport> report) {
  // Its descriptors are closed before anybody hears that it is over.
  pass->access.reset();
  host_.stream_services().loop.post([this, pass, report = std::move(report)] {
    const auto found = works_.find(pass->name);
    std::vector<EventLoop::Task> after;
    if (found != works_.end()) {
      found->second.pass.reset();
      after = std::exchange(found->second.after, {});
    }
    pass->ended(report);
    for (const EventLoop::Task& task : after) task();
  });
}

void FilesSharing::pass_ended(const std::string& name, const Result<storage::FilesAccessReport>& report,
                              const Ended& ended) {
  const auto found = table_.all().find(name);
  if (found == table_.all().end()) {
    works_.erase(name);
    return ended(fail(gone(name)));
  }
  if (!report) {
    if (report.error().code != ErrorCode::busy)
      log::error("files/ of {} are not shared as they should be: {}", name, report.error().message());
    ended(fail(report.error()));
    if (report.error().code == ErrorCode::busy && found->second->record().files_access_due) pass_later(name);
    return;
  }
  found->second->set_files_report(*report);
  ended({});
  const auto work = works_.find(name);
  // Something that waits takes its place.
  if (work == works_.end() || work->second.pass || work->second.pause_ms == 0) return;
  if (report->changed > 0) {
    pass_later(name);
  } else if (report->unfinished == 0) {
    settle(name);
  } else {
    log::warning("files/ of {} are not shared as they should be; `forebay doctor` says what is left", name);
  }
}

void FilesSharing::pass_later(const std::string& name) {
  Work& work = works_[name];
  if (work.pass || work.next) return;
  work.pause_ms = std::max(work.pause_ms, first_pause_ms);
  work.next = host_.stream_services().loop.at(monotonic_ns() + work.pause_ms * ns_per_ms, [this, name] {
    const auto due = works_.find(name);
    if (due == works_.end()) return;
    due->second.next.reset();
    due->second.pause_ms = std::min(due->second.pause_ms * 2, pause_ms_max);
    pass_over(name, [](const Result<void>&) {});
  });
}

void FilesSharing::settle(const std::string& name) {
  const auto found = table_.all().find(name);
  if (found == table_.all().end() || !found->second->record().files_access_due) return;
  if (const auto busy = table_.names_in_work.find(name); busy != table_.names_in_work.end()) {
    busy->second.emplace_back([this, name] {
      // Another share begins anew.
      if (const auto work = works_.find(name); work != works_.end() && (work->second.pass || work->second.next)) return;
      settle(name);
    });
    return;
  }
  table_.names_in_work.try_emplace(name);
  const auto record = std::make_shared<reservation::ReservationT>(found->second->record());
  record->files_access_due = false;
  errand_worker_.add_for(record->owner_uid, [this, record, &services = host_.stream_services()] {
    auto done = services.store.replace_record(*record);
    services.loop.post([this, record, done = std::move(done)] {
      table_.end_work(record->name);
      if (!done) {
        log::warning("files/ of {} are looked at again at the next start: {}", record->name, done.error().message());
      } else if (const auto still = table_.all().find(record->name); still != table_.all().end()) {
        still->second->set_access(*record);
      }
    });
  });
}

}  // namespace forebay::server
