// SPDX-License-Identifier: Apache-2.0
#include "client/writing/remote_space.h"

#include <utility>

#include "base/return_error.h"
#include "protocol/carried_bytes.h"

namespace forebay::client {
namespace {

tl::unexpected<Error> only_written() {
  return fail(ErrorCode::unsupported, "granted space on another node can only be written");
}

/// `code`: a lost member leaves others to write to.
Error lost_on_the_way(ErrorCode code, const std::string& seen) {
  return {code,
          "the server's node went away while blocks of this step were on their way" + seen +
              "; abort_step, then write the step again",
          {}};
}

/// The same loss gets the same words, whichever call notices it first; what the server itself says stays as it is.
Error lost_by(ErrorCode code, Error why) {
  // Whatever keeps bytes from a member, others take the step; the home's own words stay as they are.
  const bool lost_member = code == ErrorCode::unavailable && why.code != ErrorCode::cancelled;
  if (why.code != ErrorCode::disconnected && !lost_member) return why;
  Error lost = lost_on_the_way(code, " (" + why.what + ")");
  lost.where = std::move(why.where);
  return lost;
}

}  // namespace

void RemoteSpace::use(std::shared_ptr<Connection> connection) {
  // What was on its way through the old one may not have arrived, and nobody has it any more.
  stale_ = false;
  if (std::exchange(unfinished_, false) && !lost_) lost_ = lost_on_the_way(lost_code(), "");
  connection_ = std::move(connection);
}

Result<void> RemoteSpace::write(std::uint32_t segment, std::uint16_t member, std::uint64_t offset,
                                std::span<const std::byte> bytes) {
  if (lost_) return fail(*lost_);
  if (carries_ && !unfinished_ && !stale_ && kept_bytes_.size() + bytes.size() <= protocol::carried_bytes_max) {
    const auto* begin = reinterpret_cast<const std::uint8_t*>(bytes.data());
    kept_bytes_.insert(kept_bytes_.end(), begin, begin + bytes.size());
    kept_places_.emplace_back(segment, member, 0, offset, bytes.size());
    return {};
  }
  RETURN_IF_ERROR(send_kept());
  return store(segment, offset, bytes);
}

Result<void> RemoteSpace::send_kept() {
  std::span<const std::byte> rest = std::as_bytes(std::span(kept_bytes_));
  for (const wire::Extent& place : kept_places_) {
    RETURN_IF_ERROR(store(place.segment(), place.offset(), rest.first(place.length())));
    rest = rest.subspan(place.length());
  }
  kept_places_.clear();
  kept_bytes_.clear();
  return {};
}

Result<void> RemoteSpace::store(std::uint32_t segment, std::uint64_t offset, std::span<const std::byte> bytes) {
  unfinished_ = true;
  return sent(connection_->store(segment, offset, bytes));
}

Result<DataLane> RemoteSpace::lane(std::vector<DataLane::Store> stores) {
  if (lost_) return fail(*lost_);
  RETURN_IF_ERROR(send_kept());
  unfinished_ = true;
  return DataLane(connection_, std::move(stores));
}

Result<void> RemoteSpace::sent(Result<void> result) {
  if (!result) lost_ = result.error() = lost_by(lost_code(), std::move(result.error()));
  return result;
}

Result<void> RemoteSpace::finish(wire::PartT& part) {
  if (lost_) return fail(*lost_);
  if (carries_) {
    part.carried = kept_places_;
    part.bytes = kept_bytes_;
  }
  if (!unfinished_) return {};
  auto finished = connection_->finish_stores();
  if (!finished) {
    lost_ = finished.error() = lost_by(lost_code(), std::move(finished.error()));
    return finished;
  }
  unfinished_ = false;
  stale_ = false;
  return {};
}

Result<void> RemoteSpaceFile::read_at(std::uint64_t, std::span<std::byte>) const {
  return only_written();
}
Result<void> RemoteSpaceFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  return space_->write(segment_, member_, offset, bytes);
}
Result<void> RemoteSpaceFile::allocate(std::uint64_t) {
  return only_written();
}
Result<void> RemoteSpaceFile::free_space(std::uint64_t, std::uint64_t) {
  return only_written();
}
Result<void> RemoteSpaceFile::sync() {
  return only_written();
}
Result<std::uint64_t> RemoteSpaceFile::size() const {
  return only_written();
}

}  // namespace forebay::client
