// SPDX-License-Identifier: Apache-2.0
#include "client/segments/mapping.h"

#include <sys/mman.h>

#include <cerrno>

#include "base/return_error.h"
#include "base/system_error.h"

namespace forebay::client {

Result<std::shared_ptr<Mapping>> Mapping::map(const SegmentCache& segments, std::span<const format::Piece> pieces,
                                              bool writable) {
  std::size_t bytes = 0;
  for (const format::Piece& piece : pieces) bytes += piece.length();
  // The range is reserved whole first, so that the pieces find their places free. A large block's addresses agree with
  // its offset as large pages want it; pieces in further segments, which begin at 0 there, then do as well.
  const bool large = bytes >= large_page_bytes;
  const std::size_t lead = large ? pieces.front().offset() % large_page_bytes : 0;
  ASSIGN_OR_RETURN(auto range, AddressRange::reserve(lead + bytes, large ? large_page_bytes : 1));
  std::byte* const address = range.begin() + lead;
  std::shared_ptr<Mapping> mapping(new Mapping(std::move(range), address, bytes));
  std::byte* next = mapping->address_;
  for (const format::Piece& piece : pieces) {
    const auto segment = segments.find(piece.segment());
    if (!segment) {
      return fail(ErrorCode::corrupt, "a piece lies in a segment that this client does not have",
                  "segment " + std::to_string(piece.segment()) + " @ " + std::to_string(piece.offset()));
    }
    RETURN_IF_ERROR(segment->check(piece.member(), piece.offset(), piece.length()));
    if (writable) {
      if (auto range = segment->file().mapped_range(piece.offset(), piece.length())) {
        range->set_writable(true);
        mapping->ranges_.push_back(std::move(range));
      }
    }
    const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
    if (::mmap(next, piece.length(), protection, MAP_SHARED | MAP_FIXED, segment->file().descriptor(),
               static_cast<off_t>(piece.offset())) == MAP_FAILED) {
      return system_error(errno, "cannot map " + std::to_string(piece.length()) + " bytes",
                          segment->place(piece.offset()));
    }
    next += piece.length();
  }
  // Fresh space in large pages from the start. A kernel that has none maps small ones.
  if (writable && large) (void)::madvise(mapping->address_, bytes, MADV_HUGEPAGE);
  return mapping;
}

Result<std::shared_ptr<Mapping>> Mapping::of_memory(std::size_t bytes) {
  ASSIGN_OR_RETURN(auto range, AddressRange::reserve(bytes, bytes >= large_page_bytes ? large_page_bytes : 1));
  std::byte* const address = range.begin();
  if (::mprotect(address, bytes, PROT_READ | PROT_WRITE) != 0)
    return system_error(errno, "cannot get " + std::to_string(bytes) + " bytes of memory; see ulimit -v and -m");
  if (bytes >= large_page_bytes) (void)::madvise(address, bytes, MADV_HUGEPAGE);  // small pages do as well
  return std::shared_ptr<Mapping>(new Mapping(std::move(range), address, bytes));
}

std::shared_ptr<void> Mapping::hold(const std::shared_ptr<Mapping>& mapping) {
  mapping->held_.store(true, std::memory_order_relaxed);
  return {mapping->address_, [mapping](void*) {
            std::shared_ptr<const void> kept;
            const std::lock_guard lock(mapping->kept_mutex_);
            kept.swap(mapping->kept_);
            // What was done to the memory before this has happened for whoever sees that it is not held.
            mapping->held_.store(false, std::memory_order_release);
          }};
}

void Mapping::keep_while_held(std::shared_ptr<const void> thing) {
  const std::lock_guard lock(kept_mutex_);
  if (is_held()) kept_ = std::move(thing);
}

Result<void> Mapping::make_read_only() {
  if (::mprotect(address_, bytes_, PROT_READ) != 0)
    return system_error(errno, "cannot make allocated memory read-only");
  for (const auto& range : ranges_) range->set_writable(false);
  return {};
}

Result<void> Mapping::make_writable() {
  for (const auto& range : ranges_) range->set_writable(true);
  if (::mprotect(address_, bytes_, PROT_READ | PROT_WRITE) != 0)
    return system_error(errno, "cannot make allocated memory writable");
  return {};
}

}  // namespace forebay::client
