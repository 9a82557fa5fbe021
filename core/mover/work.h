// SPDX-License-Identifier: Apache-2.0
// What all parts of one stage share.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "base/descriptor.h"
#include "base/file_system_user.h"
#include "mover/content.h"
#include "mover/name_walk.h"
#include "mover/report.h"
#include "mover/status.h"
#include "mover/worker_pool.h"

namespace forebay::mover {

/// One of the two ends: whose rights, and what its walks may cross.
struct End {
  const FileSystemUser* user = nullptr;  ///< null: the process's own
  Mounts mounts = Mounts::crossed;
  std::string text;  ///< what is staged, or where to, for messages
};

/// A directory at both ends. Whoever works in it holds it.
struct DirectoryPair {
  Descriptor source;
  Descriptor target;
};

/// A file of several names that has been copied, or was kept.
struct FirstName {
  std::string path;        ///< below the folder that is built in, or below the target
  bool published = false;  ///< below the target
  FileIdentity target;
  FileRow row;
};

/// Files of which the source has several names, by what they are there.
class HardLinks {
 public:
  /// True for the name that asks first, which is the one to be copied. The others come later.
  bool claim(FileIdentity source, const std::string& shown) {
    const std::lock_guard lock(mutex_);
    const auto [found, is_new] = names_.try_emplace(source, Claimed{shown, std::nullopt});
    return is_new || found->second.by == shown;
  }
  void put(FileIdentity source, FirstName name) {
    const std::lock_guard lock(mutex_);
    names_[source].name = std::move(name);
  }
  std::optional<FirstName> find(FileIdentity source) const {
    const std::lock_guard lock(mutex_);
    const auto found = names_.find(source);
    return found == names_.end() ? std::nullopt : found->second.name;
  }
  /// What was built as `path` in the folder, with all below it, has its name below the target now.
  void published(const std::string& path, const std::string& shown) {
    const std::lock_guard lock(mutex_);
    for (auto& [source, claimed] : names_) {
      std::optional<FirstName>& name = claimed.name;
      if (!name || name->published || (name->path != path && !name->path.starts_with(path + "/"))) continue;
      const std::string below = name->path.substr(path.size());
      name->path = shown.empty() && !below.empty() ? below.substr(1) : shown + below;
      name->published = true;
    }
  }

 private:
  struct Claimed {
    std::string by;
    std::optional<FirstName> name;
  };
  mutable std::mutex mutex_;
  std::map<FileIdentity, Claimed> names_;
};

struct Work {
  Report& report;
  WorkerPool& pool;
  const std::atomic<bool>& stopping;
  End source;
  End target;
  Owner owner;  ///< of what is made at the target
  bool carries_lists = false;
  std::function<Result<void>()> confirm;  ///< asks the stage's process whether to go on
  HardLinks links;
  bool must_know_writers = false;  ///< else "nobody can tell" is told, and passes
  /// Until then, files that are being written are waited for.
  std::optional<std::chrono::steady_clock::time_point> closed_until;

  std::string source_name(const std::string& shown) const {
    return shown.empty() ? source.text : source.text + "/" + shown;
  }
  std::string target_name(const std::string& shown) const {
    return shown.empty() ? target.text : target.text + "/" + shown;
  }
  Result<void> check_not_stopped() const {
    if (stopping || report.closed()) return fail(ErrorCode::cancelled, "the stage was told to stop");
    return {};
  }
  /// Counts bytes, and ends the work if the stage is to stop.
  Advance advance() {
    return [this](std::uint64_t bytes) {
      report.advance(bytes);
      return check_not_stopped();
    };
  }
  /// Ends it alone.
  Advance silent_advance() {
    return [this](std::uint64_t) { return check_not_stopped(); };
  }
};

}  // namespace forebay::mover
