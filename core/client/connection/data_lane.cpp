// SPDX-License-Identifier: Apache-2.0
#include "client/connection/data_lane.h"

#include <poll.h>

#include <algorithm>

#include "base/clock.h"
#include "base/fail_point.h"
#include "base/return_error.h"

namespace forebay::client {
namespace {

constexpr int lane_slice_ms = 100;

}  // namespace

void DataLane::begin() {
  path_ = std::unique_lock(connection_->data_mutex_);
  const bool writes = !stores_.empty();
  const auto opened = [&]() -> Result<void> {
    RETURN_IF_ERROR(connection_->open_data(writes));
    if (writes) {
      fail_point("client.data.before_write");
      return {};
    }
    request_.ticket = ++connection_->last_ticket_;
    incoming_.emplace(std::span<const fabric::Incoming::Part>(parts_));
    fail_point("client.data.before_get");
    return connection_->tell(protocol::MessageType::bytes_get, request_);
  };
  keep_waiting_ = connection_->keep_waiting();
  moved_ns_ = monotonic_ns();
  if (auto done = opened(); !done) {
    result_ = std::move(done);
    path_.unlock();
  }
}

bool DataLane::move() {
  auto moved = stores_.empty() ? move_fetch() : move_stores();
  if (!moved) {
    end(fail(std::move(moved.error())));
    return true;
  }
  if (*moved) moved_ns_ = monotonic_ns();
  return *moved;
}

Result<bool> DataLane::move_stores() {
  Store& store = stores_[next_store_];
  ASSIGN_OR_RETURN(const std::size_t count,
                   connection_->data_->write_some(store.segment, store.offset, store.bytes, keep_waiting_));
  store.offset += count;
  store.bytes = store.bytes.subspan(count);
  if (store.bytes.empty() && ++next_store_ == stores_.size()) end({});
  return count > 0;
}

Result<bool> DataLane::move_fetch() {
  const std::size_t before = incoming_->size();
  ASSIGN_OR_RETURN(const bool all, connection_->data_->receive_some(request_.ticket, *incoming_, keep_waiting_));
  const bool moved = incoming_->size() < before;
  if (all) end({});
  return moved;
}

void DataLane::check() {
  if (monotonic_ns() - moved_ns_ > fabric::path_silence_ms_max * ns_per_ms) {
    end(fail(ErrorCode::timeout, "nothing has moved on the data path to the server for " +
                                     std::to_string(fabric::path_silence_ms_max / 1000) + " s"));
  } else if (auto may = keep_waiting_(); !may) {
    end(std::move(may));
  }
}

void DataLane::end(Result<void> result) {
  result_ = connection_->check_data(std::move(result));
  path_.unlock();
}

short DataLane::events() const noexcept {
  return !stores_.empty() && connection_->data_->write_waits_to_send() ? POLLOUT : POLLIN;
}

int DataLane::descriptor() const noexcept {
  return connection_->data_->descriptor();
}

void move_side_by_side(std::span<DataLane> lanes, const std::function<bool()>& meanwhile) {
  // Everybody who takes several paths takes them in the same order.
  std::vector<DataLane*> begun;
  for (DataLane& lane : lanes) begun.push_back(&lane);
  std::ranges::sort(begun, std::less<>(), [](const DataLane* lane) { return lane->connection_.get(); });
  for (DataLane* lane : begun) lane->begin();
  const auto is_over = [](const DataLane* lane) { return lane->result_.has_value(); };
  std::erase_if(begun, is_over);
  bool works = static_cast<bool>(meanwhile);
  std::int64_t asked_ns = monotonic_ns();
  while (!begun.empty()) {
    bool moved = false;
    for (DataLane* lane : begun) moved |= lane->move();
    std::erase_if(begun, is_over);
    if (works) works = meanwhile();
    if (!moved && !works) {
      std::vector<pollfd> waited;
      for (const DataLane* lane : begun) waited.push_back({lane->descriptor(), lane->events(), 0});
      (void)::poll(waited.data(), waited.size(), lane_slice_ms);
    }
    if (monotonic_ns() - asked_ns < lane_slice_ms * ns_per_ms) continue;
    asked_ns = monotonic_ns();
    for (DataLane* lane : begun) lane->check();
    std::erase_if(begun, is_over);
  }
  while (works) works = meanwhile();
}

}  // namespace forebay::client
