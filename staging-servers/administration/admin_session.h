// SPDX-License-Identifier: Apache-2.0
// A connection that asks about reservations, streams and steps, and changes them.
#pragma once

#include <functional>
#include <string>

#include <forebay/admin.h>
#include <forebay/protocol/messages_generated.h>

#include "loop/connection.h"

namespace forebay::server {

class AdministeredServer;
class Stream;

class AdminSession final : public Session {
 public:
  AdminSession(Connection& connection, AdministeredServer& server) : connection_(connection), server_(server) {}

  void handle(protocol::Message message) override;
  void closed(const std::string&) override {}

 private:
  template <class Table>
  using Handler = Result<void> (AdminSession::*)(const protocol::Message&, const typename Table::NativeTableType&);
  template <class Table>
  using StreamHandler = Result<void> (AdminSession::*)(const protocol::Message&, const typename Table::NativeTableType&,
                                                       Stream&);

  Result<void> answer(const protocol::Message& message);
  /// Hands the message's table to its handler.
  template <class Table>
  Result<void> on(const protocol::Message& message, Handler<Table> handler);
  /// The same, with the stream that the table names, for those that may do this with it.
  template <class Table>
  Result<void> on_stream(const protocol::Message& message, Rights needed, StreamHandler<Table> handler);
  Result<Stream*> find_stream(const std::string& reservation, const std::string& name, Rights needed);
  Result<void> server_query(const protocol::Message& message);
  void answer_done_or_failed(std::uint32_t request, const Result<void>& done);
  /// True if this reservation is being created or destroyed: the message is handled again once that is over.
  bool postpone_if_in_work(const std::string& name, const protocol::Message& message, bool destroys);
  Result<void> create_reservation(const protocol::Message& message, const wire::ReservationCreateT& wanted);
  Result<void> destroy_reservation(const protocol::Message& message, const wire::ReservationDestroyT& asked);
  Result<void> change_reservation(const protocol::Message& message, const wire::ReservationChangeT& asked);
  Result<void> adopt_files(const protocol::Message& message, const wire::FilesAdoptT& asked);
  Result<void> share_reservation(const protocol::Message& message, const wire::ReservationShareT& asked);
  /// Answers the request with this reservation, or why not; nothing once the connection is gone.
  std::function<void(const Result<ReservationInfo>&)> answer_with_one(std::uint32_t request);
  Result<void> query_reservations(const protocol::Message& message, const wire::ReservationsQueryT& asked);
  Result<void> query_streams(const protocol::Message& message, const wire::StreamsQueryT& asked);
  Result<void> query_steps(const protocol::Message& message, const wire::StepsQueryT& asked, Stream& stream);
  Result<void> remove_stream(const protocol::Message& message, const wire::StreamRemoveT& asked);
  Result<void> remove_consumer(const protocol::Message& message, const wire::ConsumerRemoveT& asked, Stream& stream);
  Result<void> set_retention(const protocol::Message& message, const wire::RetentionSetT& asked, Stream& stream);
  Result<void> mark_staged(const protocol::Message& message, const wire::StagedMarkT& asked, Stream& stream);
  Result<void> set_precious(const protocol::Message& message, const wire::PreciousSetT& asked, Stream& stream);
  Result<void> drop_steps(const protocol::Message& message, const wire::StepsDropT& asked, Stream& stream);
  Result<void> report_refused_writer(const protocol::Message& message, const wire::WriterRefusedT& report);
  Result<void> create_token(const protocol::Message& message, const wire::TokenCreateT& asked);
  Result<void> revoke_token(const protocol::Message& message, const wire::TokenRevokeT& asked);
  Result<void> query_home(const protocol::Message& message, const wire::HomeQueryT& query);
  Result<void> learn_pool(const protocol::Message& message, const wire::PoolDirectoryT& directory);
  Result<void> call_manager(const protocol::Message& message, const wire::ManagerCallT& call);
  Result<void> audit(const protocol::Message& message, const wire::AuditQueryT& asked);

  Connection& connection_;
  AdministeredServer& server_;
};

}  // namespace forebay::server
