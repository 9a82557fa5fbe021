// SPDX-License-Identifier: Apache-2.0
// How a rank's blocks reach a server on another node, the home or another member: what is written to a granted place is
// sent there, and a step's part is told only when all of it is written. All bytes of a small step that go to the home
// are kept, and travel with its part.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/device.h"
#include "client/connection/connection.h"
#include "client/connection/data_lane.h"

namespace forebay::client {

class RemoteSpace {
 public:
  /// `carries`: the part goes to this server, and may take bytes along.
  explicit RemoteSpace(bool carries = true) noexcept : carries_(carries) {}
  /// From now on through this connection: after open, and after each rejoin.
  void use(std::shared_ptr<Connection> connection);
  /// What an earlier step lost counts no more.
  void begin_step() noexcept {
    lost_.reset();
    stale_ = stale_ || unfinished_;
    unfinished_ = false;
    kept_places_.clear();
    kept_bytes_.clear();
  }
  Result<void> write(std::uint32_t segment, std::uint16_t member, std::uint64_t offset,
                     std::span<const std::byte> bytes);
  /// What is to be sent while others get theirs. Then sent() hears how it went.
  Result<DataLane> lane(std::vector<DataLane::Store> stores);
  Result<void> sent(Result<void> result);
  /// The server has all that was written since the step began, but for what the part is to carry, which it gets here.
  /// Else this is the reason why not.
  Result<void> finish(wire::PartT& part);
  /// Bytes of the open step did not arrive.
  bool has_lost() const noexcept { return lost_.has_value(); }

 private:
  ErrorCode lost_code() const noexcept { return carries_ ? ErrorCode::io_error : ErrorCode::unavailable; }
  Result<void> store(std::uint32_t segment, std::uint64_t offset, std::span<const std::byte> bytes);
  Result<void> send_kept();

  const bool carries_;
  std::shared_ptr<Connection> connection_;
  std::vector<wire::Extent> kept_places_;  // of bytes of the open step that were not sent
  std::vector<std::uint8_t> kept_bytes_;   // theirs, one behind another; at most protocol::carried_bytes_max
  bool unfinished_ = false;                // bytes of the open step are on their way
  // Bytes of a step that was given up may be: what follows goes behind them, and no part overtakes them.
  bool stale_ = false;
  std::optional<Error> lost_;  // bytes of the open step
};

/// One segment of it.
class RemoteSpaceFile final : public File {
 public:
  RemoteSpaceFile(std::shared_ptr<RemoteSpace> space, std::uint32_t segment, std::uint16_t member) noexcept
      : space_(std::move(space)), segment_(segment), member_(member) {}

  const std::shared_ptr<RemoteSpace>& space() const noexcept { return space_; }

  Result<void> read_at(std::uint64_t offset, std::span<std::byte> bytes) const override;
  Result<void> write_at(std::uint64_t offset, std::span<const std::byte> bytes) override;
  Result<void> allocate(std::uint64_t size) override;
  Result<void> free_space(std::uint64_t offset, std::uint64_t length) override;
  Result<void> sync() override;
  Result<std::uint64_t> size() const override;
  int descriptor() const noexcept override { return -1; }

 private:
  const std::shared_ptr<RemoteSpace> space_;
  const std::uint32_t segment_;
  const std::uint16_t member_;
};

}  // namespace forebay::client
