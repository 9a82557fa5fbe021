// SPDX-License-Identifier: Apache-2.0
#include "view_content.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace forebay::mounting {

void ViewContent::add_memory(std::uint64_t offset, std::span<const std::byte> bytes,
                             std::shared_ptr<const void> owner) {
  runs_.push_back({offset, bytes.size(), bytes.data(), {}, std::move(owner)});
}

void ViewContent::add_filled(std::uint64_t offset, std::uint64_t size_bytes, Fill fill) {
  runs_.push_back({offset, size_bytes, nullptr, std::move(fill), nullptr});
}

void ViewContent::sort() {
  std::ranges::sort(runs_, {}, &Run::offset);
}

std::vector<ViewContent::Run>::const_iterator ViewContent::first_behind(std::uint64_t offset) const {
  return std::ranges::upper_bound(runs_, offset, {}, [](const Run& run) { return run.offset + run.size_bytes; });
}

std::optional<std::span<const std::byte>> ViewContent::direct(std::uint64_t offset, std::uint64_t size_bytes) const {
  const auto run = first_behind(offset);
  if (run == runs_.end() || run->memory == nullptr || run->offset > offset ||
      offset + size_bytes > run->offset + run->size_bytes) {
    return std::nullopt;
  }
  return std::span(run->memory + (offset - run->offset), size_bytes);
}

int ViewContent::read(std::uint64_t offset, std::span<std::byte> out) const {
  const std::uint64_t end = offset + out.size();
  std::ranges::fill(out, std::byte{0});
  for (auto run = first_behind(offset); run != runs_.end() && run->offset < end; ++run) {
    const std::uint64_t start = std::max(offset, run->offset);
    const std::uint64_t stop = std::min(end, run->offset + run->size_bytes);
    const std::span<std::byte> part = out.subspan(start - offset, stop - start);
    if (run->memory != nullptr) {
      std::memcpy(part.data(), run->memory + (start - run->offset), part.size());
    } else if (const int error = run->fill(start - run->offset, part); error != 0) {
      return error;
    }
  }
  return 0;
}

}  // namespace forebay::mounting
