// SPDX-License-Identifier: Apache-2.0
#include "readers/carried_step.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <span>

#include "protocol/carried_bytes.h"

namespace forebay::server {
namespace {

// A read each, for every reader: the event loop has other things to do.
constexpr std::size_t extents_max = 64;

/// False if the bytes are not in memory or cannot be read: the event loop waits for no disk.
bool read_at_once(const File& file, std::uint64_t offset, std::span<std::byte> out) {
  if (file.descriptor() < 0) return file.read_at(offset, out).has_value();  // a test's device, which has no cache
  iovec part{out.data(), out.size()};
  const ssize_t count = ::preadv2(file.descriptor(), &part, 1, static_cast<off_t>(offset), RWF_NOWAIT);
  // A file system that cannot tell: these few bytes were written a moment ago, as a rule.
  if (count < 0 && errno == EOPNOTSUPP) return file.read_at(offset, out).has_value();
  return count == static_cast<ssize_t>(out.size());
}

std::uint64_t metadata_bytes(const journal::StepCommittedT& step) {
  std::uint64_t bytes = 0;
  for (const auto& part : step.parts) {
    for (const journal::Extent& extent : part->metadata) bytes += extent.length();
  }
  return bytes;
}

}  // namespace

void carry(const Segments& segments, const journal::StepCommittedT& step, wire::StepDescriptorT& description) {
  const bool here = std::ranges::all_of(step.parts, [](const auto& part) { return part->members.empty(); });
  const bool whole = here && step.size_bytes <= protocol::carried_bytes_max;
  const std::uint64_t total = whole ? step.size_bytes : metadata_bytes(step);
  if (total == 0 || total > protocol::carried_bytes_max || !segments.check_stays()) return;
  std::vector<wire::Extent> places;
  std::vector<std::uint8_t> bytes(total);
  std::span<std::byte> rest = std::as_writable_bytes(std::span(bytes));
  std::unique_ptr<File> file;
  std::uint32_t opened = 0;
  for (const auto& part : step.parts) {
    for (const journal::Extent& extent : whole ? part->extents : part->metadata) {
      if (places.size() == extents_max) return;
      if (!file || opened != extent.segment()) {
        auto next = segments.open_file(extent.segment(), OpenMode::read);
        if (!next) return;
        file = std::move(*next);
        opened = extent.segment();
      }
      if (extent.length() > rest.size() || !read_at_once(*file, extent.offset(), rest.first(extent.length()))) return;
      rest = rest.subspan(extent.length());
      places.emplace_back(extent.segment(), extent.member(), 0, extent.offset(), extent.length());
    }
  }
  if (!rest.empty()) return;
  protocol::drop_zeros(bytes);
  description.carried = std::move(places);
  description.bytes = std::move(bytes);
}

}  // namespace forebay::server
