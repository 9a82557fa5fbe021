// SPDX-License-Identifier: Apache-2.0
// A connection that asks about reservations, streams and steps, and changes them.
#pragma once

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
  Result<void> answer(const protocol::Message& message);
  Result<Stream*> find_stream(const std::string& reservation, const std::string& name);
  Result<void> server_query(const protocol::Message& message);
  void answer_done_or_failed(std::uint32_t request, const Result<void>& done);
  /// True if this reservation is being created or destroyed: the message is handled again once that is over.
  bool postpone_if_in_work(const std::string& name, const protocol::Message& message, bool destroys);
  Result<void> create_reservation(const protocol::Message& message);
  Result<void> destroy_reservation(const protocol::Message& message);
  Result<void> query_reservations(const protocol::Message& message);
  Result<void> query_streams(const protocol::Message& message);
  Result<void> query_steps(const protocol::Message& message);
  Result<void> remove_stream(const protocol::Message& message);
  Result<void> remove_consumer(const protocol::Message& message);
  Result<void> set_retention(const protocol::Message& message);
  Result<void> mark_staged(const protocol::Message& message);
  Result<void> set_precious(const protocol::Message& message);
  Result<void> audit(const protocol::Message& message);

  Connection& connection_;
  AdministeredServer& server_;
};

}  // namespace forebay::server
