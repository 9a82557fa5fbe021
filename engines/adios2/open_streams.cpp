// SPDX-License-Identifier: Apache-2.0
#include "open_streams.h"

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
};

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

 private:
  std::mutex mutex_;
  std::map<std::uint64_t, Entry> entries_;
  std::uint64_t last_ = 0;
};

}  // namespace

OpenStream::OpenStream(std::string path, Side side, std::uint32_t rank, const void* io, bool own_output)
    : entry_(Registry::instance().add({std::move(path), side, rank, io}, own_output)) {}

OpenStream::~OpenStream() {
  if (entry_ != 0) Registry::instance().remove(entry_);
}

OpenStream::OpenStream(OpenStream&& other) noexcept : entry_(std::exchange(other.entry_, 0)) {}

OpenStream& OpenStream::operator=(OpenStream&& other) noexcept {
  std::swap(entry_, other.entry_);
  return *this;
}

}  // namespace forebay::engine
