// SPDX-License-Identifier: Apache-2.0
// Writers that wait for space in a reservation: who is served, who gives way because waiting cannot end, who is told.
// They are served in the order in which their steps began, so open steps never wait for each other.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <forebay/result.h>
#include <forebay/writer.h>

#include "loop/event_loop.h"
#include "space/space_user.h"

namespace forebay::server {

class ReservationSpace;

/// What has happened, for those who wait.
enum class SpaceChange {
  more,  ///< space, or room in journals, may be had that could not be had before
  less,  ///< nothing came free, but something that might have will not any more
};

/// On which members space is wanted.
struct SpacePlace {
  bool at_home = false;               ///< on the home
  std::optional<std::uint16_t> near;  ///< on this one, as far as it has room
  std::set<std::uint16_t> avoid;      ///< not on these
};

struct SpaceWaiter {
  std::uint64_t order = 0;  ///< of the step's first request
  std::uint64_t bytes = 0;
  WhenFull when_full = WhenFull::block;
  SpacePlace place;
  SpaceUser* user = nullptr;
  Owner owner;
  std::function<void(Result<std::vector<Extent>>)> answer;
  std::optional<EventLoop::TimerId> timer;
  std::int64_t since_ns = 0;  ///< wall clock; set when the wait begins
  /// Whether it can end at all was looked at.
  bool judged = false;
};

class SpaceQueue {
 public:
  SpaceQueue(EventLoop& loop, ReservationSpace& space);
  ~SpaceQueue();
  SpaceQueue(const SpaceQueue&) = delete;
  SpaceQueue& operator=(const SpaceQueue&) = delete;

  std::uint64_t next_order() noexcept { return ++orders_; }
  /// True if nobody who came earlier waits for space.
  bool is_next(std::uint64_t order) const;
  bool is_empty() const noexcept { return waiters_.empty(); }
  /// An error at once if nothing can end the wait.
  void wait(SpaceWaiter waiter, std::int64_t timeout_ms);
  /// Who of a stream's ranks waits, and what is in the way.
  struct Wait {
    std::uint32_t rank = 0;
    std::int64_t since_ns = 0;
    std::string wanted;  ///< for people
  };
  std::vector<Wait> waits_of(const SpaceUser& user) const;
  /// Ends the waits of a stream's ranks with this error.
  void end_waits(const SpaceUser& user, const Error& error);

  /// To be called after whatever a wait may depend on. Soon after, once for all that happened meanwhile, those who can
  /// have space get it, and those who wait in vain are told.
  void changed(SpaceChange change);

 private:
  using Waiters = std::list<SpaceWaiter>;

  void look();
  void serve();
  /// The wait that is to end without space, if there is one (else the end), and why.
  std::pair<Waiters::iterator, const char*> next_to_give_up();
  bool can_end(const SpaceWaiter& waiter) const;
  /// There is space, but no room for the record of its step.
  bool waits_for_record(const SpaceWaiter& waiter) const;
  /// Takes it out of the queue.
  SpaceWaiter taken(Waiters::iterator waiter);
  tl::unexpected<Error> full_error(const SpaceWaiter& waiter, const std::string& why) const;

  EventLoop& loop_;
  ReservationSpace& space_;
  Waiters waiters_;  ///< by order
  std::uint64_t orders_ = 0;
  bool look_posted_ = false;
  bool more_came_ = false;  ///< since the last look
  /// Outlives the queue in what was posted.
  std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
};

}  // namespace forebay::server
