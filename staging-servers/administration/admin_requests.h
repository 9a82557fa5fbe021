// SPDX-License-Identifier: Apache-2.0
// What the requests of administrators have in common.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <forebay/admin.h>
#include <forebay/protocol/messages_generated.h>
#include <forebay/result.h>

#include "protocol/record_conversion.h"

namespace forebay::server {

class Stream;

/// Why removing these streams would lose something; nothing if it would not.
std::optional<Error> loss_of(const std::vector<Stream*>& streams);

/// What requests about reservations are answered with.
template <class Infos>
wire::ReservationsAnswerT answer_with(const Infos& infos) {
  wire::ReservationsAnswerT answer;
  for (const ReservationInfo& info : infos)
    answer.reservations.push_back(std::make_unique<wire::ReservationT>(protocol::to_wire<wire::ReservationT>(info)));
  return answer;
}

}  // namespace forebay::server
