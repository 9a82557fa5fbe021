// SPDX-License-Identifier: Apache-2.0
// Which kept steps of a stream belong to which run. A reader that names a run takes no step of another, also after a
// restart of the server.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <forebay/reader.h>
#include <forebay/result.h>
#include <forebay/storage/journal_generated.h>

namespace forebay::storage {

/// Where a run's steps lie: from `first` on, and before `end` if another run has begun since.
struct RunRange {
  std::uint64_t first = 0;
  std::optional<std::uint64_t> end;
  StreamStatus status = StreamStatus::live;  ///< with `end`: the stream's when the next run began
};

class RunHistory {
 public:
  /// Says whether a step of these numbers, the second excluded, is kept.
  using KeepsStep = std::function<bool(std::uint64_t first, std::uint64_t end)>;

  /// A group of this run (empty: of none) begins with step `first`. `before`: the stream's status until now. Forgets
  /// earlier runs of which no step is kept.
  void begin(const std::string& run, std::uint64_t first, StreamStatus before, const KeepsStep& keeps_step);
  /// The steps from `first` on were withdrawn.
  void withdraw(std::uint64_t first);
  /// The steps of the newest group of this run and of those of the same run right before it. Nothing if the run has not
  /// begun, or if another one has begun since and no step of this one is kept.
  std::optional<RunRange> find(std::string_view run, const KeepsStep& keeps_step) const;
  /// The run that the last steps belong to; empty: none.
  std::string_view latest() const noexcept;

  std::vector<std::unique_ptr<journal::RunStepsT>> to_record() const;
  /// corrupt if the runs are not in order, or begin after `next_step`.
  static Result<RunHistory> of_record(std::vector<std::unique_ptr<journal::RunStepsT>>& record,
                                      std::uint64_t next_step);

 private:
  struct Entry {
    std::uint64_t first = 0;
    std::string run;
    StreamStatus status = StreamStatus::live;
  };

  std::vector<Entry> entries_;  ///< by first step
};

}  // namespace forebay::storage
