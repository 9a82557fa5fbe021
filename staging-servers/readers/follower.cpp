// SPDX-License-Identifier: Apache-2.0
#include "readers/follower.h"

#include <utility>

#include <fmt/format.h>

#include "readers/followers.h"
#include "readers/reader_registry.h"

namespace forebay::server {

Follower::~Follower() {
  if (open_timer_) loop_.cancel(*open_timer_);
}

void Follower::open(const wire::ReaderOpenT& asked, Followers* found, Deadline deadline) {
  asked_ = asked;
  // What it holds, and knows of its group, is its session's.
  asked_.pins = {};
  asked_.gone = {};
  asked_.told = {};
  min_watermark = static_cast<Watermark>(asked.min_watermark);
  latest_only = asked.latest_only;
  distribution = static_cast<StepDistribution>(asked.distribution);
  follow = asked.follow;
  on_unavailable = static_cast<OnUnavailable>(asked.on_unavailable);
  wait_since_ns = wall_clock_ns();
  if (!deadline.is_never()) open_timer_ = loop_.at(deadline.at_ns(), [this] { give_up_waiting(); });
  wait_for(found);
}

wire::StepEventT Follower::not_ready(const Followers* followers) const {
  wire::StepEventT event;
  event.kind = static_cast<std::uint8_t>(NextStep::Kind::not_ready);
  if (followers != nullptr) event.status = static_cast<std::uint8_t>(followers->state().status);
  event.text = absence;
  return event;
}

void Follower::wait_for(Followers* found) {
  if (found == nullptr) {
    waiting_for_stream_ = true;
    registry_.add_stream_waiter(*this, wanted_path());
    return;
  }
  waiting_in_ = found;
  if (found->writer_waits().has_writer_for(asked_)) {
    writer_came();
    return;
  }
  found->writer_waits().add(*this);
  // It may be this reader that the writer waits for.
  found->stream().readers_changed();
}

void Follower::leave_opening() {
  if (std::exchange(waiting_for_stream_, false)) registry_.remove_stream_waiter(*this, wanted_path());
  if (waiting_in_ != nullptr) std::exchange(waiting_in_, nullptr)->writer_waits().remove(*this);
  if (open_timer_) loop_.cancel(*open_timer_);
  open_timer_.reset();
}

void Follower::give_up_waiting() {
  open_timer_.reset();
  const bool there = waiting_in_ != nullptr;
  const std::string of_run = asked_.run.empty() ? "" : " of run " + quoted_run(asked_.run);
  const std::string what = there ? waiting_in_->writer_waits().describe(asked_)
                                 : "no such stream, and no writer" + of_run +
                                       " made it within the time given; `forebay streams " + asked_.reservation +
                                       "` lists what is there";
  const ErrorCode code = !there && asked_.open_timeout_ms == 0 ? ErrorCode::not_found : ErrorCode::timeout;
  stop_opening({code, what, "stream " + wanted_path()});
}

void Follower::stream_made() {
  waiting_for_stream_ = false;
  // Null if it was removed again meanwhile: the next one of this name is waited for.
  wait_for(streams_.find_to_read(peer(), asked_.reservation, asked_.stream).value_or(nullptr));
}

void Follower::writer_came() {
  Followers& followers = *waiting_in_;
  leave_opening();
  enter(followers);
}

void Follower::awaited_stream_removed() {
  waiting_in_ = nullptr;
  wait_for(nullptr);
}

void Follower::stop_opening(const Error& error) {
  leave_opening();
  open_failed(error);
}

void Follower::reservation_destroyed() {
  stop_opening({ErrorCode::not_found, "the reservation was destroyed", "reservation " + asked_.reservation});
}

void Follower::writer_refused(const std::string& refused_run, const std::string& why) {
  if (asked_.open_timeout_ms >= 0 && wants_run(refused_run)) stop_opening(refused_writer(wanted_path(), why));
}

StreamWait reader_wait(const Follower& reader, StreamWait::Kind kind, std::string wanted) {
  const Peer& peer = reader.peer();
  return {kind, fmt::format("{}, {}", reader.name(), peer.describe()),
          peer.remote ? 0 : static_cast<std::uint32_t>(peer.pid), std::move(wanted), reader.wait_since_ns};
}

}  // namespace forebay::server
