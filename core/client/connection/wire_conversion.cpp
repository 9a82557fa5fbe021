// SPDX-License-Identifier: Apache-2.0
#include "client/connection/wire_conversion.h"

#include "base/return_error.h"
#include "protocol/message.h"

namespace forebay::client {

using protocol::text_of;

StepSummary from_wire(const wire::StepSummary& summary) {
  StepSummary result;
  result.step = summary.step();
  result.epoch = summary.epoch();
  result.incarnation = summary.incarnation();
  result.time_ns = summary.time_ns();
  result.size_bytes = summary.size_bytes();
  result.durable = summary.durable();
  result.staged = summary.staged();
  result.precious = summary.precious();
  result.pins = summary.pins();
  return result;
}

Result<StreamInfo> from_wire(const wire::Stream& stream) {
  StreamInfo result;
  result.name = text_of(stream.name());
  result.uuid = text_of(stream.uuid());
  result.epoch = stream.epoch();
  result.incarnation = stream.incarnation();
  result.ranks = stream.ranks();
  result.status = static_cast<StreamStatus>(stream.status());
  result.status_text = text_of(stream.status_text());
  result.oldest = stream.oldest();
  result.committed = stream.committed();
  result.durable = stream.durable();
  result.staged = stream.staged();
  result.steps = stream.steps();
  result.size_bytes = stream.size_bytes();
  result.step_open = stream.step_open();
  if (auto text = text_of(stream.retention()); !text.empty()) {
    ASSIGN_OR_RETURN(result.retention, parse_retention(text));
  }
  if (stream.consumers() != nullptr) {
    for (const wire::Consumer* consumer : *stream.consumers()) {
      result.consumers.push_back({text_of(consumer->name()), consumer->position(), consumer->lag_steps(),
                                  consumer->connected(), consumer->holder_pid()});
    }
  }
  return result;
}

ReservationInfo from_wire(const wire::Reservation& reservation) {
  ReservationInfo result;
  result.name = text_of(reservation.name());
  result.id = text_of(reservation.id());
  result.capacity_bytes = reservation.capacity_bytes();
  result.used_bytes = reservation.used_bytes();
  result.files_bytes = reservation.files_bytes();
  result.segment_bytes = reservation.segment_bytes();
  result.lifetime = static_cast<Lifetime>(reservation.lifetime());
  result.access_mode = static_cast<AccessMode>(reservation.access_mode());
  result.type = static_cast<ReservationType>(reservation.type());
  result.owner_uid = reservation.owner_uid();
  result.owner_gid = reservation.owner_gid();
  result.created_ns = reservation.created_ns();
  result.streams = reservation.streams();
  result.files_path = text_of(reservation.files_path());
  return result;
}

}  // namespace forebay::client
