// SPDX-License-Identifier: Apache-2.0
// The segments whose descriptors the server has handed to this client. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <flatbuffers/flatbuffers.h>

#include "base/descriptor.h"
#include "base/device.h"
#include "base/segment_layout.h"
#include "client/segments/address_range.h"

namespace forebay::client {

/// Addresses for segments of one size, each behind the one of the number before it: what goes on from a segment's end
/// to the next one's beginning is one array where they are mapped here. Thread-safe.
class SegmentAddresses {
 public:
  explicit SegmentAddresses(std::uint64_t segment_bytes) noexcept : segment_bytes_(segment_bytes) {}
  SegmentAddresses(const SegmentAddresses&) = delete;
  SegmentAddresses& operator=(const SegmentAddresses&) = delete;

  /// Where this segment belongs, until it is given back. Null if another holder has the place, if its size is another,
  /// or if there are no addresses to be had.
  std::byte* take(std::uint32_t segment, std::uint64_t bytes);
  /// Ends the segment's mapping there.
  void give_back(std::uint32_t segment) noexcept;

 private:
  const std::uint64_t segment_bytes_;
  std::mutex mutex_;
  std::unordered_map<std::uint32_t, AddressRange> ranges_;  // by number / segments_per_range; guarded by mutex_
  std::unordered_set<std::uint32_t> taken_;                 // guarded by mutex_
};

/// One segment's file. Whoever uses its bytes holds it; the descriptor is closed with the last holder.
class Segment {
 public:
  /// Mapped in `addresses` if there is a place for it.
  Segment(std::uint32_t number, std::uint16_t member, std::unique_ptr<File> file, std::uint64_t bytes,
          std::shared_ptr<SegmentAddresses> addresses) noexcept
      : number_(number), member_(member), file_(std::move(file)), bytes_(bytes), addresses_(std::move(addresses)) {}
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  std::uint32_t number() const noexcept { return number_; }
  File& file() const noexcept { return *file_; }
  /// On another node: nothing can be mapped.
  bool is_remote() const noexcept { return file_->descriptor() < 0; }
  std::uint64_t bytes() const noexcept { return bytes_; }
  /// corrupt unless `length` bytes at `offset` lie in it, and `member` is the one that has it. Asked wherever an extent
  /// becomes bytes.
  Result<void> check(std::uint16_t member, std::uint64_t offset, std::uint64_t length) const;
  /// corrupt if the file ends before those bytes, as where a writer has truncated it: not to be mapped.
  Result<void> check_file(std::uint64_t offset, std::uint64_t length) const;
  /// "segment 3 @ 4096".
  std::string place(std::uint64_t offset) const;

  /// The whole segment, mapped for reading on the first call and until the segment dies: space that is written again
  /// needs no new mapping.
  Result<const std::byte*> map() const;

 private:
  const std::uint32_t number_;
  const std::uint16_t member_;
  const std::unique_ptr<File> file_;
  const std::uint64_t bytes_;
  const std::shared_ptr<SegmentAddresses> addresses_;
  mutable std::mutex mutex_;
  mutable const std::byte* mapped_ = nullptr;  // guarded by mutex_
  mutable bool in_addresses_ = false;          // guarded by mutex_
};

class SegmentCache {
 public:
  explicit SegmentCache(Device& device) noexcept : device_(device) {}

  /// As the server says when a stream is opened, the same each time. The size of a segment is what was granted: its
  /// file is what its writers make of it.
  void set_layout(SegmentLayout layout, std::uint64_t segment_bytes);
  /// Segments on other nodes: `file` is asked for what is not here yet. Null: it is not on another node, or not known.
  using RemoteFile = std::function<std::unique_ptr<File>(std::uint32_t segment, std::uint16_t member)>;
  void set_remote(RemoteFile file);
  /// Takes over descriptors that came for `numbers`, in that order. protocol if there are fewer or more of them.
  Result<void> add(const flatbuffers::Vector<std::uint32_t>* numbers, std::vector<Descriptor> descriptors);
  /// Null if the server has not sent it yet, or if it was dropped.
  std::shared_ptr<Segment> find(std::uint32_t number) const;
  /// The reservation has other members than its home.
  bool has_others() const;
  /// Nothing if there is no such segment.
  std::optional<std::uint16_t> member_of(std::uint32_t number) const;
  /// One that is not kept here.
  std::shared_ptr<Segment> make_remote(std::uint32_t number, std::uint16_t member, std::unique_ptr<File> file) const;
  /// Closes those that nobody else holds, so that the server can give them to others.
  void drop_idle();
  /// Closes those that nobody else holds and that have been unlinked: they would keep their space.
  void drop_removed();

 private:
  Device& device_;
  mutable std::mutex mutex_;
  SegmentLayout layout_;                                                          // guarded by mutex_
  std::uint64_t segment_bytes_ = 0;                                               // guarded by mutex_
  RemoteFile remote_file_;                                                        // guarded by mutex_
  std::shared_ptr<SegmentAddresses> addresses_;                                   // guarded by mutex_
  mutable std::unordered_map<std::uint32_t, std::shared_ptr<Segment>> segments_;  // guarded by mutex_
};

}  // namespace forebay::client
