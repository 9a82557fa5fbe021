// SPDX-License-Identifier: Apache-2.0
#include "client/writing/writer_rejoin.h"

#include "base/return_error.h"

namespace forebay {

using client::Extent;
using protocol::MessageType;

Result<void> Writer::Impl::rejoin(Deadline deadline) {
  // Answers to what was outstanding went with the old connection.
  space_request = 0;
  part_request = 0;
  ASSIGN_OR_RETURN(connection,
                   client::reconnect_server(connection->place(), deadline, options.interrupt,
                                            [this](const std::shared_ptr<client::Connection>& fresh) -> Result<void> {
                                              // First, for the part may be sent again at once.
                                              if (holder) {
                                                RETURN_IF_ERROR(holder->confirm());
                                              }
                                              return send_rejoin(*fresh);
                                            }));
  open_writer.use(connection);
  if (remote) remote->use(connection);
  const bool in_flight_committed = state == State::publishing && server_next_step == number + 1;
  if (server_next_step != step && !in_flight_committed) {
    return fail(ErrorCode::group_broken, "the restarted server expects step " + std::to_string(server_next_step) +
                                             " next, but this rank is at " + std::to_string(step) +
                                             "; open the stream again to continue after its last step");
  }
  // The server has died before it knew of the step: it takes the pin with the part that is sent again.
  if (part_pin && !in_flight_committed && !part_pin->check()) pin_part();
  return {};
}

Result<void> Writer::Impl::send_rejoin(client::Connection& fresh) {
  wire::WriterRejoinT request;
  request.reservation = address.reservation;
  request.stream = address.stream;
  request.epoch = epoch;
  request.incarnation = incarnation;
  request.rank = options.rank;
  request.ranks = options.ranks;
  request.when_full = static_cast<std::uint8_t>(options.when_full);
  request.block_timeout_ms = options.block_timeout_ms;
  request.durability = static_cast<std::uint8_t>(options.durability);
  request.grace_ms = options.grace_ms;
  request.near = near;
  grant.reset();
  ++rejoins;
  std::vector<Extent> held = space.held();
  held.insert(held.end(), allocated.kept_back().begin(), allocated.kept_back().end());
  for (const Extent& extent : client::merged(std::move(held)))
    request.held.emplace_back(extent.segment, extent.member, 0, extent.offset, extent.length);
  ASSIGN_OR_RETURN(auto answer, fresh.call(MessageType::writer_rejoin, request, MessageType::writer_rejoined,
                                           fresh.request_deadline()));
  ASSIGN_OR_RETURN(auto body, protocol::body_of<wire::WriterRejoined>(answer));
  server_next_step = body->next_step();
  return {};
}

tl::unexpected<Error> Writer::Impl::failed(Error error) {
  if (error.where.empty()) error.where = where();
  // After `failed` a step may have committed that will never be durable: its space must not be written again.
  if (error.code == ErrorCode::group_broken || error.code == ErrorCode::fenced || error.code == ErrorCode::failed)
    ended_by = error;
  return fail(std::move(error));
}

}  // namespace forebay
