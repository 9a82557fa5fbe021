// SPDX-License-Identifier: Apache-2.0
// The kept steps of a stream, asked for page by page.
#pragma once

#include <vector>

#include <forebay/address.h>
#include <forebay/protocol/messages_generated.h>
#include <forebay/reader.h>
#include <forebay/result.h>

#include "base/return_error.h"
#include "protocol/message.h"
#include "protocol/record_conversion.h"

namespace forebay::client {

inline constexpr std::uint32_t steps_at_once = 10'000;

/// `ask` sends one wire::StepsQueryT and gives the message that answers it.
template <class Ask>
Result<std::vector<StepSummary>> list_steps(const Address& address, Ask&& ask) {
  wire::StepsQueryT query;
  query.reservation = address.reservation;
  query.stream = address.stream;
  query.steps_max = steps_at_once;
  std::vector<StepSummary> steps;
  while (true) {
    ASSIGN_OR_RETURN(auto answer, ask(query));
    ASSIGN_OR_RETURN(auto body, protocol::body_of<wire::StepsAnswer>(answer));
    const auto* some = body->steps();
    if (some != nullptr) {
      for (const wire::StepSummary* summary : *some) steps.push_back(protocol::from_wire(*summary));
    }
    if (!body->more() || some == nullptr || some->size() == 0) return steps;
    query.first = steps.back().step + 1;
  }
}

}  // namespace forebay::client
