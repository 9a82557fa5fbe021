// SPDX-License-Identifier: Apache-2.0
// What the mover tells the stage's process: JSON, one object a line. Format: docs/design/file-mover.md.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <forebay/result.h>

#include "mover/status.h"

namespace forebay::mover {

/// One row of the receipt.
struct FileRow {
  std::string path;  ///< relative to the target; empty: the target itself
  std::uint64_t size_bytes = 0;
  std::int64_t mtime_ns = 0;
  std::uint32_t checksum = 0;
};

/// How a stage ended.
struct Summary {
  std::string source;
  std::string target;
  std::uint64_t files = 0;
  std::uint64_t copied = 0;
  std::vector<std::string> not_kept;
};

/// A JSON text in quotes. Bytes that are not UTF-8 become the escapes that Python's surrogateescape reads.
std::string json_text(std::string_view text);

/// Thread-safe.
class Report {
 public:
  explicit Report(int out) : out_(out) {}

  void plan(std::uint64_t items, std::uint64_t bytes, std::uint64_t missing_bytes);
  /// Entries are whole, and are about to get their names.
  void built();
  /// What is being worked on.
  void begin(std::string_view path);
  void advance(std::uint64_t bytes);
  void finished(bool kept);
  void row(const FileRow& row);
  void note(std::string_view text);
  void not_kept(NotKept what, const std::string& path);
  /// Of a file of which nobody could tell whether a program has it open for writing.
  void unprobed(const std::string& path);
  void done(Summary summary);
  void failed(const Error& error);

  std::uint64_t items_done() const noexcept { return items_done_; }
  std::uint64_t items_kept() const noexcept { return items_kept_; }
  /// Nobody reads any more.
  bool closed() const noexcept { return closed_; }
  /// What was not kept, as sentences.
  std::vector<std::string> lacking() const;

 private:
  void progress(bool at_once);
  void flush_rows();
  void write(const std::string& line);
  struct Lacking {
    std::uint64_t count = 0;
    std::string first;
  };

  const int out_;
  mutable std::mutex mutex_;
  std::string item_;
  std::string rows_;
  std::array<Lacking, static_cast<std::size_t>(NotKept::count)> lacking_;
  Lacking unprobed_;
  std::chrono::steady_clock::time_point written_at_{};
  std::atomic<std::uint64_t> items_done_ = 0;
  std::atomic<std::uint64_t> items_kept_ = 0;
  std::atomic<std::uint64_t> bytes_done_ = 0;
  std::atomic<std::int64_t> next_progress_ns_ = 0;
  std::atomic<bool> closed_ = false;
};

}  // namespace forebay::mover
