// SPDX-License-Identifier: Apache-2.0
// Breaks invariants from outside, to see that they are looked at.
#pragma once

#include "readers/group_turns.h"
#include "readers/pin_table.h"
#include "readers/step_pins.h"
#include "space/space_map.h"

namespace forebay::server {

struct InvariantBreaker {
  /// It counts more free space than there is.
  static void count_more_free_space(SpaceMap& map) { map.free_bytes_ += space_unit_bytes; }
  /// A slot counts as free that is in use.
  static void free_used_slot(PinTable& table) { table.free_.push_back(table.used_.begin()->second.index); }
  /// A restarted server would hold another step.
  static void lose_slot(PinTable& table) { table.used_.begin()->second.index = table.free_.back(); }
  /// A held step has one holder more than there is.
  static void count_another_holder(StepPins& pins) { ++pins.pins_.begin()->second.count; }
  /// A rank gets ahead of the others.
  static void take_turn_alone(GroupTurns& turns) { turns.here_.begin()->second.answered = turns.turn_ + 2; }
  /// A rank asks that has gone.
  static void ask_as_gone(GroupTurns& turns, std::uint32_t rank) { turns.asked_.emplace(rank, -1); }
};

}  // namespace forebay::server
