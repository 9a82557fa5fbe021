// SPDX-License-Identifier: Apache-2.0
#include "client/segment_cache.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

#include "base/system_error.h"

namespace forebay::client {

Segment::~Segment() {
  if (mapped_ != nullptr) ::munmap(const_cast<std::byte*>(mapped_), bytes_);
}

std::string Segment::place(std::uint64_t offset) const {
  return "segment " + std::to_string(number_) + " @ " + std::to_string(offset);
}

Result<const std::byte*> Segment::map() const {
  const std::lock_guard lock(mutex_);
  if (mapped_ == nullptr) {
    void* address = ::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, file_->descriptor(), 0);
    if (address == MAP_FAILED) return system_error(errno, "cannot map " + std::to_string(bytes_) + " bytes", place(0));
    mapped_ = static_cast<const std::byte*>(address);
  }
  return mapped_;
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
    auto bytes = file->size();
    if (!bytes) return fail(std::move(bytes.error()));
    const std::lock_guard lock(mutex_);
    segments_.insert_or_assign(number, std::make_shared<Segment>(number, std::move(file), *bytes));
  }
  return {};
}

std::shared_ptr<Segment> SegmentCache::find(std::uint32_t number) const {
  const std::lock_guard lock(mutex_);
  const auto found = segments_.find(number);
  return found == segments_.end() ? nullptr : found->second;
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
