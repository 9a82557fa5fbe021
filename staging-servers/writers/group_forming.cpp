// SPDX-License-Identifier: Apache-2.0
#include "writers/group_forming.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/return_error.h"
#include "storage/record_check.h"
#include "writers/writer_session.h"

namespace forebay::server {
namespace {

constexpr std::size_t original_name_bytes_max = 4096;
constexpr std::size_t missing_listed_max = 16;

const char* verb_of(std::uint8_t mode) {
  return mode == 1 ? "write" : "append";
}

}  // namespace

GroupForming::~GroupForming() {
  (void)take();
}

std::optional<Error> GroupForming::refusal(const wire::WriterOpenT& asked) const {
  const std::string where = "stream " + stream_;
  if (asked.ranks == 0 || asked.ranks > storage::ranks_max || asked.rank >= asked.ranks) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("rank {} of {} is impossible (number of ranks from {})", asked.rank, asked.ranks,
                             asked.ranks_source),
                 where};
  }
  if (asked.group.size() > storage::group_bytes_max) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("a group id can have at most {} bytes, this one has {}", storage::group_bytes_max,
                             asked.group.size()),
                 where};
  }
  if (asked.run.size() > storage::run_bytes_max) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("a run's name can have at most {} bytes, this one has {}", storage::run_bytes_max,
                             asked.run.size()),
                 where};
  }
  if (asked.original_name.size() > original_name_bytes_max) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("the name that the program opens can have at most {} bytes, this one has {}",
                             original_name_bytes_max, asked.original_name.size()),
                 where};
  }
  if (!is_empty() && this->asked().group != asked.group) {
    return Error{ErrorCode::busy,
                 fmt::format("another writer group (\"{}\") is forming for this stream; this rank is of group \"{}\"",
                             this->asked().group, asked.group),
                 where};
  }
  return std::nullopt;
}

bool GroupForming::awaits(const wire::WriterRefusedT& report) const {
  return !is_empty() && asked().group == report.group && asked().ranks == report.ranks && report.rank < report.ranks &&
         !candidates_.contains(report.rank);
}

std::optional<Error> GroupForming::conflict(const WriterSession& session, const wire::WriterOpenT& asked) const {
  if (is_empty()) return std::nullopt;
  const wire::WriterOpenT& first = this->asked();
  const auto error = [this](std::string what) {
    return Error{ErrorCode::invalid_argument, std::move(what), "stream " + stream_};
  };
  if (first.ranks != asked.ranks) {
    return error(fmt::format("ranks do not agree on their number: rank {} says {} (from {}), rank {} says {} (from {})",
                             first.rank, first.ranks, first.ranks_source, asked.rank, asked.ranks, asked.ranks_source));
  }
  if (first.mode != asked.mode) {
    return error(fmt::format("ranks do not agree on the mode: rank {} opens to {}, rank {} to {}", first.rank,
                             verb_of(first.mode), asked.rank, verb_of(asked.mode)));
  }
  if (first.run != asked.run) {
    return error(
        fmt::format("ranks do not agree on the run: rank {} gives \"{}\", rank {} gives \"{}\"; give all of "
                    "them the same Run (FOREBAY_RUN)",
                    first.rank, first.run, asked.rank, asked.run));
  }
  if (const auto same = candidates_.find(asked.rank); same != candidates_.end()) {
    return error(fmt::format("two processes are rank {} of {} (pids {} and {}); ranks come from {}", asked.rank,
                             asked.ranks, same->second.session->connection().peer().pid,
                             session.connection().peer().pid, asked.ranks_source));
  }
  return std::nullopt;
}

void GroupForming::add(WriterSession& session, std::uint32_t request, const wire::WriterOpenT& asked,
                       std::function<void(const wire::WriterOpenT&)> timed_out) {
  Candidate candidate;
  candidate.session = &session;
  candidate.request = request;
  candidate.asked = asked;
  candidate.asked.gone = {};
  candidate.asked.near = {};
  candidate.since_ns = wall_clock_ns();
  const Deadline deadline = Deadline::after_ms(asked.open_timeout_ms);
  if (!deadline.is_never()) {
    candidate.timer = loop_.at(deadline.at_ns(), [this, rank = asked.rank, timed_out = std::move(timed_out)] {
      Candidate& late = candidates_.at(rank);
      late.timer.reset();
      timed_out(late.asked);
    });
  }
  candidates_.emplace(asked.rank, std::move(candidate));
}

void GroupForming::drop(const WriterSession& session) {
  for (auto candidate = candidates_.begin(); candidate != candidates_.end(); ++candidate) {
    if (candidate->second.session != &session) continue;
    if (candidate->second.timer) loop_.cancel(*candidate->second.timer);
    candidates_.erase(candidate);
    return;
  }
}

std::map<std::uint32_t, GroupForming::Candidate> GroupForming::take() {
  auto candidates = std::exchange(candidates_, {});
  for (auto& [rank, candidate] : candidates) {
    if (candidate.timer) loop_.cancel(*candidate.timer);
    candidate.timer.reset();
  }
  return candidates;
}

void GroupForming::fail_all(const Error& error) {
  for (const auto& [rank, candidate] : take()) candidate.session->connection().answer_failure(candidate.request, error);
}

std::string GroupForming::describe_missing() const {
  if (is_empty()) return {};
  std::string text;
  // Not all ranks are looked at: a group may say that it has a million.
  const std::size_t missing = asked().ranks - candidates_.size();
  const std::size_t listed = std::min(missing, missing_listed_max);
  std::size_t found = 0;
  for (std::uint32_t rank = 0; found < listed; ++rank) {
    if (candidates_.contains(rank)) continue;
    text += (text.empty() ? "" : ", ") + std::to_string(rank);
    ++found;
  }
  if (missing > listed) text += fmt::format(" and {} more", missing - listed);
  return text;
}

void GroupForming::describe_waits(const std::string& wanted, std::vector<StreamWait>& waits) const {
  for (const auto& [rank, candidate] : candidates_)
    waits.push_back(writer_wait(*candidate.session, StreamWait::Kind::group, wanted, candidate.since_ns));
}

std::vector<std::uint64_t> GroupForming::openings() const {
  std::vector<std::uint64_t> openings;
  for (const auto& [rank, candidate] : candidates_) openings.push_back(candidate.asked.opening);
  return openings;
}

std::vector<std::string> GroupForming::processes() const {
  std::vector<std::string> processes;
  for (const auto& [rank, candidate] : candidates_) {
    if (candidate.asked.process.empty()) return {};
    processes.push_back(candidate.asked.process);
  }
  return processes;
}

Result<journal::GroupFormedT> GroupForming::record(const storage::StreamState& state) const {
  const wire::WriterOpenT& asked = this->asked();
  const std::string where = "stream " + stream_;
  if (state.status == StreamStatus::failed) {
    return fail(ErrorCode::failed, "the stream has failed and takes no more steps: " + state.status_text, where);
  }
  journal::GroupFormedT formed;
  if (!asked.retention.empty()) {
    ASSIGN_OR_RETURN(const Retention retention, parse_retention(asked.retention));
    formed.retention = to_string(retention);
  }
  if (static_cast<WriteMode>(asked.mode) == WriteMode::replace) {
    const auto precious = std::ranges::count_if(state.steps, [](const auto& entry) { return entry.second.precious(); });
    if (precious > 0 && !asked.force) {
      return fail(ErrorCode::refused,
                  fmt::format("{} precious steps of this stream are not staged out yet and would be lost; stage them "
                              "out, append instead, or force it (Force=true, in Python force=True)",
                              precious),
                  where);
    }
    if (state.next_step > 0) formed.withdraws_from = 0;
  } else if (asked.append_after) {
    if (*asked.append_after >= state.next_step) {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("cannot append after step {}: the stream {}", *asked.append_after,
                              state.next_step == 0 ? std::string("is empty")
                                                   : fmt::format("ends with step {}", state.next_step - 1)),
                  where);
    }
    if (*asked.append_after + 1 < state.next_step) formed.withdraws_from = *asked.append_after + 1;
  }
  formed.incarnation = (state.group ? state.group->incarnation : 0) + 1;
  formed.ranks = asked.ranks;
  formed.group = asked.group;
  formed.run = asked.run;
  formed.original_name = asked.original_name;
  // A group that goes on without a name has not changed what the stream is called.
  if (asked.original_name.empty() && state.group && static_cast<WriteMode>(asked.mode) == WriteMode::append)
    formed.original_name = state.group->original_name;
  formed.epoch = formed.withdraws_from ? state.epoch + 1 : state.epoch;
  formed.next_step = formed.withdraws_from.value_or(state.next_step);
  formed.when_full = asked.when_full;
  formed.grace_ms = asked.grace_ms;
  formed.distribution = asked.distribution;
  formed.block_timeout_ms = asked.block_timeout_ms;
  formed.durability = asked.durability;
  if (asked.ranks <= storage::openings_max) {
    formed.openings = openings();
    formed.processes = processes();
  }
  return formed;
}

}  // namespace forebay::server
