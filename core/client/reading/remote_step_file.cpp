// SPDX-License-Identifier: Apache-2.0
#include "client/reading/remote_step_file.h"

namespace forebay::client {
namespace {

tl::unexpected<Error> not_here() {
  return fail(ErrorCode::unsupported, "a segment on another node is only read through its steps");
}

}  // namespace

Result<void> RemoteStepFile::read_at(std::uint64_t offset, std::span<std::byte> bytes) const {
  if (bytes.empty()) return {};
  if (const auto carried = pin_.carried()) return carried->read(segment_, member_, offset, bytes);
  const wire::Extent extent(segment_, member_, 0, offset, bytes.size());
  return pin_.link().fetch(pin_, {&extent, 1}, bytes);
}

Result<void> RemoteStepFile::write_at(std::uint64_t, std::span<const std::byte>) {
  return not_here();
}
Result<void> RemoteStepFile::allocate(std::uint64_t) {
  return not_here();
}
Result<void> RemoteStepFile::free_space(std::uint64_t, std::uint64_t) {
  return not_here();
}
Result<void> RemoteStepFile::sync() {
  return not_here();
}
Result<std::uint64_t> RemoteStepFile::size() const {
  return not_here();
}

}  // namespace forebay::client
