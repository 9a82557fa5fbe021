// SPDX-License-Identifier: Apache-2.0
#include "client/segments/segment_cache.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>

#include "base/bounds.h"
#include "base/return_error.h"
#include "base/system_error.h"

namespace forebay::client {

namespace {

constexpr std::uint32_t segments_per_range = 256;

}  // namespace

std::byte* SegmentAddresses::take(std::uint32_t segment, std::uint64_t bytes) {
  if (bytes != segment_bytes_) return nullptr;
  const std::lock_guard lock(mutex_);
  auto range = ranges_.find(segment / segments_per_range);
  if (range == ranges_.end()) {
    // A process may be allowed few addresses (ulimit -v), which are the program's; each segment then finds its own.
    rlimit addresses{};
    if (::getrlimit(RLIMIT_AS, &addresses) != 0 || addresses.rlim_cur != RLIM_INFINITY) return nullptr;
    auto reserved = AddressRange::reserve(segments_per_range * segment_bytes_);
    if (!reserved) return nullptr;
    range = ranges_.emplace(segment / segments_per_range, std::move(*reserved)).first;
  }
  if (!taken_.insert(segment).second) return nullptr;
  return range->second.begin() + (segment % segments_per_range) * segment_bytes_;
}

void SegmentAddresses::give_back(std::uint32_t segment) noexcept {
  const std::lock_guard lock(mutex_);
  std::byte* place = ranges_.at(segment / segments_per_range).begin() + (segment % segments_per_range) * segment_bytes_;
  // The addresses stay reserved. If that fails the place is lost, not wrong.
  if (::mmap(place, segment_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) !=
      MAP_FAILED) {
    taken_.erase(segment);
  }
}

Segment::~Segment() {
  if (in_addresses_) {
    addresses_->give_back(number_);
  } else if (mapped_ != nullptr) {
    ::munmap(const_cast<std::byte*>(mapped_), bytes_);
  }
}

Result<void> Segment::check(std::uint16_t member, std::uint64_t offset, std::uint64_t length) const {
  if (member != member_) {
    return fail(ErrorCode::corrupt,
                "an extent names member " + std::to_string(member) + " of the reservation, but its segment lies on " +
                    std::to_string(member_),
                place(offset));
  }
  if (!range_within(offset, length, bytes_))
    return fail(ErrorCode::corrupt, "an extent lies outside its segment", place(offset));
  return {};
}

Result<void> Segment::check_file(std::uint64_t offset, std::uint64_t length) const {
  ASSIGN_OR_RETURN(const std::uint64_t file_bytes, file_->size());
  if (!range_within(offset, length, file_bytes))
    return fail(ErrorCode::corrupt, "the segment ends before the step's bytes; a writer has truncated it",
                place(offset));
  return {};
}

std::string Segment::place(std::uint64_t offset) const {
  return "segment " + std::to_string(number_) + " @ " + std::to_string(offset);
}

Result<const std::byte*> Segment::map() const {
  const std::lock_guard lock(mutex_);
  if (mapped_ == nullptr) {
    std::byte* wanted = addresses_->take(number_, bytes_);
    void* address = ::mmap(wanted, bytes_, PROT_READ, wanted == nullptr ? MAP_SHARED : MAP_SHARED | MAP_FIXED,
                           file_->descriptor(), 0);
    if (address == MAP_FAILED) {
      const int error = errno;
      if (wanted != nullptr) addresses_->give_back(number_);
      return system_error(error, "cannot map " + std::to_string(bytes_) + " bytes", place(0));
    }
    in_addresses_ = wanted != nullptr;
    mapped_ = static_cast<const std::byte*>(address);
  }
  return mapped_;
}

void SegmentCache::set_layout(SegmentLayout layout, std::uint64_t segment_bytes) {
  const std::lock_guard lock(mutex_);
  layout_ = std::move(layout);
  segment_bytes_ = segment_bytes;
}

void SegmentCache::set_remote(RemoteFile file) {
  const std::lock_guard lock(mutex_);
  remote_file_ = std::move(file);
}

bool SegmentCache::has_others() const {
  const std::lock_guard lock(mutex_);
  return layout_.has_others();
}

std::optional<std::uint16_t> SegmentCache::member_of(std::uint32_t number) const {
  const std::lock_guard lock(mutex_);
  return layout_.member_of(number);
}

std::shared_ptr<Segment> SegmentCache::make_remote(std::uint32_t number, std::uint16_t member,
                                                   std::unique_ptr<File> file) const {
  const std::lock_guard lock(mutex_);
  return std::make_shared<Segment>(number, member, std::move(file), segment_bytes_, nullptr);
}

Result<void> SegmentCache::add(const flatbuffers::Vector<std::uint32_t>* numbers, std::vector<Descriptor> descriptors) {
  const std::size_t count = numbers == nullptr ? 0 : numbers->size();
  if (count != descriptors.size()) {
    return fail(ErrorCode::protocol, "the server named " + std::to_string(count) + " segments but sent " +
                                         std::to_string(descriptors.size()) + " descriptors");
  }
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t number = numbers->Get(static_cast<flatbuffers::uoffset_t>(i));
    auto file = device_.adopt(std::move(descriptors[i]));
    const std::lock_guard lock(mutex_);
    const auto member = layout_.member_of(number);
    if (!member)
      return fail(ErrorCode::protocol, "the server sent segment " + std::to_string(number) + ", which does not exist");
    if (!addresses_) addresses_ = std::make_shared<SegmentAddresses>(segment_bytes_);
    segments_.insert_or_assign(number,
                               std::make_shared<Segment>(number, *member, std::move(file), segment_bytes_, addresses_));
  }
  return {};
}

std::shared_ptr<Segment> SegmentCache::find(std::uint32_t number) const {
  const std::lock_guard lock(mutex_);
  const auto found = segments_.find(number);
  if (found != segments_.end()) return found->second;
  const auto member = layout_.member_of(number);
  auto file = remote_file_ && member ? remote_file_(number, *member) : nullptr;
  if (!file) return nullptr;
  return segments_
      .insert_or_assign(number, std::make_shared<Segment>(number, *member, std::move(file), segment_bytes_, nullptr))
      .first->second;
}

void SegmentCache::drop_idle() {
  const std::lock_guard lock(mutex_);
  std::erase_if(segments_, [](const auto& entry) { return entry.second.use_count() == 1; });
}

void SegmentCache::drop_removed() {
  const std::lock_guard lock(mutex_);
  std::erase_if(segments_, [](const auto& entry) {
    struct stat status{};
    const int descriptor = entry.second->file().descriptor();
    return entry.second.use_count() == 1 && descriptor >= 0 && ::fstat(descriptor, &status) == 0 &&
           status.st_nlink == 0;
  });
}

}  // namespace forebay::client
