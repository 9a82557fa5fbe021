// SPDX-License-Identifier: Apache-2.0
// What DataHello brings: a ticket and, if bytes are to travel by libfabric, one byte more that says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace forebay::fabric {

inline constexpr std::size_t ticket_bytes = 32;
/// Values of the wire: never renumber. TCP has no byte.
inline constexpr std::uint8_t by_libfabric = 1;

struct TicketRequest {
  std::span<const std::uint8_t> ticket;  ///< all of the request if it is of no form that there is
  bool by_fabric = false;
};

inline TicketRequest split_ticket(std::span<const std::uint8_t> asked) noexcept {
  if (asked.size() == ticket_bytes + 1 && asked.back() == by_libfabric) return {asked.first(ticket_bytes), true};
  return {asked, false};
}

}  // namespace forebay::fabric
