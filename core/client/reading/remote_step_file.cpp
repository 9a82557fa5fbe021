// SPDX-License-Identifier: Apache-2.0
#include "client/reading/remote_step_file.h"

#include "base/checksum.h"
#include "base/return_error.h"

namespace forebay::client {
namespace {

tl::unexpected<Error> read_by_steps_only() {
  return fail(ErrorCode::unsupported, "a segment on another node is only read through its steps");
}

}  // namespace

Result<void> RemoteStepFile::read_at(std::uint64_t offset, std::span<std::byte> bytes) const {
  return read(pin_, wire::Extent(segment_, member_, 0, offset, bytes.size()), bytes, nullptr);
}

Result<void> RemoteStepFile::read(const Pin& pin, const wire::Extent& extent, std::span<std::byte> bytes,
                                  std::uint32_t* checksum) {
  if (bytes.empty()) return {};
  const auto carried = pin.carried();
  if (!carried || !carried->has(extent)) return pin.link().fetch(pin, {&extent, 1}, bytes, checksum);
  RETURN_IF_ERROR(carried->read(extent.segment(), extent.member(), extent.offset(), bytes));
  if (checksum != nullptr) *checksum = crc32c(bytes, *checksum);
  return {};
}

Result<void> RemoteStepFile::write_at(std::uint64_t, std::span<const std::byte>) {
  return read_by_steps_only();
}
Result<void> RemoteStepFile::allocate(std::uint64_t) {
  return read_by_steps_only();
}
Result<void> RemoteStepFile::free_space(std::uint64_t, std::uint64_t) {
  return read_by_steps_only();
}
Result<void> RemoteStepFile::sync() {
  return read_by_steps_only();
}
Result<std::uint64_t> RemoteStepFile::size() const {
  return read_by_steps_only();
}

}  // namespace forebay::client
