// SPDX-License-Identifier: Apache-2.0
// A Device over the real file system that counts and fails operations, stops as a killed process does, and loses what
// was not synced as a machine without power does. What it models and what not is said at lose_power().
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/device.h"
#include "tests/support/randomness.h"
#include "tests/support/unsynced_file.h"

namespace forebay::testing {

/// What changes something on the device, and the opening of files that are there.
enum class Operation : std::uint8_t {
  create,
  write,
  allocate,
  free_space,
  sync,
  rename,
  remove,
  make_directory,
  sync_directory,
  open
};

class FaultyDevice final : public Device {
 public:
  /// `limbo` is an existing directory on the same file system: what is removed is kept there until the power is lost.
  explicit FaultyDevice(std::string limbo, Device& device = posix_device())
      : device_(device), limbo_(std::move(limbo)) {}

  /// Operations that were asked for since the start or the last reset().
  std::uint64_t operations() const {
    const std::lock_guard lock(mutex_);
    return operations_;
  }
  std::uint64_t operations(Operation kind) const {
    const std::lock_guard lock(mutex_);
    const auto found = counts_.find(kind);
    return found == counts_.end() ? 0 : found->second;
  }

  /// Calls that read a file or a list of files since then; no Operation, so that those keep their numbers.
  std::uint64_t reads() const {
    const std::lock_guard lock(mutex_);
    return reads_;
  }

  /// The n-th operation of this kind from now on (from 1) fails and does nothing.
  void fail_at(Operation kind, std::uint64_t n, ErrorCode code = ErrorCode::io_error) {
    const std::lock_guard lock(mutex_);
    failure_ = Failure{kind, n, code};
  }
  /// The n-th operation of any kind from now on fails and does nothing; later ones succeed.
  void fail_at(std::uint64_t n, ErrorCode code = ErrorCode::io_error) {
    const std::lock_guard lock(mutex_);
    failure_ = Failure{std::nullopt, n, code};
  }
  /// The n-th read from now on fails; later ones succeed.
  void fail_read_at(std::uint64_t n) {
    const std::lock_guard lock(mutex_);
    reads_before_failure_ = n;
  }
  /// The process dies at the n-th operation from now on: neither it nor anything after it happens. A write is torn:
  /// half of it happens.
  void stop_at(std::uint64_t n) {
    const std::lock_guard lock(mutex_);
    operations_before_stop_ = n;
    stop_from_.reset();
  }
  /// As stop_at(), where the count begins with the next operation of this kind.
  void stop_from(Operation kind, std::uint64_t n) {
    const std::lock_guard lock(mutex_);
    operations_before_stop_ = n;
    stop_from_ = kind;
  }
  /// While set, syncs of files wait: what is written meanwhile is not what they sync.
  void set_syncs_held(bool held) {
    const std::lock_guard lock(mutex_);
    syncs_held_ = held;
    syncs_changed_.notify_all();
  }
  /// Returns when a sync of a file waits.
  void await_held_sync() { (void)await_held_syncs(1, std::chrono::hours(1)); }
  /// The same for so many; false if they do not come.
  bool await_held_syncs(std::uint64_t syncs, std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    return syncs_changed_.wait_for(lock, timeout, [&] { return syncs_waiting_ >= syncs; });
  }
  /// While set, renames are made but do not return.
  void set_renames_held(bool held) {
    const std::lock_guard lock(mutex_);
    renames_held_ = held;
    renames_changed_.notify_all();
  }
  /// Returns when a rename that is held has been made.
  void await_held_rename() {
    std::unique_lock lock(mutex_);
    renames_changed_.wait(lock, [this] { return rename_waits_; });
  }
  /// Files whose path contains this cannot be read, until it is empty again.
  void set_unreadable(std::string part) {
    const std::lock_guard lock(mutex_);
    unreadable_ = std::move(part);
  }
  /// While set, nothing can be allocated, no file made or lengthened by a write.
  void set_full(bool full) {
    const std::lock_guard lock(mutex_);
    full_ = full;
    operations_before_full_ = 0;
  }
  /// The device is full from the n-th operation from now on, until set_full(false).
  void fill_at(std::uint64_t n) {
    const std::lock_guard lock(mutex_);
    operations_before_full_ = n;
  }
  bool stopped() const {
    const std::lock_guard lock(mutex_);
    return stopped_;
  }

  /// A new process on the same machine: nothing is lost, nothing is planned, counting begins anew.
  void reset() {
    const std::lock_guard lock(mutex_);
    clear_plan();
  }

  /// As after reset(), with files that were put there otherwise and count as synced. Those of before must not be used
  /// after.
  void forget() {
    const std::lock_guard lock(mutex_);
    changes_.clear();
    inodes_.clear();
    clear_plan();
  }

  /// The machine goes down and comes up: of each 512 bytes of a file any number of the latest unsynced writes is lost,
  /// also of those that a sync which failed should have kept, whatever syncs came later; a file may fall back to the
  /// size at its last sync, and the latest changes of directories that no sync_directory covers are lost. As on
  /// journaling file systems, directories' changes persist in order. A file's sync does not make its name durable.
  /// Stores through a mapping are unsynced writes as well. Files and mappings of before must not be used after.
  void lose_power(Random& random) {
    const std::lock_guard lock(mutex_);
    for (auto& [key, inode] : inodes_) inode->lose(random);
    const std::size_t kept = below(random, changes_.size() + 1);
    while (changes_.size() > kept) {
      changes_.back().undo();
      changes_.pop_back();
    }
    changes_.clear();
    inodes_.clear();
    clear_plan();
  }

  /// As lose_power(), one change after another, the latest first: the machine keeps the order in which it was asked.
  /// Takes back the latest change that no sync has covered; false if there is none. forget() goes before further use.
  bool lose_latest() {
    const std::lock_guard lock(mutex_);
    UnsyncedFile* file = nullptr;
    std::uint64_t latest = 0;
    for (auto& [key, inode] : inodes_) {
      if (inode->latest() <= latest) continue;
      file = inode.get();
      latest = inode->latest();
    }
    if (!changes_.empty() && changes_.back().number > latest) {
      changes_.back().undo();
      changes_.pop_back();
    } else if (file != nullptr) {
      file->lose_latest();
    } else {
      return false;
    }
    return true;
  }

  Result<std::unique_ptr<File>> open(const std::string& path, OpenMode mode) override {
    const std::lock_guard lock(mutex_);
    const bool makes = mode == OpenMode::create_new;
    if (auto allowed = begin(makes ? Operation::create : Operation::open); !allowed)
      return forebay::fail(allowed.error());
    if (makes && full_) return full_error();
    auto file = device_.open(path, mode);
    if (!file) return file;
    if (mode == OpenMode::create_new) note({parent_of(path)}, [path] { ::unlink(path.c_str()); });
    auto inode = inode_of(path);
    return std::make_unique<FaultyFile>(*this, path, std::move(*file), std::move(inode));
  }

  std::unique_ptr<File> adopt(Descriptor descriptor) override {
    const std::lock_guard lock(mutex_);
    std::error_code error;
    const std::string path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor.get()), error);
    auto inode = inode_of(path);
    return std::make_unique<FaultyFile>(*this, path, device_.adopt(std::move(descriptor)), std::move(inode));
  }

  Result<void> rename(const std::string& from, const std::string& to) override {
    std::unique_lock lock(mutex_);
    if (auto allowed = begin(Operation::rename); !allowed) return allowed;
    const std::string replaced = limbo_name();
    const bool replaces = ::link(to.c_str(), replaced.c_str()) == 0;
    if (auto renamed = device_.rename(from, to); !renamed) return renamed;
    note({parent_of(from), parent_of(to)}, [=] {
      ::rename(to.c_str(), from.c_str());
      if (replaces) ::rename(replaced.c_str(), to.c_str());
    });
    rename_waits_ = renames_held_;
    renames_changed_.notify_all();
    renames_changed_.wait(lock, [this] { return !renames_held_; });
    rename_waits_ = false;
    return {};
  }

  Result<void> remove(const std::string& path) override {
    const std::lock_guard lock(mutex_);
    if (auto allowed = begin(Operation::remove); !allowed) return allowed;
    const std::string kept = limbo_name();
    const bool there = ::link(path.c_str(), kept.c_str()) == 0;
    if (auto removed = device_.remove(path); !removed) return removed;
    if (there) note({parent_of(path)}, [=] { ::rename(kept.c_str(), path.c_str()); });
    return {};
  }

  Result<void> make_directory(const std::string& path, unsigned mode) override {
    const std::lock_guard lock(mutex_);
    if (auto allowed = begin(Operation::make_directory); !allowed) return allowed;
    const bool there = std::filesystem::exists(path);
    if (full_ && !there) return full_error();
    if (auto made = device_.make_directory(path, mode); !made) return made;
    if (!there) note({parent_of(path)}, [path] { ::rmdir(path.c_str()); });
    return {};
  }

  Result<std::vector<std::string>> list(const std::string& path) const override {
    const std::lock_guard lock(mutex_);
    if (auto allowed = begin_reading(); !allowed) return forebay::fail(allowed.error());
    return device_.list(path);
  }

  Result<void> sync_directory(const std::string& path) override {
    const std::lock_guard lock(mutex_);
    if (auto allowed = begin(Operation::sync_directory); !allowed) return allowed;
    if (!std::filesystem::is_directory(path)) return forebay::fail(ErrorCode::not_found, "no such directory", path);
    // Not below: the order of events is the model's, and the tests are quicker.
    const auto touches = [&](const Change& change) {
      return std::ranges::find(change.directories, path) != change.directories.end();
    };
    const auto last = std::find_if(changes_.rbegin(), changes_.rend(), touches);
    changes_.erase(changes_.begin(), last.base());
    return {};
  }

 private:
  struct Failure {
    std::optional<Operation> kind;
    std::uint64_t after = 0;
    ErrorCode code = ErrorCode::io_error;
  };

  /// A change of directories, and how to take it back when all later ones have been.
  struct Change {
    std::vector<std::string> directories;
    std::function<void()> undo;
    std::uint64_t number = 0;
  };

  class FaultyMappedRange final : public MappedRange {
   public:
    FaultyMappedRange(FaultyDevice& owner, std::shared_ptr<UnsyncedFile> inode, std::uint64_t offset,
                      std::uint64_t length)
        : owner_(owner), inode_(std::move(inode)), offset_(offset), length_(length) {}
    ~FaultyMappedRange() override { FaultyMappedRange::set_writable(false); }

    void set_writable(bool writable) override {
      const std::lock_guard lock(owner_.mutex_);
      if (stores_.has_value() == writable) return;
      if (writable) {
        stores_ = inode_->begin_stores(offset_, length_);
      } else {
        inode_->end_stores(*std::exchange(stores_, std::nullopt));
      }
    }

   private:
    FaultyDevice& owner_;
    const std::shared_ptr<UnsyncedFile> inode_;
    const std::uint64_t offset_;
    const std::uint64_t length_;
    std::optional<UnsyncedFile::Stores> stores_;  // while it can be written
  };

  class FaultyFile final : public File {
   public:
    FaultyFile(FaultyDevice& owner, std::string path, std::unique_ptr<File> file, std::shared_ptr<UnsyncedFile> inode)
        : owner_(owner), path_(std::move(path)), file_(std::move(file)), inode_(std::move(inode)) {}

    Result<void> read_at(std::uint64_t offset, std::span<std::byte> bytes) const override {
      const std::lock_guard lock(owner_.mutex_);
      if (auto allowed = owner_.begin_reading(); !allowed) return allowed;
      if (!owner_.unreadable_.empty() && path_.find(owner_.unreadable_) != std::string::npos)
        return forebay::fail(ErrorCode::io_error, "planned failure of a read", path_);
      return file_->read_at(offset, bytes);
    }
    Result<void> write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
      const std::lock_guard lock(owner_.mutex_);
      const bool was_stopped = owner_.stopped_;
      auto allowed = owner_.begin(Operation::write);
      const bool torn = owner_.stopped_ && !was_stopped;
      if (!allowed && !torn) return allowed;
      if (torn) bytes = bytes.first(bytes.size() / 2);
      if (owner_.full_ && offset + bytes.size() > inode_->size()) return full_error();
      inode_->remember(offset, bytes.size());
      auto written = file_->write_at(offset, bytes);
      return torn ? allowed : written;
    }
    Result<void> allocate(std::uint64_t size) override {
      const std::lock_guard lock(owner_.mutex_);
      if (auto allowed = owner_.begin(Operation::allocate); !allowed) return allowed;
      if (owner_.full_ && size > inode_->size()) return full_error();
      if (size > inode_->size()) inode_->remember(0, 0);
      return file_->allocate(size);
    }
    Result<void> free_space(std::uint64_t offset, std::uint64_t length) override {
      const std::lock_guard lock(owner_.mutex_);
      if (auto allowed = owner_.begin(Operation::free_space); !allowed) return allowed;
      inode_->remember(offset, length);
      return file_->free_space(offset, length);
    }
    Result<void> sync() override {
      std::unique_lock lock(owner_.mutex_);
      // As a disk may: what comes while it works is left to the next one.
      const UnsyncedFile::Sync sync = inode_->begin_sync();
      ++owner_.syncs_waiting_;
      owner_.syncs_changed_.notify_all();
      owner_.syncs_changed_.wait(lock, [this] { return !owner_.syncs_held_; });
      --owner_.syncs_waiting_;
      if (auto allowed = owner_.begin(Operation::sync); !allowed) {
        if (!owner_.stopped_) inode_->sync_failed(sync);
        return allowed;
      }
      inode_->synced(sync);  // not below, as in sync_directory()
      return {};
    }
    Result<std::uint64_t> size() const override {
      const std::lock_guard lock(owner_.mutex_);
      if (auto alive = owner_.check_alive(); !alive) return forebay::fail(alive.error());
      return file_->size();
    }
    int descriptor() const noexcept override { return file_->descriptor(); }
    std::unique_ptr<MappedRange> mapped_range(std::uint64_t offset, std::uint64_t length) override {
      return std::make_unique<FaultyMappedRange>(owner_, inode_, offset, length);
    }

   private:
    FaultyDevice& owner_;
    const std::string path_;
    std::unique_ptr<File> file_;
    std::shared_ptr<UnsyncedFile> inode_;
  };

  static tl::unexpected<Error> full_error() { return forebay::fail(ErrorCode::no_space, "the device is full"); }
  static std::string parent_of(const std::string& path) { return std::filesystem::path(path).parent_path().string(); }
  void note(std::vector<std::string> directories, std::function<void()> undo) {
    changes_.push_back({std::move(directories), std::move(undo), ++change_number_});
  }
  std::string limbo_name() { return limbo_ + "/" + std::to_string(limbo_next_++); }

  void clear_plan() {
    failure_.reset();
    operations_before_stop_ = 0;
    stop_from_.reset();
    stopped_ = false;
    full_ = false;
    operations_before_full_ = 0;
    unreadable_.clear();
    syncs_held_ = false;
    renames_held_ = false;
    renames_changed_.notify_all();
    operations_ = 0;
    counts_.clear();
    reads_ = 0;
    reads_before_failure_ = 0;
  }

  Result<void> check_alive() const {
    if (stopped_) return forebay::fail(ErrorCode::io_error, "the process is dead");
    return {};
  }

  Result<void> begin_reading() const {
    if (auto alive = check_alive(); !alive) return alive;
    ++reads_;
    if (reads_before_failure_ != 0 && --reads_before_failure_ == 0)
      return forebay::fail(ErrorCode::io_error, "planned failure of a read");
    return {};
  }

  Result<void> begin(Operation kind) {
    if (auto alive = check_alive(); !alive) return alive;
    ++operations_;
    ++counts_[kind];
    if (stop_from_ == kind) stop_from_.reset();
    if (operations_before_stop_ != 0 && !stop_from_ && --operations_before_stop_ == 0) {
      stopped_ = true;
      return check_alive();
    }
    if (operations_before_full_ != 0 && --operations_before_full_ == 0) full_ = true;
    if (failure_ && (!failure_->kind || *failure_->kind == kind) && --failure_->after == 0) {
      const ErrorCode code = failure_->code;
      failure_.reset();
      return forebay::fail(code, "planned failure of an operation");
    }
    return {};
  }

  std::shared_ptr<UnsyncedFile> inode_of(const std::string& path) {
    Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat status{};
    ::fstat(file.get(), &status);
    auto& inode = inodes_[{status.st_dev, status.st_ino}];
    if (!inode) inode = std::make_shared<UnsyncedFile>(std::move(file), change_number_);
    return inode;
  }

  Device& device_;
  const std::string limbo_;
  mutable std::mutex mutex_;
  std::condition_variable syncs_changed_;
  std::condition_variable renames_changed_;
  // Guarded by mutex_
  std::uint64_t limbo_next_ = 0;
  std::uint64_t operations_ = 0;
  std::map<Operation, std::uint64_t> counts_;
  mutable std::uint64_t reads_ = 0;
  mutable std::uint64_t reads_before_failure_ = 0;
  std::optional<Failure> failure_;
  std::uint64_t operations_before_stop_ = 0;
  std::optional<Operation> stop_from_;  // it has not come yet
  bool stopped_ = false;
  bool full_ = false;
  std::uint64_t operations_before_full_ = 0;
  std::string unreadable_;
  bool syncs_held_ = false;
  std::uint64_t syncs_waiting_ = 0;
  bool renames_held_ = false;
  bool rename_waits_ = false;
  std::uint64_t change_number_ = 0;  // of the latest change, of directories or of a file
  std::vector<Change> changes_;
  std::map<std::pair<dev_t, ino_t>, std::shared_ptr<UnsyncedFile>> inodes_;
};

}  // namespace forebay::testing
