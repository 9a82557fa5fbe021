// SPDX-License-Identifier: Apache-2.0
#include "mover/report.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include <fmt/format.h>

namespace forebay::mover {
namespace {

constexpr std::int64_t interval_ns = 100'000'000;
constexpr std::size_t rows_bytes = 32768;  // more begins a new line

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Length of the valid UTF-8 sequence that the text begins with; 0: there is none.
std::size_t sequence_length(std::string_view text) {
  const auto byte = [&](std::size_t place) { return static_cast<unsigned char>(text[place]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xC2 && first < 0xE0   ? 2
                             : first >= 0xE0 && first < 0xF0 ? 3
                             : first >= 0xF0 && first < 0xF5 ? 4
                                                             : 0;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t place = 1; place < length; ++place)
    if ((byte(place) & 0xC0) != 0x80) return 0;
  // Overlong forms, surrogates, and what lies beyond the last character.
  if (first == 0xE0 && byte(1) < 0xA0) return 0;
  if (first == 0xED && byte(1) >= 0xA0) return 0;
  if (first == 0xF0 && byte(1) < 0x90) return 0;
  if (first == 0xF4 && byte(1) >= 0x90) return 0;
  return length;
}

std::string json_list(const std::vector<std::string>& texts) {
  std::string list = "[";
  for (const std::string& text : texts) list += (list.size() > 1 ? ", " : "") + json_text(text);
  return list + "]";
}

}  // namespace

std::string json_text(std::string_view text) {
  std::string quoted = "\"";
  while (!text.empty()) {
    const auto first = static_cast<unsigned char>(text[0]);
    const std::size_t length = sequence_length(text);
    if (length == 0) {
      quoted += fmt::format("\\udc{:02x}", first);
      text.remove_prefix(1);
      continue;
    }
    if (first < 0x20 || first == 0x7F) {
      quoted += fmt::format("\\u{:04x}", first);
    } else {
      if (first == '"' || first == '\\') quoted += '\\';
      quoted += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  return quoted + "\"";
}

void Report::plan(std::uint64_t items, std::uint64_t bytes, std::uint64_t missing_bytes) {
  const std::lock_guard lock(mutex_);
  write(fmt::format(R"({{"event": "plan", "items": {}, "bytes": {}, "missing_bytes": {}}})", items, bytes,
                    missing_bytes));
}

void Report::built() {
  const std::lock_guard lock(mutex_);
  // Whoever confirms remembers them first.
  flush_rows();
  write(R"({"event": "built"})");
}

void Report::begin(std::string_view path) {
  {
    const std::lock_guard lock(mutex_);
    item_ = path;
  }
  progress(false);
}

void Report::advance(std::uint64_t bytes) {
  bytes_done_ += bytes;
  progress(false);
}

void Report::finished(bool kept) {
  ++items_done_;
  if (kept) ++items_kept_;
  progress(false);
}

void Report::progress(bool at_once) {
  const std::int64_t now = now_ns();
  std::int64_t next = next_progress_ns_.load(std::memory_order_relaxed);
  if (!at_once && (now < next || !next_progress_ns_.compare_exchange_strong(next, now + interval_ns))) return;
  const std::lock_guard lock(mutex_);
  write(fmt::format(R"({{"event": "progress", "items_done": {}, "items_kept": {}, "bytes_done": {}, "item": {}}})",
                    items_done_.load(), items_kept_.load(), bytes_done_.load(), json_text(item_)));
}

void Report::row(const FileRow& row) {
  const std::lock_guard lock(mutex_);
  rows_ += fmt::format(R"({}{{"path": {}, "size_bytes": {}, "mtime_ns": {}, "crc32c": "{:08x}"}})",
                       rows_.empty() ? "" : ", ", json_text(row.path), row.size_bytes, row.mtime_ns, row.checksum);
  if (rows_.size() > rows_bytes) flush_rows();
}

void Report::flush_rows() {
  if (rows_.empty()) return;
  write(R"({"event": "files", "files": [)" + std::exchange(rows_, {}) + "]}");
}

void Report::note(std::string_view text) {
  const std::lock_guard lock(mutex_);
  write(R"({"event": "note", "text": )" + json_text(text) + "}");
}

void Report::not_kept(NotKept what, const std::string& path) {
  const std::lock_guard lock(mutex_);
  Lacking& lacking = lacking_[static_cast<std::size_t>(what)];
  if (lacking.count++ == 0) lacking.first = path;
}

void Report::unprobed(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (unprobed_.count++ == 0) unprobed_.first = path;
}

std::vector<std::string> Report::lacking() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> found;
  const auto add = [&](std::string_view what, const Lacking& lacking) {
    if (lacking.count == 0) return;
    const std::string first = lacking.first.empty() ? "." : lacking.first;
    found.push_back(lacking.count == 1 ? fmt::format("{}: {}", what, first)
                                       : fmt::format("{}: {} and {} more", what, first, lacking.count - 1));
  };
  for (std::size_t place = 0; place < lacking_.size(); ++place)
    add(std::string("not kept: ") + description_of(static_cast<NotKept>(place)), lacking_[place]);
  add("compared by size and time alone, since nobody could tell whether a program writes it", unprobed_);
  return found;
}

void Report::done(Summary summary) {
  progress(true);
  const std::lock_guard lock(mutex_);
  flush_rows();
  write(fmt::format(
      R"({{"event": "done", "source": {}, "target": {}, "files": {}, "copied": {}, "kept": {}, "not_kept": {}}})",
      json_text(summary.source), json_text(summary.target), summary.files, summary.copied,
      summary.files - summary.copied, json_list(summary.not_kept)));
}

void Report::failed(const Error& error) {
  progress(true);
  const std::lock_guard lock(mutex_);
  write(fmt::format(R"({{"event": "failed", "code": {}, "what": {}, "where": {}}})", json_text(to_string(error.code)),
                    json_text(error.what), json_text(error.where)));
}

void Report::write(const std::string& line) {
  std::string_view left;
  const std::string whole = line + "\n";
  left = whole;
  while (!left.empty() && !closed_) {
    const ssize_t count = ::write(out_, left.data(), left.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      closed_ = true;
      return;
    }
    left.remove_prefix(static_cast<std::size_t>(count));
  }
}

}  // namespace forebay::mover
