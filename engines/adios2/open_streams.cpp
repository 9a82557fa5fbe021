// SPDX-License-Identifier: Apache-2.0
#include "open_streams.h"

#include <unistd.h>

#include <iostream>
#include <map>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace forebay::engine {
namespace {

struct Entry {
  std::string path;
  OpenStream::Side side;
  std::uint32_t rank;
  const void* io;
  std::optional<std::uint64_t> step = {};  // that a writer has open
};

std::string not_closed_text(const Entry& entry) {
  std::string text = "Forebay: stream " + entry.path + " was not closed";
  if (entry.rank != 0) text += " by rank " + std::to_string(entry.rank);
  if (entry.step) text += "; its step " + std::to_string(*entry.step) + " was begun, not ended, and is lost";
  return text + ". Call EndStep and Close before the program ends.\n";
}

class Registry {
 public:
  static Registry& instance() {
    // Never destroyed: an application may keep engines in static objects.
    static Registry& registry = *new Registry;
    return registry;
  }

  std::uint64_t add(Entry entry, bool own_output) {
    const std::lock_guard lock(mutex_);
    for (const auto& [number, other] : entries_) {
      if (other.path != entry.path) continue;
      const bool both_write = other.side == OpenStream::Side::writes && entry.side == OpenStream::Side::writes;
      if (both_write && other.rank == entry.rank) {
        throw std::invalid_argument("Forebay: stream " + entry.path +
                                    " is being written by another engine of this process. Give each its own Stream, "
                                    "or close the other one first.");
      }
      if (other.side != entry.side && other.io == entry.io && entry.io != nullptr && !own_output) {
        throw std::invalid_argument(
            "Forebay: this IO would read stream " + entry.path +
            ", which it writes itself. Give the two engines streams of their own; OwnOutput=true "
            "allows it.");
      }
    }
    entries_.emplace(++last_, std::move(entry));
    return last_;
  }

  void remove(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    entries_.erase(number);
  }

  void note_step(std::uint64_t number, std::optional<std::uint64_t> step) {
    const std::lock_guard lock(mutex_);
    if (const auto found = entries_.find(number); found != entries_.end()) found->second.step = step;
  }

  void tell_not_closed(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    if (process_ != getpid()) return;
    if (const auto found = entries_.find(number); found != entries_.end()) std::cerr << not_closed_text(found->second);
  }

  /// At the exit of the process.
  void tell_all_not_closed() {
    // A thread may have been stopped for good with the lock.
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock || process_ != getpid()) return;
    for (const auto& [number, entry] : entries_) {
      if (entry.side != OpenStream::Side::writes) continue;
      const std::string text = not_closed_text(entry);
      // std::cerr may be gone.
      (void)!write(STDERR_FILENO, text.data(), text.size());
    }
  }

 private:
  const pid_t process_ = getpid();  // a forked child has copies of the entries
  std::mutex mutex_;
  std::map<std::uint64_t, Entry> entries_;
  std::uint64_t last_ = 0;
};

// Behind every destructor of a static object, those of the program as well.
__attribute__((destructor)) void tell_at_exit() {
  Registry::instance().tell_all_not_closed();
}

}  // namespace

void OpenStream::note_step(std::optional<std::uint64_t> step) {
  Registry::instance().note_step(entry_, step);
}

void OpenStream::tell_not_closed() const {
  Registry::instance().tell_not_closed(entry_);
}

OpenStream::OpenStream(std::string path, Side side, std::uint32_t rank, const void* io, bool own_output)
    : entry_(Registry::instance().add({std::move(path), side, rank, io, {}}, own_output)) {}

OpenStream::~OpenStream() {
  if (entry_ != 0) Registry::instance().remove(entry_);
}

OpenStream::OpenStream(OpenStream&& other) noexcept : entry_(std::exchange(other.entry_, 0)) {}

OpenStream& OpenStream::operator=(OpenStream&& other) noexcept {
  std::swap(entry_, other.entry_);
  return *this;
}

}  // namespace forebay::engine
