// SPDX-License-Identifier: Apache-2.0
// Bytes through the data paths of several connections side by side, by one thread.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "client/connection/connection.h"

namespace forebay::client {

/// What goes through one connection's path. From begin() until it is over it has the path to itself.
class DataLane {
 public:
  /// Bytes for a granted place.
  struct Store {
    std::uint32_t segment = 0;
    std::uint64_t offset = 0;
    std::span<const std::byte> bytes;
  };

  /// They may be on their way when it is over, as with Connection::store().
  DataLane(std::shared_ptr<Connection> connection, std::vector<Store> stores) noexcept
      : connection_(std::move(connection)), stores_(std::move(stores)) {}
  /// What a request brings, as with Connection::fetch().
  DataLane(std::shared_ptr<Connection> connection, wire::BytesGetT request,
           std::vector<fabric::Incoming::Part> parts) noexcept
      : connection_(std::move(connection)), request_(std::move(request)), parts_(std::move(parts)) {}
  DataLane(DataLane&&) noexcept = default;
  DataLane& operator=(DataLane&&) = delete;
  /// One that was left in the middle takes the path with it.
  ~DataLane() = default;

  const std::shared_ptr<Connection>& connection() const noexcept { return connection_; }
  /// Nothing until it is over.
  const std::optional<Result<void>>& result() const noexcept { return result_; }

 private:
  friend void move_side_by_side(std::span<DataLane> lanes, const std::function<bool()>& meanwhile);

  void begin();
  /// As much as goes without waiting; false: nothing.
  bool move();
  Result<bool> move_stores();
  Result<bool> move_fetch();
  /// Is anybody still there, and is it to go on? Asked now and then.
  void check();
  void end(Result<void> result);
  short events() const noexcept;
  int descriptor() const noexcept;

  const std::shared_ptr<Connection> connection_;
  std::vector<Store> stores_;  // those before next_store_ are on their way
  std::size_t next_store_ = 0;
  wire::BytesGetT request_;
  std::vector<fabric::Incoming::Part> parts_;
  std::optional<fabric::Incoming> incoming_;
  std::unique_lock<std::mutex> path_;
  fabric::KeepWaiting keep_waiting_;
  std::int64_t moved_ns_ = 0;
  std::optional<Result<void>> result_;
};

/// Until all of them are over, each with its own result. `meanwhile` is called again and again as long as it says that
/// there is more: work that would else keep the paths waiting. The lanes are of different connections.
void move_side_by_side(std::span<DataLane> lanes, const std::function<bool()>& meanwhile = {});

}  // namespace forebay::client
