// SPDX-License-Identifier: Apache-2.0
#include "protocol/record_conversion.h"

namespace forebay::protocol {

wire::StepSummary to_wire(const StepSummary& summary) {
  return {summary.step, summary.time_ns, summary.size_bytes, summary.epoch,    summary.incarnation,
          summary.pins, summary.durable, summary.staged,     summary.precious, 0};
}

StepSummary from_wire(const wire::StepSummary& summary) {
  return {.step = summary.step(),
          .epoch = summary.epoch(),
          .incarnation = summary.incarnation(),
          .time_ns = summary.time_ns(),
          .size_bytes = summary.size_bytes(),
          .durable = summary.durable(),
          .staged = summary.staged(),
          .precious = summary.precious(),
          .pins = summary.pins()};
}

}  // namespace forebay::protocol
