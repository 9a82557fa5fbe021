// SPDX-License-Identifier: Apache-2.0
#include "storage/run_history.h"

#include <utility>

#include "storage/record_check.h"

namespace forebay::storage {

void RunHistory::begin(const std::string& run, std::uint64_t first, StreamStatus before, const KeepsStep& keeps_step) {
  // A run without a step leaves no trace.
  while (!entries_.empty() && entries_.back().first == first && entries_.back().run != run) entries_.pop_back();
  if (latest() == run) {
    if (!entries_.empty()) entries_.back().status = StreamStatus::live;
    return;
  }
  if (!entries_.empty() && entries_.back().status == StreamStatus::live) entries_.back().status = before;
  entries_.push_back({first, run, StreamStatus::live});
  std::vector<Entry> wanted;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const bool last = i + 1 == entries_.size();
    if (last || keeps_step(entries_[i].first, entries_[i + 1].first)) wanted.push_back(std::move(entries_[i]));
  }
  entries_ = std::move(wanted);
}

void RunHistory::withdraw(std::uint64_t first) {
  while (!entries_.empty() && entries_.back().first > first) entries_.pop_back();
}

std::optional<RunRange> RunHistory::find(std::string_view run, const KeepsStep& keeps_step) const {
  for (std::size_t i = entries_.size(); i-- > 0;) {
    const Entry& entry = entries_[i];
    if (entry.run != run) continue;
    if (i + 1 == entries_.size()) return RunRange{entry.first, std::nullopt, StreamStatus::live};
    const std::uint64_t end = entries_[i + 1].first;
    if (keeps_step(entry.first, end)) return RunRange{entry.first, end, entry.status};
  }
  return std::nullopt;
}

std::string_view RunHistory::latest() const noexcept {
  return entries_.empty() ? std::string_view() : std::string_view(entries_.back().run);
}

std::vector<std::unique_ptr<journal::RunStepsT>> RunHistory::to_record() const {
  std::vector<std::unique_ptr<journal::RunStepsT>> record;
  for (const Entry& entry : entries_) {
    auto made = std::make_unique<journal::RunStepsT>();
    made->first = entry.first;
    made->run = entry.run;
    made->status = static_cast<std::uint8_t>(entry.status);
    record.push_back(std::move(made));
  }
  return record;
}

Result<RunHistory> RunHistory::of_record(std::vector<std::unique_ptr<journal::RunStepsT>>& record,
                                         std::uint64_t next_step) {
  RunHistory history;
  for (auto& entry : record) {
    const bool ordered = history.entries_.empty() || entry->first > history.entries_.back().first;
    if (!ordered || entry->first > next_step) {
      return fail(ErrorCode::corrupt, "the steps of run \"" + entry->run + "\" begin with " +
                                          std::to_string(entry->first) + ", out of order or after the last step");
    }
    if (!is_stream_status(entry->status))
      return fail(ErrorCode::corrupt, "run \"" + entry->run + "\" has status " + std::to_string(entry->status));
    history.entries_.push_back({entry->first, std::move(entry->run), static_cast<StreamStatus>(entry->status)});
  }
  return history;
}

}  // namespace forebay::storage
