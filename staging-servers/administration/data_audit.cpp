// SPDX-License-Identifier: Apache-2.0
#include "administration/data_audit.h"

#include <fmt/format.h>

#include "administration/administered_server.h"
#include "base/plain_text.h"
#include "streams/stream.h"

namespace forebay::server {

std::vector<StepToRead> steps_to_read(AdministeredServer& server) {
  std::vector<StepToRead> steps;
  for (auto& [name, reservation] : server.reservations().all()) {
    if (reservation->retiring()) continue;
    const Segments& segments = reservation->space().segments();
    const auto paths = paths_of(segments);
    for (auto& [stream_name, stream] : reservation->streams()) {
      for (const auto& [number, step] : stream->state().steps) steps.emplace_back(segments, paths, stream_name, step);
    }
  }
  return steps;
}

void DataAudit::begin(AdministeredServer& server, std::vector<StepToRead> steps, std::weak_ptr<const bool> wanted,
                      std::function<void(std::vector<Finding>)> done) {
  const std::shared_ptr<DataAudit> audit(new DataAudit(server));
  const StreamServices& services = server.stream_services();
  StepReading::Asker asker;
  asker.others = [&server](const StepToRead& step) -> OtherMembers* {
    const auto found = server.reservations().all().find(step.reservation);
    return found == server.reservations().all().end() ? nullptr : found->second->space().segments().others();
  };
  asker.told = [audit](const StepToRead& step, const StepRead& found) { audit->add(step, found); };
  asker.done = [audit, done = std::move(done)] { done(audit->findings()); };
  StepReading::begin({services.loop, services.device, server.side_worker()}, std::move(steps), std::nullopt,
                     std::move(wanted), std::move(asker));
}

void DataAudit::add(const StepToRead& step, const StepRead& found) {
  for (const auto& [member, why] : found.not_asked)
    ++not_asked_.try_emplace({step.reservation, member}, NotAsked{why, 0}).first->second.steps;
  if (!found.check) {
    damaged_.push_back(damaged(step, found.check.error().message() +
                                         "; the SSD or a client has changed it: use a staged copy if there is one"));
  } else if (!found.check->disagreement.empty()) {
    damaged_.push_back(damaged(step, found.check->disagreement + "; this variable cannot be read; the others can"));
  } else {
    for (const auto& [variable, text] : found.check->gaps) {
      Gap& gap =
          gaps_.try_emplace({step.reservation, step.stream, variable}, Gap{damaged(step, {}), text}).first->second;
      ++gap.steps;
    }
  }
}

std::vector<Finding> DataAudit::findings() const {
  std::vector<Damaged> damaged = damaged_;
  for (const auto& [key, gap] : gaps_) {
    Damaged& told = damaged.emplace_back(gap.first);
    told.severity = Finding::Severity::note;
    told.what = fmt::format("step {}{}: variable {}: {}; was one program started as several ranks without knowing it?",
                            told.step, gap.steps == 1 ? "" : fmt::format(" and {} others", gap.steps - 1),
                            shown_name(std::get<2>(key)), gap.text);
  }
  std::vector<Finding> findings;
  for (const Damaged& entry : damaged) {
    // Steps that were dropped while they were read are not findings.
    const auto reservation = server_.reservations().all().find(entry.reservation);
    if (reservation == server_.reservations().all().end() || reservation->second->retiring()) continue;
    Stream* const stream = reservation->second->find_stream(entry.stream);
    if (stream == nullptr) continue;
    const auto kept = stream->state().steps.find(entry.step);
    if (kept == stream->state().steps.end() || kept->second.committed.epoch != entry.epoch) continue;
    // It goes when nobody holds it any more, and nobody is given it.
    if (!stream->followers().check_not_lost({entry.epoch, entry.step})) continue;
    findings.push_back({entry.severity, "stream " + stream->path(), entry.what});
  }
  for (const auto& [place, entry] : not_asked_) {
    findings.push_back(
        {Finding::Severity::note, "reservation " + place.first,
         fmt::format("what member {} has of {} steps was not read: {}", place.second, entry.steps, entry.why)});
  }
  return findings;
}

}  // namespace forebay::server
