// SPDX-License-Identifier: Apache-2.0
#include "loop/remote_door.h"

#include <algorithm>

#include "base/clock.h"
#include "base/return_error.h"

namespace forebay::server {

std::optional<std::uint32_t> rights_for(protocol::MessageType type) noexcept {
  using enum protocol::MessageType;
  switch (type) {
    case heartbeat:
    case data_open:
    case probe_get:
    case streams_query:
    case steps_query:
      return fabric::right_read | fabric::right_write;
    case reader_open:
    case step_wait:
    case step_poll:
    case step_get:
    case step_release:
    case step_check:
    case cursor_move:
    case reader_leave:
    case bytes_get:
      return fabric::right_read;
    case writer_open:
    case writer_rejoin:
    case ranks_missing:
    case step_begin:
    case space_request:
    case part:
    case step_abort:
    case writer_close:
    case writer_leave:
    case writer_refused:
      return fabric::right_write;
    case segments_get:  // a reader asks for none of them, to learn whether its server lives
      return fabric::right_read | fabric::right_write;
    default:
      return std::nullopt;
  }
}

Result<wire::RemoteChallengeT> RemoteGreeting::challenge(const protocol::Message& hello) {
  ASSIGN_OR_RETURN(const auto body, protocol::body_of<wire::RemoteHello>(hello));
  if (body->version() != protocol::protocol_version) {
    return fail(ErrorCode::unsupported, "the server speaks protocol version " +
                                            std::to_string(protocol::protocol_version) + ", the client " +
                                            std::to_string(body->version()) + "; update the older one");
  }
  fabric::Nonce clients{};
  if (body->nonce() == nullptr || body->nonce()->size() != clients.size() || body->claims() == nullptr)
    return fail(ErrorCode::protocol, "malformed hello of a remote client");
  std::ranges::copy(*body->nonce(), clients.begin());
  const auto claims = std::as_bytes(std::span(body->claims()->data(), body->claims()->size()));
  ASSIGN_OR_RETURN(claims_, fabric::decode_claims(claims));
  const auto secret = door_.secret_of(claims_, claims);
  if (!secret) {
    return fail(
        ErrorCode::permission_denied,
        "the token was not made by this server, or its key was replaced since; make another with `forebay token "
        "create`");
  }
  if (claims_.expires_ns <= wall_clock_ns())
    return fail(ErrorCode::permission_denied, "the token has expired; make another with `forebay token create`");
  const fabric::Nonce own = fabric::draw_nonce();
  agreement_.emplace(*secret, claims, clients, own, door_.encryption());
  wire::RemoteChallengeT challenge;
  const fabric::Proof proof = agreement_->server_proof();
  challenge.encrypted = door_.encryption() == fabric::ControlEncryption::on;
  challenge.nonce.assign(own.begin(), own.end());
  challenge.proof.assign(proof.begin(), proof.end());
  return challenge;
}

Result<RemotePeer> RemoteGreeting::admit(const protocol::Message& proof) {
  ASSIGN_OR_RETURN(const auto body, protocol::body_of<wire::RemoteProof>(proof));
  const auto given = body->proof() == nullptr ? std::span<const std::uint8_t>()
                                              : std::span(body->proof()->data(), body->proof()->size());
  if (!fabric::is_same(agreement_->client_proof(), given))
    return fail(ErrorCode::permission_denied, "the client does not have the token that it named");
  return RemotePeer{address_,
                    {},
                    claims_.reservation_id,
                    claims_.access_generation,
                    claims_.uid,
                    claims_.rights,
                    claims_.serial,
                    claims_.expires_ns};
}

}  // namespace forebay::server
