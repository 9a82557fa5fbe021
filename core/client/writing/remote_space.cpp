// SPDX-License-Identifier: Apache-2.0
#include "client/writing/remote_space.h"

#include <utility>

#include "base/return_error.h"

namespace forebay::client {
namespace {

tl::unexpected<Error> not_here() {
  return fail(ErrorCode::unsupported, "granted space on another node can only be written");
}

}  // namespace

void RemoteSpace::use(std::shared_ptr<Connection> connection) {
  // What was on its way through the old one may not have arrived, and nobody has it any more.
  if (std::exchange(unfinished_, false)) {
    lost_ = {ErrorCode::io_error,
             "the server's node went away while blocks of this step were on their way; abort_step, then write the step "
             "again",
             {}};
  }
  connection_ = std::move(connection);
}

Result<void> RemoteSpace::write(std::uint32_t segment, std::uint64_t offset, std::span<const std::byte> bytes) {
  if (lost_) return fail(*lost_);
  unfinished_ = true;
  auto stored = connection_->store(segment, offset, bytes);
  if (!stored) lost_ = stored.error();
  return stored;
}

Result<void> RemoteSpace::finish() {
  if (lost_) return fail(*lost_);
  if (!unfinished_) return {};
  auto finished = connection_->finish_stores();
  unfinished_ = false;
  if (!finished) lost_ = finished.error();
  return finished;
}

Result<void> RemoteSpaceFile::read_at(std::uint64_t, std::span<std::byte>) const {
  return not_here();
}
Result<void> RemoteSpaceFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  return space_->write(segment_, offset, bytes);
}
Result<void> RemoteSpaceFile::allocate(std::uint64_t) {
  return not_here();
}
Result<void> RemoteSpaceFile::free_space(std::uint64_t, std::uint64_t) {
  return not_here();
}
Result<void> RemoteSpaceFile::sync() {
  return not_here();
}
Result<std::uint64_t> RemoteSpaceFile::size() const {
  return not_here();
}

}  // namespace forebay::client
