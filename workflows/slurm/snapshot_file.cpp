// SPDX-License-Identifier: Apache-2.0
#include "snapshot_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <system_error>
#include <utility>

#include "configuration_file.h"

namespace forebay::slurm {
namespace {

constexpr std::string_view mark = "== ";
constexpr std::string_view end_line = "== end\n";
constexpr std::size_t parts_max = 4096;

/// How many parts the snapshot has; 0 if it does not say so.
std::size_t part_count(const Snapshot& head) {
  const auto told = head.section("parts");
  if (!told) return 0;
  std::size_t count = 0;
  const char* const end = told->data() + told->size();
  const auto [after, error] = std::from_chars(told->data(), end, count);
  return error == std::errc() && after != end && *after == '\n' && count <= parts_max ? count : 0;
}

std::string part_path(const std::string& path, std::size_t number) {
  return path + "." + std::to_string(number);
}

}  // namespace

std::optional<std::string> read_file(const std::string& path, std::size_t bytes_max) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return std::nullopt;
  std::string content;
  char buffer[65536];
  while (content.size() <= bytes_max) {
    const ssize_t count = ::read(descriptor, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const int error = errno;
      ::close(descriptor);
      errno = error;
      if (count < 0) return std::nullopt;
      return content;
    }
    content.append(buffer, static_cast<std::size_t>(count));
  }
  ::close(descriptor);
  errno = EFBIG;
  return std::nullopt;
}

std::optional<std::string> instance_root(std::string& problem) {
  const auto configuration = ConfigurationFile::read(problem);
  if (!configuration) return std::nullopt;
  return configuration->text("", "root", "/var/lib/forebay", problem);
}

Snapshot::Snapshot(const std::string& path) {
  auto content = read_file(path, snapshot_bytes_max);
  if (!content) return;
  content_ = std::move(*content);
  is_whole_ = content_.ends_with(end_line);
}

std::optional<std::string_view> Snapshot::section(std::string_view name) const& {
  const std::string head = std::string(mark) + std::string(name) + "\n";
  // A name with a line break in it would be another section's.
  if (!is_whole_ || name.find('\n') != std::string_view::npos || head == end_line) return std::nullopt;
  std::size_t begin = 0;
  if (!content_.starts_with(head)) {
    begin = content_.find("\n" + head);
    if (begin == std::string::npos) return std::nullopt;
    ++begin;
  }
  begin += head.size();
  // Every section is followed by another, or by the end. An empty one is followed at once.
  const std::size_t end = content_.find("\n" + std::string(mark), begin - 1);
  return std::string_view(content_).substr(begin, end + 1 - begin);
}

std::optional<std::string> Snapshot::section(std::string_view name) && {
  const auto found = std::as_const(*this).section(name);
  if (!found) return std::nullopt;
  return std::string(*found);
}

std::optional<std::vector<Snapshot>> parts_of(const std::string& path, const Snapshot& head) {
  const std::size_t count = part_count(head);
  if (count == 0) return std::nullopt;
  std::vector<Snapshot> parts;
  parts.reserve(count);
  for (std::size_t number = 0; number < count; ++number) {
    if (!parts.emplace_back(part_path(path, number)).is_whole()) return std::nullopt;
  }
  return parts;
}

std::optional<Snapshot> part_of_job(const std::string& path, const Snapshot& head, std::uint64_t job) {
  const std::size_t count = part_count(head);
  if (count == 0) return std::nullopt;
  Snapshot part(part_path(path, job % count));
  if (!part.is_whole()) return std::nullopt;
  return part;
}

std::string joined_items(const std::vector<Snapshot>& parts, std::string_view name) {
  std::string items;
  for (const Snapshot& part : parts) {
    auto own = part.section(name).value_or("");
    if (own.ends_with('\n')) own.remove_suffix(1);
    if (own.empty()) continue;
    if (!items.empty()) items += ", ";
    items += own;
  }
  return items;
}

}  // namespace forebay::slurm
