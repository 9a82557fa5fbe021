// SPDX-License-Identifier: Apache-2.0
#include "administration/audit.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "administration/administered_server.h"
#include "base/size_text.h"
#include "reservations/shares.h"
#include "streams/stream.h"

namespace forebay::server {
namespace {

void add_problem(std::vector<Finding>& findings, std::string where, std::string what) {
  findings.push_back({Finding::Severity::problem, std::move(where), std::move(what)});
}

void audit_stream(Stream& stream, std::vector<Finding>& findings) {
  const auto& state = stream.state();
  const std::string where = "stream " + stream.path();
  if (!stream.damage().empty()) {
    add_problem(findings, where,
                "the journal is damaged: " + stream.damage() + "; earlier steps can be read, but nothing can be added");
  } else if (state.status == StreamStatus::failed) {
    add_problem(findings, where,
                "has failed: " + state.status_text + "; stage out what is durable, then destroy the reservation");
  }
  if (state.status == StreamStatus::interrupted) {
    findings.push_back(
        {Finding::Severity::note, where,
         "is interrupted (" + state.status_text + "); restart the writer to continue, or leave the stream as it is"});
    if (stream.group().step_open()) add_problem(findings, where, "is interrupted, but has an open step");
  }
  if (stream.group().rejoining())
    findings.push_back(
        {Finding::Severity::note, where, "waits for its writers to come back after the server was restarted"});
}

/// Every byte is free, or held by exactly one step, one attribute set, one writer's grant, or a drop that is not
/// durable yet.
void audit_space(Reservation& reservation, std::vector<Finding>& findings) {
  const std::string where = "reservation " + reservation.name();
  std::map<std::uint32_t, RangeSet> held;
  std::uint64_t held_bytes = 0;
  const auto hold = [&](const Extent& extent) {
    held_bytes += extent.length;
    if (!held[extent.segment].insert(extent.offset, extent.length)) {
      add_problem(findings, where,
                  fmt::format("segment {} @ {}: two steps hold the same space", extent.segment, extent.offset));
    }
  };
  for (auto& [name, stream] : reservation.streams()) {
    for (const auto& [number, step] : stream->state().steps) {
      for (const Extent& extent : extents_of(step.committed)) hold(extent);
    }
    for (const auto& [key, step] : stream->state().retired) {
      for (const Extent& extent : extents_of(step.committed)) hold(extent);
    }
    for (const Extent& extent : stream->sets().extents()) hold(extent);
    held_bytes += stream->group().granted_bytes() + stream->unsynced_bytes();
  }
  if (const OtherMembers* const others = reservation.space().segments().others())
    for (const Extent& extent : others->fenced_space()) hold(extent);
  const SpaceMap& space = reservation.space().map();
  const std::uint64_t used = space.total_bytes() - space.free_bytes() - space.closed_bytes();
  if (used != held_bytes)
    add_problem(findings, where, fmt::format("{} bytes are marked used, but {} are held", used, held_bytes));
}

/// "flow: 3, 4, 5 and 12 more": the steps that lie in a segment, for people.
std::string steps_in(Reservation& reservation, std::uint32_t segment) {
  constexpr std::size_t shown_max = 3;
  std::string text;
  std::size_t more = 0;
  for (auto& [name, stream] : reservation.streams()) {
    std::size_t shown = 0;
    for (const auto& [number, step] : stream->state().steps) {
      const auto extents = extents_read(step.committed);
      if (std::ranges::find(extents, segment, &Extent::segment) == extents.end()) continue;
      if (text.size() > 150 || shown == shown_max) {
        ++more;
        continue;
      }
      text +=
          shown++ > 0 ? fmt::format(", {}", number) : fmt::format("{}{}: {}", text.empty() ? "" : "; ", name, number);
    }
  }
  if (text.empty()) return "no step lies in it";
  return "steps that lie in it are lost or damaged (" + text + (more > 0 ? fmt::format(" and {} more)", more) : ")");
}

void audit_members(Reservation& reservation, std::vector<Finding>& findings) {
  const std::string where = "reservation " + reservation.name();
  const OtherMembers* const others = reservation.space().segments().others();
  if (!reservation.trouble().empty()) {
    add_problem(findings, where, reservation.trouble());
  } else if (others != nullptr) {
    for (std::uint16_t member = 1; member < reservation.record().members.size(); ++member)
      if (const std::string* const old = others->old_copy(member)) add_problem(findings, where, *old);
  }
}

void audit_segments(AdministeredServer& server, Reservation& reservation, std::vector<Finding>& findings) {
  for (std::uint32_t segment = 0; segment < reservation.space().map().segment_count(); ++segment) {
    // One that nobody writes is not looked at otherwise.
    (void)reservation.space().guard().look(segment);
  }
  for (const auto& [segment, what] : reservation.space().segments().damaged()) {
    add_problem(findings, server.stream_services().store.segment_path(reservation.record().id, segment),
                fmt::format("the segment {}; {}; it is out of use until it holds none and no process writes it", what,
                            steps_in(reservation, segment)));
  }
}

}  // namespace

std::vector<Finding> few_of_each(std::vector<Finding> findings) {
  constexpr std::size_t shown_max = 16;
  std::map<std::string, std::size_t> counts;
  std::erase_if(findings, [&](const Finding& finding) { return ++counts[finding.where] > shown_max; });
  for (const auto& [where, count] : counts) {
    if (count > shown_max) add_problem(findings, where, fmt::format("{} more findings like these", count - shown_max));
  }
  return findings;
}

std::vector<Finding> audit_accounting(AdministeredServer& server) {
  std::vector<Finding> findings;
  for (const std::string& problem : server.start_problems()) add_problem(findings, server.info().root, problem);
  for (const std::string& gap : server.unprotected())
    findings.push_back({Finding::Severity::note, server.info().root, gap});
  for (auto& [name, reservation] : server.reservations().all()) {
    if (reservation->retiring()) continue;
    for (const std::string& problem : reservation->space().problems)
      add_problem(findings, "reservation " + name, problem);
    for (const auto& [stream_name, why] : reservation->unreadable_streams()) {
      add_problem(findings, "stream " + name + "/" + stream_name,
                  "cannot be opened: " + why + "; repair the disk and restart the server, or remove the stream");
    }
    for (auto& [stream_name, stream] : reservation->streams()) audit_stream(*stream, findings);
    audit_members(*reservation, findings);
    if (auto text = text_of_unfinished(*reservation); !text.empty())
      add_problem(findings, "reservation " + name, std::move(text));
    if (auto text = text_of_untouched(*reservation); !text.empty())
      findings.push_back({Finding::Severity::note, "reservation " + name, std::move(text)});
    audit_space(*reservation, findings);
    audit_segments(server, *reservation, findings);
  }
  return findings;
}

std::vector<FilesToMeasure> files_to_measure(AdministeredServer& server) {
  std::vector<FilesToMeasure> files;
  for (auto& [name, reservation] : server.reservations().all()) {
    if (!reservation->retiring()) files.push_back({name, reservation->record().id, reservation->record().files_bytes});
  }
  return files;
}

std::vector<Finding> audit_files(AdministeredServer& server, const std::vector<FilesToMeasure>& files) {
  std::vector<Finding> findings;
  for (const FilesToMeasure& entry : files) {
    const bool has_files = server.stream_services().store.has_its_files(entry.id);
    if (!has_files && server.stream_services().store.is_in_place(entry.id)) {
      add_problem(findings, "reservation " + entry.reservation,
                  "the image of its files/ is not mounted; restart the server, which mounts it or says what is in the "
                  "way");
      continue;
    }
    // One that is destroyed meanwhile has no files to find fault with.
    const auto used = server.stream_services().store.measure_files(entry.id);
    if (!used && !server.stream_services().store.is_in_place(entry.id)) continue;
    const std::string where = "reservation " + entry.reservation;
    if (!used || used->missed > 0) {
      add_problem(findings, where,
                  fmt::format("{} of its files/ cannot be measured: {}; remove what is in the way",
                              used ? fmt::format("{} entries", used->missed) : "all",
                              used ? used->first_missed : used.error().message()));
    }
    if (!used || used->bytes <= entry.granted_bytes) continue;
    if (entry.granted_bytes == 0) {
      findings.push_back({Finding::Severity::note, where,
                          fmt::format("files/ takes {}, and no capacity was granted for files; a reservation that is "
                                      "created with --files has one",
                                      size_text(used->bytes))});
    } else {
      add_problem(findings, where,
                  fmt::format("files/ takes {}, but {} were granted for files; remove some, or move them to a "
                              "reservation that is created with more --files",
                              size_text(used->bytes), size_text(entry.granted_bytes)));
    }
  }
  return findings;
}

}  // namespace forebay::server
