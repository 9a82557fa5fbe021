// SPDX-License-Identifier: Apache-2.0
#include "client/connection/members.h"

#include <algorithm>
#include <utility>

#include "base/return_error.h"

namespace forebay::client {

using protocol::MessageType;

namespace {

constexpr std::int64_t member_connect_timeout_ms = 10'000;

/// Whatever keeps a member from answering, a later attempt may find it there.
Error unavailable(std::uint16_t member, const std::string& name, Error error) {
  const bool passes = error.code == ErrorCode::disconnected || error.code == ErrorCode::timeout;
  if (passes) {
    error.code = ErrorCode::unavailable;
    error.what = "member " + std::to_string(member) + " of the reservation (server " + name +
                 ") cannot be reached: " + error.what;
  }
  return error;
}

}  // namespace

Result<protocol::Message> Members::open(Connection& connection, std::span<const std::uint8_t> permit) {
  wire::MemberOpenT request;
  request.permit.assign(permit.begin(), permit.end());
  return connection.call(MessageType::member_open, request, MessageType::member_opened, connection.request_deadline());
}

Result<MemberConnection> Members::connect(std::uint16_t member) {
  wire::MemberQueryT query;
  query.member = member;
  ASSIGN_OR_RETURN(const auto message, ask_(query));
  ASSIGN_OR_RETURN(const auto body, protocol::body_of<wire::MemberAnswer>(message));
  wire::MemberAnswerT answer;
  body->UnPackTo(&answer);
  ServerPlace place;
  ASSIGN_OR_RETURN(place.remote, parse_server(answer.server));
  auto shown = std::make_shared<ShownClaims>();
  const auto claims = std::as_bytes(std::span(answer.claims));
  shown->claims.assign(claims.begin(), claims.end());
  if (answer.secret.size() != shown->secret.size())
    return fail(ErrorCode::protocol, "the home's word for another member is malformed");
  std::ranges::copy(answer.secret, shown->secret.begin());
  place.remote->shown = std::move(shown);
  auto connection = Connection::open(place, Deadline::after_ms(member_connect_timeout_ms), interrupt_);
  if (!connection) return fail(unavailable(member, answer.name, std::move(connection.error())));
  MemberConnection made{std::move(*connection), answer.storage_incarnation, ++generations_};
  if (!answer.permit.empty()) {
    auto opened = open(*made.connection, answer.permit);
    if (!opened) return fail(unavailable(member, answer.name, std::move(opened.error())));
    ASSIGN_OR_RETURN(const auto told, protocol::body_of<wire::MemberOpened>(*opened));
    made.storage_incarnation = told->storage_incarnation();
  }
  return made;
}

Result<MemberConnection> Members::to(std::uint16_t member) {
  const std::lock_guard lock(mutex_);
  auto& known = connections_[member];
  if (known.connection && !known.connection->is_broken()) return known;
  ASSIGN_OR_RETURN(known, connect(member));
  return known;
}

Result<Members::Mapping> Members::begin_mapping(std::uint16_t member) {
  ASSIGN_OR_RETURN(const auto at, to(member));
  if (at.connection->is_remote()) return fail(ErrorCode::no_space, "the member is on another node now");
  wire::MemberQueryT query;
  query.member = member;
  query.maps = true;
  ASSIGN_OR_RETURN(const auto message, ask_(query));
  ASSIGN_OR_RETURN(const auto answer, protocol::body_of<wire::MemberAnswer>(message));
  if (answer->permit() == nullptr) return fail(ErrorCode::protocol, "the home's word for another member is malformed");
  ASSIGN_OR_RETURN(auto shown, show(member, std::span(answer->permit()->data(), answer->permit()->size())));
  if (shown.opened.descriptors.size() != 1)
    return fail(ErrorCode::protocol, "the member has not answered how a reader maps");
  return Mapping{answer->presence(), std::move(shown.opened.descriptors.front())};
}

void Members::drop_connections() {
  const std::lock_guard lock(mutex_);
  for (auto& [member, at] : connections_)
    if (at.connection) at.connection->give_up();
  connections_.clear();
}

Result<Members::Shown> Members::show(std::uint16_t member, std::span<const std::uint8_t> permit) {
  // The member may have ended a connection that looks whole from here: a second one tells.
  for (bool again = true;; again = false) {
    ASSIGN_OR_RETURN(auto at, to(member));
    auto opened = open(*at.connection, permit);
    if (!opened && at.connection->is_broken() && again) continue;
    if (!opened) return fail(unavailable(member, at.connection->place().text(), std::move(opened.error())));
    ASSIGN_OR_RETURN(const auto told, protocol::body_of<wire::MemberOpened>(*opened));
    at.storage_incarnation = told->storage_incarnation();
    return Shown{std::move(at), std::move(*opened)};
  }
}

}  // namespace forebay::client
