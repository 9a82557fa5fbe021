// SPDX-License-Identifier: Apache-2.0
#include "writers/durable_waits.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include <fmt/format.h>

#include "base/clock.h"
#include "writers/space_grants.h"
#include "writers/writer_session.h"

namespace forebay::server {

void DurableWaits::add(WriterSession& session, std::uint32_t request, std::uint64_t step, std::uint64_t next_bytes) {
  waiters_.push_back({&session, request, step, next_bytes, wall_clock_ns()});
}

void DurableWaits::describe_waits(std::vector<StreamWait>& waits) const {
  for (const Waiter& waiter : waiters_) {
    waits.push_back(writer_wait(*waiter.session, StreamWait::Kind::durable,
                                fmt::format("step {} to be durable (Durability=durable)", waiter.step),
                                waiter.since_ns));
  }
}

void DurableWaits::drop(const WriterSession& session) {
  std::erase_if(waiters_, [&](const Waiter& waiter) { return waiter.session == &session; });
}

void DurableWaits::drop(std::uint64_t step) {
  std::erase_if(waiters_, [step](const Waiter& waiter) { return waiter.step == step; });
}

std::vector<DurableWaits::Waiter> DurableWaits::take(std::uint64_t first, std::uint64_t end) {
  std::vector<Waiter> taken;
  const auto wanted = [&](const Waiter& waiter) { return waiter.step >= first && waiter.step < end; };
  std::ranges::copy_if(waiters_, std::back_inserter(taken), wanted);
  std::erase_if(waiters_, wanted);
  return taken;
}

void DurableWaits::moved(std::uint64_t durable_next, bool ahead) {
  for (const Waiter& waiter : take(0, durable_next))
    grants_.answer_committed(*waiter.session, waiter.request, waiter.step, waiter.next_bytes, ahead);
}

void DurableWaits::fail_from(std::uint64_t first, const Error& error) {
  for (const Waiter& waiter : take(first, std::numeric_limits<std::uint64_t>::max()))
    waiter.session->connection().answer_failure(waiter.request, error);
}

}  // namespace forebay::server
