// SPDX-License-Identifier: Apache-2.0
// Looks at a server's invariants between two turns of its loop, as far as that can be afforded. For builds with
// assertions. What is looked at, and when, depends on the turns alone, so that a failure comes again.
#pragma once

#include <cstdint>
#include <string>

#include "readers/reader_registry.h"
#include "reservations/reservation_table.h"

namespace forebay::server {

class InvariantChecks {
 public:
  /// Both outlive it. `items_per_turn`: so many things are looked at in a turn on average.
  InvariantChecks(const ReservationTable& reservations, ReaderRegistry& readers, std::uint64_t items_per_turn)
      : reservations_(reservations), readers_(readers), items_per_turn_(items_per_turn) {}

  /// To be called after each turn: one reservation after another, then the readers of all, then again from the
  /// beginning. Each at most once a turn. A large one is looked at in one go, and the next turns make up for it.
  void turn();

 private:
  /// Looks at the next of them; how many things that were.
  std::uint64_t check_next();

  const ReservationTable& reservations_;
  ReaderRegistry& readers_;
  const std::uint64_t items_per_turn_;
  std::uint64_t owed_ = 0;  ///< things that were looked at too early
  std::string after_;       ///< name of the reservation that was looked at last; empty: the next is the first
};

}  // namespace forebay::server
