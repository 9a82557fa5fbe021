// SPDX-License-Identifier: Apache-2.0
// What of one file a loss of power may take: writes, and stores through mappings, that no sync has covered.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "tests/support/randomness.h"

namespace forebay::testing {

/// The bytes before each unsynced write, and the size that the last sync left. `counter`, which files may share,
/// numbers changes in their order. Not thread-safe.
class UnsyncedFile {
  struct Before {
    std::uint64_t offset;
    std::vector<std::byte> bytes;
    std::uint64_t size = 0;    // the file's
    std::uint64_t number = 0;  // the change's
  };

 public:
  /// Ranges that are mapped for writing, as they were when all stores so far had been noted.
  using Stores = std::list<Before>::iterator;

  /// A file that was there before is taken as synced; a new one is empty. `file` is for reading only: a lease probe
  /// must not take it for a writer.
  UnsyncedFile(Descriptor file, std::uint64_t& counter)
      : file_(std::move(file)), counter_(counter), synced_size_(size()) {}

  std::uint64_t size() const {
    struct stat status{};
    ::fstat(file_.get(), &status);
    return static_cast<std::uint64_t>(status.st_size);
  }

  /// Call it before a write, or (without a length) before a change of the size.
  void remember(std::uint64_t offset, std::uint64_t length) {
    writes_.push_back(read(offset, length));
    writes_.back().number = ++counter_;
  }

  /// Call it before a mapping of this range can be written, and the other when it cannot any more.
  Stores begin_stores(std::uint64_t offset, std::uint64_t length) {
    return mapped_.insert(mapped_.end(), read(offset, length));
  }
  void end_stores(Stores stores) {
    note_stores(*stores);
    mapped_.erase(stores);
  }

  /// What a sync that begins now covers, and no more: the changes up to a number, and the size.
  struct Sync {
    std::uint64_t number;
    std::uint64_t size;
  };
  Sync begin_sync() {
    note_stores();
    return {counter_, size()};
  }

  void synced(const Sync& sync) {
    for (const Before& before : take(sync)) {
      // What was written anew since a sync failed is as safe as anything else.
      if (doomed_.empty()) break;
      for_sectors(before, [&](std::uint64_t sector, std::uint64_t, std::uint64_t) {
        std::erase_if(doomed_, [&](const Before& old) { return old.offset / sector_bytes == sector; });
      });
    }
    // Another that began later may have come to its end before.
    if (sync.number < synced_number_) return;
    synced_number_ = sync.number;
    synced_size_ = sync.size;
  }

  /// As the kernel does: pages whose writing failed are taken for clean, and no later sync writes them.
  void sync_failed(const Sync& sync) {
    for (const Before& before : take(sync)) {
      for_sectors(before, [&](std::uint64_t, std::uint64_t begin, std::uint64_t end) {
        doomed_.push_back(part_of(before, begin, end));
      });
    }
  }

  /// The number of the latest change that no sync has covered; 0 if there is none.
  std::uint64_t latest() {
    note_stores();
    const auto& changes = writes_.empty() ? doomed_ : writes_;
    return changes.empty() ? 0 : changes.back().number;
  }
  /// Takes it back.
  void lose_latest() {
    auto& changes = writes_.empty() ? doomed_ : writes_;
    const Descriptor file = writable();
    for (const std::uint64_t number = latest(); !changes.empty() && changes.back().number == number;
         changes.pop_back()) {
      const Before& before = changes.back();
      write_back(file, before, before.offset, before.offset + before.bytes.size());
      // A later sync that succeeded has kept the size.
      if (&changes == &writes_) cut(file, before.size);
    }
    // These are no stores.
    for (Before& range : mapped_) range = read(range.offset, range.bytes.size());
  }

  void lose(Random& random) {
    note_stores();
    const Descriptor file = writable();
    writes_.insert(writes_.begin(), doomed_.begin(), doomed_.end());
    std::map<std::uint64_t, std::uint64_t> lost;
    for (const Before& before : writes_) {
      for_sectors(before, [&](std::uint64_t sector, std::uint64_t, std::uint64_t) { ++lost[sector]; });
    }
    for (auto& [sector, count] : lost) count = below(random, count + 1);
    for (auto before = writes_.rbegin(); before != writes_.rend(); ++before) {
      for_sectors(*before, [&](std::uint64_t sector, std::uint64_t begin, std::uint64_t end) {
        if (lost[sector] == 0) return;
        --lost[sector];
        write_back(file, *before, begin, end);
      });
    }
    if (chance(random, 2)) cut(file, synced_size_);
  }

 private:
  static constexpr std::uint64_t sector_bytes = 512;

  /// The unsynced writes that it covers, which are that no more.
  std::vector<Before> take(const Sync& sync) {
    const auto end = std::ranges::upper_bound(writes_, sync.number, {}, &Before::number);
    std::vector<Before> covered(std::make_move_iterator(writes_.begin()), std::make_move_iterator(end));
    writes_.erase(writes_.begin(), end);
    return covered;
  }

  Before read(std::uint64_t offset, std::uint64_t length) const {
    Before before{offset, std::vector<std::byte>(length), size()};
    [[maybe_unused]] const ssize_t there =
        ::pread(file_.get(), before.bytes.data(), length, static_cast<off_t>(offset));
    return before;
  }

  Descriptor writable() const {
    return Descriptor(::open(("/proc/self/fd/" + std::to_string(file_.get())).c_str(), O_RDWR | O_CLOEXEC));
  }
  static void write_back(const Descriptor& file, const Before& before, std::uint64_t begin, std::uint64_t end) {
    [[maybe_unused]] const ssize_t written =
        ::pwrite(file.get(), before.bytes.data() + (begin - before.offset), end - begin, static_cast<off_t>(begin));
  }
  void cut(const Descriptor& file, std::uint64_t bytes) const {
    if (size() == bytes) return;
    [[maybe_unused]] const int done = ::ftruncate(file.get(), static_cast<off_t>(bytes));
  }

  /// Takes what was stored into mapped ranges since the last time for writes of now: sectors that are as they were
  /// need none.
  void note_stores() {
    for (Before& range : mapped_) note_stores(range);
  }
  void note_stores(Before& range) {
    Before now = read(range.offset, range.bytes.size());
    // One change: in which order they were made cannot be known.
    range.number = ++counter_;
    range.size = now.size;
    for_sectors(range, [&](std::uint64_t, std::uint64_t begin, std::uint64_t end) {
      const std::size_t at = begin - range.offset;
      const std::size_t bytes = end - begin;
      if (std::memcmp(range.bytes.data() + at, now.bytes.data() + at, bytes) != 0)
        writes_.push_back(part_of(range, begin, end));
    });
    range = std::move(now);
  }

  static Before part_of(const Before& whole, std::uint64_t begin, std::uint64_t end) {
    const auto first = whole.bytes.begin() + static_cast<std::ptrdiff_t>(begin - whole.offset);
    return {begin, {first, first + static_cast<std::ptrdiff_t>(end - begin)}, whole.size, whole.number};
  }
  template <class Visit>
  static void for_sectors(const Before& before, const Visit& visit) {
    const std::uint64_t end = before.offset + before.bytes.size();
    for (std::uint64_t at = before.offset; at < end;) {
      const std::uint64_t next = std::min(end, (at / sector_bytes + 1) * sector_bytes);
      visit(at / sector_bytes, at, next);
      at = next;
    }
  }

  const Descriptor file_;
  std::uint64_t& counter_;
  std::uint64_t synced_size_;
  std::uint64_t synced_number_ = 0;  // of the latest change that a sync has covered
  std::vector<Before> writes_;
  std::vector<Before> doomed_;  // each within a sector; older than writes_
  std::list<Before> mapped_;    // what can be stored into
};

}  // namespace forebay::testing
