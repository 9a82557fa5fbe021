// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/client/faults/told.h"

#include <algorithm>
#include <filesystem>
#include <limits>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "storage/journal.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/client/numbered_content.h"

namespace forebay::testing {
namespace {

/// The lowest that the stream's end may be in `epoch`, if `promised` was.
std::uint64_t least_next(const ToldStream& told, const std::optional<Place>& promised, std::uint32_t epoch) {
  if (!promised) return 0;
  std::uint64_t next = promised->next;
  const auto note = [&](const auto& rewind) {
    if (rewind.first > promised->epoch && rewind.first <= epoch) next = std::min(next, rewind.second);
  };
  std::ranges::for_each(told.rewinds, note);
  std::ranges::for_each(told.maybe_rewinds, note);
  return next;
}

/// The number of the oldest step that must still be there if the stream ends at `next`.
std::uint64_t oldest_needed(const ToldStream& told, std::uint64_t next, std::uint64_t cursor) {
  const Retention& retention = told.retention;
  if (retention.keeps_all()) return told.kept_when_full ? next - std::min(next, *told.kept_when_full) : 0;
  std::uint64_t oldest = retention.last ? next - std::min(next, *retention.last) : next;
  if (!retention.consumers.empty()) oldest = std::min(oldest, cursor);
  return oldest;
}

std::uint64_t highest_sent(const ToldStream& told) {
  std::uint64_t highest = 0;
  for (const auto& [key, contents] : told.sent) highest = std::max(highest, key.second);
  return highest;
}

/// No step of an epoch that was left behind stands where a later one has begun.
void check_not_mixed(const ToldStream& told, const std::vector<StepSummary>& steps,
                     const std::optional<Place>& promised) {
  std::uint32_t newest = promised ? promised->epoch : 0;
  for (const StepSummary& step : steps) newest = std::max(newest, step.epoch);
  for (const auto& [begun, first] : told.rewinds) {
    if (begun > newest) continue;
    for (const StepSummary& step : steps) {
      EXPECT_FALSE(step.epoch < begun && step.step >= first)
          << "step " << step.step << " of epoch " << step.epoch << " was withdrawn by epoch " << begun;
    }
  }
}

/// `next`: where the stream ends.
void check_content(const ToldStream& told, Reader& reader, const StepSummary& summary, std::uint64_t next) {
  SCOPED_TRACE("step " + std::to_string(summary.step) + ", epoch " + std::to_string(summary.epoch));
  const auto key = std::pair(summary.epoch, summary.step);
  const auto sent = told.sent.find(key);
  ASSERT_NE(sent, told.sent.end()) << "nobody has sent it";
  // Of what a reader had held, a consumer or one of an earlier check, the last pin goes behind its last call: a step
  // that retention does not keep may have gone since the list was made, or go while it is read without a pin.
  const auto may_go = [&](const Error& error) {
    return error.code == ErrorCode::step_gone && summary.step < oldest_needed(told, next, told.cursor_highest);
  };
  auto step = reader.step(summary.step);
  if (!step && may_go(step.error())) return;
  ASSERT_TRUE(step) << step.error().message();
  const auto content = content_of(**step);
  if (!content && !(*step)->pinned() && may_go(content.error())) return;
  ASSERT_TRUE(content) << content.error().message();
  EXPECT_TRUE(sent->second.contains(*content)) << *content;
  const auto committed = told.committed_contents.find(key);
  if (committed != told.committed_contents.end()) {
    EXPECT_EQ(*content, committed->second);
  }
  if (!told.checksums) return;
  const auto verified = (*step)->verify();
  if (!verified && !(*step)->pinned() && may_go(verified.error())) return;
  EXPECT_TRUE(verified) << verified.error().message();
}

void check_stream(const ToldStream& told, Promise promise, Admin& admin, const Address& address,
                  const storage::StreamState* before) {
  const auto& promised = promise == Promise::durable ? told.durable : told.committed;
  const auto& cursor_promised = promise == Promise::durable ? told.cursor_durable : told.cursor;
  const auto info = admin.stream(address);
  if (!info) {
    ASSERT_EQ(info.error().code, ErrorCode::not_found) << info.error().message();
    EXPECT_TRUE(!promised || told.may_be_gone) << "the stream is gone";
    return;
  }
  const std::uint64_t next = info->committed ? *info->committed + 1 : 0;
  const std::uint32_t epoch = before != nullptr ? before->epoch : info->epoch;
  const std::uint64_t next_before = before != nullptr ? before->next_step : next;
  if (before != nullptr) {
    EXPECT_GE(next, before->durable_next) << "cut before the durable watermark";
    EXPECT_LE(next, before->next_step);
    EXPECT_GT(info->epoch, before->epoch) << "what is written now may go by the name of a step that was lost";
    if (told.committed && !told.may_be_gone) {
      EXPECT_GT(info->epoch, told.committed->epoch) << "the same";
    }
    if (!told.checksums) {
      EXPECT_EQ(next, before->durable_next);
    }
  }
  // The stream may have been replaced by one of the same name, when its removal was asked for.
  if (promised && !told.may_be_gone) {
    EXPECT_GE(epoch, promised->epoch);
    EXPECT_GE(next, least_next(told, promised, epoch));
    if (promise == Promise::durable && before != nullptr) {
      EXPECT_GE(before->durable_next, least_next(told, promised, epoch));
    }
  }

  const auto steps = admin.steps(address);
  ASSERT_TRUE(steps) << steps.error().message();
  std::uint64_t cursor = 0;
  for (const ConsumerInfo& consumer : info->consumers) cursor = consumer.position;
  const std::uint64_t cursor_before =
      before != nullptr && !before->cursors.empty() ? before->cursors.begin()->second.position : cursor;
  std::uint64_t expected = steps->empty() ? next : steps->front().step;
  // What retention has dropped behind steps that were lost since is not there either.
  const std::uint64_t most = told.sent.empty() ? next_before : std::max(next_before, highest_sent(told) + 1);
  EXPECT_LE(expected, std::max(oldest_needed(told, most, cursor_before), next < next_before ? next : 0U));
  for (const StepSummary& step : *steps) EXPECT_EQ(step.step, expected++) << "a step is missing";
  EXPECT_EQ(expected, next);
  check_not_mixed(told, *steps, promised);

  EXPECT_LE(cursor, next);
  EXPECT_LE(cursor, told.cursor_highest);
  if (before != nullptr) {
    EXPECT_EQ(cursor, std::min(cursor_before, next));
  }
  if (cursor_promised) {
    EXPECT_GE(cursor, std::min(least_next(told, cursor_promised, epoch), next));
  }

  ReaderOptions options;
  options.follow = false;
  options.verify = told.checksums ? Verify::read : Verify::none;
  const auto reader = Reader::open(address, options);
  ASSERT_TRUE(reader) << reader.error().message();
  for (const StepSummary& step : *steps) check_content(told, **reader, step, next);
}

bool overlap(const storage::StepState& first, const storage::StepState& second) {
  for (const auto& part : first.committed.parts) {
    for (const auto& other_part : second.committed.parts) {
      for (const auto& a : part->extents) {
        const auto meets = [&](const auto& b) {
          return a.segment() == b.segment() && a.offset() < b.offset() + b.length() &&
                 b.offset() < a.offset() + a.length();
        };
        if (std::ranges::any_of(other_part->extents, meets)) return true;
      }
    }
  }
  return false;
}

bool durable_step_overlaps(const storage::StreamState& state, const storage::StepState& step) {
  return std::any_of(state.steps.begin(), state.steps.lower_bound(state.durable_next),
                     [&](const auto& durable) { return overlap(durable.second, step); });
}

}  // namespace

std::set<std::string> visit_journals(const std::string& root, const RecordVisitor& visit) {
  std::set<std::string> whole;
  for (const auto& reservation : std::filesystem::directory_iterator(root + "/reservations")) {
    if (!std::filesystem::exists(reservation.path() / "streams")) continue;
    for (const auto& directory : std::filesystem::directory_iterator(reservation.path() / "streams")) {
      // Opening a journal mends it, so that a copy is opened.
      const auto copy = TemporaryDirectory::in_memory();
      std::filesystem::copy(directory.path(), copy.path(), std::filesystem::copy_options::recursive);
      const std::string stream = directory.path().filename();
      storage::JournalRecovery recovery;
      const auto visit_record = [&](journal::RecordType type, std::span<const std::byte> body) {
        return visit(stream, type, body);
      };
      if (!storage::Journal::open(posix_device(), copy.path(), visit_record, recovery)) continue;
      EXPECT_FALSE(recovery.damaged) << recovery.damage;
      whole.insert(stream);
    }
  }
  return whole;
}

std::map<std::string, storage::StreamState> states_on_disk(const std::string& root) {
  std::map<std::string, storage::StreamState> states;
  const auto whole = visit_journals(
      root, [&](const std::string& stream, auto type, auto body) { return states[stream].apply(type, body); });
  std::erase_if(states, [&](const auto& entry) { return !whole.contains(entry.first); });
  return states;
}

std::map<std::string, std::uint64_t> overtaken_steps(const std::map<std::string, storage::StreamState>& states) {
  std::map<std::string, std::uint64_t> overtaken;
  for (const auto& [name, state] : states) {
    for (auto step = state.steps.lower_bound(state.durable_next); step != state.steps.end(); ++step) {
      const bool gone = std::ranges::any_of(states, [&](const auto& other) {
        return other.first != name && durable_step_overlaps(other.second, step->second);
      });
      if (!gone) continue;
      overtaken.emplace(name, step->first);
      break;
    }
  }
  return overtaken;
}

std::string description(Admin& admin, const std::string& reservation) {
  const auto streams = admin.streams(reservation);
  EXPECT_TRUE(streams) << streams.error().message();
  std::string text;
  for (const StreamInfo& info : *streams) {
    text += fmt::format("{} {} {}", info.name, info.uuid, to_string(info.status));
    if (info.committed) text += fmt::format(", to {}", *info.committed);
    for (const ConsumerInfo& consumer : info.consumers)
      text += fmt::format(", {} @ {}", consumer.name, consumer.position);
    text += "\n";
  }
  return text;
}

void check_streams(const Told& told, Promise promise, Admin& admin, const std::string& reservation,
                   const std::map<std::string, storage::StreamState>* before) {
  for (const auto& [name, step] :
       before != nullptr ? overtaken_steps(*before) : std::map<std::string, std::uint64_t>()) {
    const auto info = admin.stream({reservation, name, std::nullopt});
    ASSERT_TRUE(info) << info.error().message();
    EXPECT_TRUE(!info->committed || *info->committed < step)
        << "stream " << name << " was not cut at step " << step << ", whose space another stream's durable step has";
  }
  for (const auto& [name, stream] : told) {
    SCOPED_TRACE("stream " + name);
    const storage::StreamState* state = nullptr;
    if (before != nullptr) {
      if (const auto found = before->find(name); found != before->end()) state = &found->second;
    }
    check_stream(stream, promise, admin, {reservation, name, std::nullopt}, state);
  }
}

void check_audit(Admin& admin, bool failed_streams_allowed) {
  const auto findings = admin.audit(true);
  ASSERT_TRUE(findings) << findings.error().message();
  for (const Finding& finding : *findings) {
    if (failed_streams_allowed && finding.what.starts_with("has failed")) continue;
    EXPECT_NE(finding.severity, Finding::Severity::problem) << finding.where << ": " << finding.what;
  }
}

}  // namespace forebay::testing
