// SPDX-License-Identifier: Apache-2.0
#include "client/connection/pool.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>

#include <forebay/admin.h>

#include "base/return_error.h"
#include "client/connection/connection.h"

namespace forebay {
namespace client {

using protocol::MessageType;

namespace {

constexpr std::int64_t asking_timeout_ms = 30'000;

/// The server of this place may belong to a pool, and know who asks.
bool may_know_others(const ServerPlace& place) {
  if (place.remote && !place.remote->by_munge) {
    // What is wrong with the file is told when it is shown.
    const auto token = fabric::read_token_file(place.remote->token_file);
    return token && fabric::are_pool_claims(token->claims);
  }
  if (place.remote) return true;
  return !place.root.empty() && ::access((place.root + "/pool-directory").c_str(), F_OK) == 0;
}

struct Asked {
  wire::HomeAnswerT answer;
  std::string by_root;  // PoolIntroduction
};

Result<Asked> ask(const ServerPlace& place, const wire::HomeQueryT& query, Deadline deadline,
                  const InterruptHook& interrupt) {
  ASSIGN_OR_RETURN(const auto connection, Connection::open(place.now(), deadline, interrupt));
  ASSIGN_OR_RETURN(const auto message,
                   connection->call(MessageType::home_query, query, MessageType::home_answer, deadline));
  ASSIGN_OR_RETURN(const auto body, protocol::body_of<wire::HomeAnswer>(message));
  Asked asked;
  body->UnPackTo(&asked.answer);
  if (!connection->is_remote()) asked.by_root = connection->root_uuid();
  return asked;
}

Result<fabric::Token> token_in(const wire::HomeAnswerT& answer) {
  fabric::Token token;
  if (answer.secret.size() != token.secret.size())
    return fail(ErrorCode::protocol, "the server has not said what to show to another one");
  const auto claims = std::as_bytes(std::span(answer.claims));
  token.claims.assign(claims.begin(), claims.end());
  std::ranges::copy(answer.secret, token.secret.begin());
  return token;
}

Result<ServerPlace> place_of(const ServerPlace& by, const wire::HomeQueryT& query, const Asked& asked) {
  const wire::HomeAnswerT& answer = asked.answer;
  ServerPlace place;
  ASSIGN_OR_RETURN(place.remote, parse_server(answer.server));
  ASSIGN_OR_RETURN(const auto claims, fabric::decode_pool_claims(std::as_bytes(std::span(answer.claims))));
  place.remote->introduction = PoolIntroduction{std::make_shared<const ServerPlace>(by), query.reservation,
                                                claims.reservation_id, query.administrator, asked.by_root};
  return place;
}

}  // namespace

Result<fabric::Token> introduced(const PoolIntroduction& introduction, const std::string& server, Deadline deadline,
                                 const InterruptHook& interrupt) {
  wire::HomeQueryT query;
  query.reservation = introduction.reservation;
  query.administrator = introduction.administrator;
  if (introduction.administrator) query.server = server;
  ASSIGN_OR_RETURN(const auto asked, ask(*introduction.by, query, deadline, interrupt));
  if (asked.answer.server != server) {
    return fail(ErrorCode::disconnected,
                introduction.reservation.empty() ? "the server is no longer the one that was asked for"
                                                 : "the reservation is no longer there",
                server);
  }
  return token_in(asked.answer);
}

Result<ServerPlace> home_of(const Address& address, const std::optional<ServerPlace>& given,
                            const InterruptHook& interrupt) {
  ASSIGN_OR_RETURN(const auto place, ServerPlace::of(address, given));
  return forebay::home_of(place, address.reservation, interrupt);
}

}  // namespace client

Result<ServerPlace> home_of(const ServerPlace& place, const std::string& reservation, const InterruptHook& interrupt) {
  if (!client::may_know_others(place)) return place;
  wire::HomeQueryT query;
  query.reservation = reservation;
  const auto asked = client::ask(place, query, Deadline::after_ms(client::asking_timeout_ms), interrupt);
  if (!asked) {
    // Whoever asked waits for a server that is away as long as it may.
    if (asked.error().code == ErrorCode::disconnected) return place;
    return fail(asked.error());
  }
  if (asked->answer.server.empty()) return place;
  return client::place_of(place, query, *asked);
}

Result<std::string> user_token(const ServerPlace& place, std::uint64_t lifetime_s, const InterruptHook& interrupt) {
  wire::HomeQueryT query;
  query.lifetime_s = lifetime_s;
  ASSIGN_OR_RETURN(const auto asked,
                   client::ask(place, query, Deadline::after_ms(client::asking_timeout_ms), interrupt));
  ASSIGN_OR_RETURN(const auto token, client::token_in(asked.answer));
  return fabric::to_text(token);
}

std::string new_pool_key() {
  return fabric::TokenKey::draw().to_text();
}

Result<ServerPlace> pool_server(const ServerPlace& place, const std::string& server, const InterruptHook& interrupt) {
  wire::HomeQueryT query;
  query.server = server;
  query.administrator = !server.empty();
  ASSIGN_OR_RETURN(const auto asked,
                   client::ask(place, query, Deadline::after_ms(client::asking_timeout_ms), interrupt));
  // One that belongs to no pool has its manager on its own node.
  if (asked.answer.server.empty()) return place;
  return client::place_of(place, query, asked);
}

}  // namespace forebay
