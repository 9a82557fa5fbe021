// SPDX-License-Identifier: Apache-2.0
// Ranks whose EndStep returns when their step is durable.
#pragma once

#include <cstdint>
#include <vector>

#include <forebay/reader.h>
#include <forebay/result.h>

namespace forebay::server {

class SpaceGrants;
class WriterSession;

class DurableWaits {
 public:
  /// Outlives it.
  explicit DurableWaits(SpaceGrants& grants) noexcept : grants_(grants) {}

  bool is_empty() const noexcept { return waiters_.empty(); }
  void add(WriterSession& session, std::uint32_t request, std::uint64_t step, std::uint64_t next_bytes);
  /// The connection has ended.
  void drop(const WriterSession& session);
  /// That step has not come to be: its ranks are told by who knows why.
  void drop(std::uint64_t step);
  /// Answers those whose steps lie before `durable_next`. `ahead`: SpaceGrants::answer_committed().
  void moved(std::uint64_t durable_next, bool ahead);
  /// Answers those that wait for `first` or a later step with this error.
  void fail_from(std::uint64_t first, const Error& error);
  void fail_all(const Error& error) { fail_from(0, error); }
  /// Appends who waits now.
  void describe_waits(std::vector<StreamWait>& waits) const;

 private:
  struct Waiter {
    WriterSession* session = nullptr;
    std::uint32_t request = 0;
    std::uint64_t step = 0;
    std::uint64_t next_bytes = 0;
    std::int64_t since_ns = 0;  ///< wall clock
  };

  /// Those that wait for a step from `first` on, and before `end`; they wait no more.
  std::vector<Waiter> take(std::uint64_t first, std::uint64_t end);

  SpaceGrants& grants_;
  std::vector<Waiter> waiters_;
};

}  // namespace forebay::server
