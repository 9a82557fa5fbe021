// SPDX-License-Identifier: Apache-2.0
// From the wire's tables to the public API's structs.
#pragma once

#include <forebay/admin.h>
#include <forebay/protocol/messages_generated.h>
#include <forebay/reader.h>

namespace forebay::client {

StepSummary from_wire(const wire::StepSummary& summary);
Result<StreamInfo> from_wire(const wire::Stream& stream);
ReservationInfo from_wire(const wire::Reservation& reservation);

}  // namespace forebay::client
