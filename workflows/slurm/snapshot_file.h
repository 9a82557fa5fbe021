// SPDX-License-Identifier: Apache-2.0
// What the programs for Slurm read: where the instance lies, and the snapshot that its manager replaces. Sections of a
// file begin with a line "== NAME", and the file ends with "== end". The scheduler's snapshot says in its section
// "parts" how many files PATH.0, PATH.1 … beside it have the sessions; workflows/slurm/slurm_files.py writes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace forebay::slurm {

constexpr std::size_t file_bytes_max = std::size_t{4} << 20;
constexpr std::size_t snapshot_bytes_max = std::size_t{64} << 20;

/// The file's content; nothing if it cannot be read or is larger, with the reason in errno.
std::optional<std::string> read_file(const std::string& path, std::size_t bytes_max);

/// The root that the configuration names, else /var/lib/forebay; nothing if it cannot be read, with the reason in
/// `problem`.
std::optional<std::string> instance_root(std::string& problem);

/// One file of a snapshot, as it was when it was opened.
class Snapshot {
 public:
  explicit Snapshot(const std::string& path);

  /// False if there is none, or what is there is no whole one.
  bool is_whole() const { return is_whole_; }

  /// The lines of a section; nothing if there is none of that name. Lives as long as the snapshot.
  std::optional<std::string_view> section(std::string_view name) const&;
  std::optional<std::string> section(std::string_view name) &&;

 private:
  std::string content_;
  bool is_whole_ = false;
};

/// The parts that belong to the snapshot at `path`; nothing if one of them is missing or not whole.
std::optional<std::vector<Snapshot>> parts_of(const std::string& path, const Snapshot& head);

/// The part that has the job of this number; nothing if it is missing or not whole.
std::optional<Snapshot> part_of_job(const std::string& path, const Snapshot& head, std::uint64_t job);

/// The items of all parts' lists of this name, with ", " between them.
std::string joined_items(const std::vector<Snapshot>& parts, std::string_view name);

}  // namespace forebay::slurm
