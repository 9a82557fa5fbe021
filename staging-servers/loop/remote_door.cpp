// SPDX-License-Identifier: Apache-2.0
#include "loop/remote_door.h"

#include <algorithm>

#include "base/clock.h"
#include "base/return_error.h"
#include "base/uuid.h"

namespace forebay::server {

namespace {

// As long as another server's word of a client.
constexpr std::int64_t munged_ns = std::int64_t{24} * 3600 * 1'000'000'000;

}  // namespace

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
    case member_query:
    case segments_get:  // a reader asks for none of them, to learn whether its server lives
      return fabric::right_read | fabric::right_write;
    default:
      return std::nullopt;
  }
}

bool is_for_identified(protocol::MessageType type) noexcept {
  using enum protocol::MessageType;
  switch (type) {
    case server_query:
    case reservations_query:
    case reservation_share:
    case stream_remove:
    case consumer_remove:
    case retention_set:
    case staged_mark:
    case precious_set:
    case steps_drop:
    case token_create:
    case token_revoke:
    case home_query:
    case manager_call:
      return true;
    default:
      return false;
  }
}

bool is_for_segments(protocol::MessageType type) noexcept {
  using enum protocol::MessageType;
  return type == member_open || type == segments_get || type == bytes_get || type == data_open || type == heartbeat;
}

bool is_for_administrators(protocol::MessageType type) noexcept {
  using enum protocol::MessageType;
  switch (type) {
    case reservation_create:
    case reservation_change:
    case reservation_destroy:
    case files_adopt:
    case audit_query:
    case pool_directory:
    case member_look:
    case member_sync:
    case member_fence:
    case member_probe:
    case member_checksum:
      return true;
    default:
      return false;
  }
}

void RemoteGreeting::challenge(const protocol::Message& hello, std::weak_ptr<const bool> wanted,
                               const Challenged& answer) {
  challenged_ = true;
  const auto body = protocol::body_of<wire::RemoteHello>(hello);
  if (!body) {
    answer(fail(body.error()));
    return;
  }
  if ((*body)->version() != protocol::protocol_version) {
    answer(fail(ErrorCode::unsupported, "the server speaks protocol version " +
                                            std::to_string(protocol::protocol_version) + ", the client " +
                                            std::to_string((*body)->version()) + "; update the older one"));
    return;
  }
  fabric::Nonce clients{};
  if ((*body)->nonce() == nullptr || (*body)->nonce()->size() != clients.size() || (*body)->claims() == nullptr) {
    answer(fail(ErrorCode::protocol, "malformed hello of a remote client"));
    return;
  }
  std::ranges::copy(*(*body)->nonce(), clients.begin());
  const auto claims = std::as_bytes(std::span((*body)->claims()->data(), (*body)->claims()->size()));
  const std::string_view credential = fabric::credential_in(claims);
  if (credential.empty()) {
    const auto secret = examine(claims);
    answer(secret ? Result<wire::RemoteChallengeT>(agree(*secret, claims, clients)) : fail(secret.error()));
    return;
  }
  door_.vouch(std::string(credential), std::move(wanted),
              [this, clients, answer, kept = std::vector<std::byte>(claims.begin(), claims.end())](
                  Result<Peer> peer, const std::vector<std::byte>& payload) {
                if (!peer) {
                  answer(fail(std::move(peer.error())));
                  return;
                }
                const auto secret = fabric::secret_in(payload, clients);
                if (!secret) {
                  answer(fail(secret.error()));
                  return;
                }
                peer_ = std::move(*peer);
                peer_.remote = RemotePeer{
                    address_, {}, {}, 0, peer_.uid, fabric::rights_all, random_number(), wall_clock_ns() + munged_ns,
                    true};
                answer(agree(*secret, kept, clients));
              });
}

wire::RemoteChallengeT RemoteGreeting::agree(const fabric::Secret& secret, std::span<const std::byte> claims,
                                             const fabric::Nonce& clients) {
  const fabric::Nonce own = fabric::draw_nonce();
  agreement_.emplace(secret, claims, clients, own, door_.encryption());
  wire::RemoteChallengeT challenge;
  const fabric::Proof proof = agreement_->server_proof();
  challenge.encrypted = door_.encryption() == fabric::ControlEncryption::on;
  challenge.nonce.assign(own.begin(), own.end());
  challenge.proof.assign(proof.begin(), proof.end());
  return challenge;
}

Result<fabric::Secret> RemoteGreeting::examine(std::span<const std::byte> claims) {
  return fabric::are_pool_claims(claims) ? examine_pool(claims) : examine_token(claims);
}

Result<fabric::Secret> RemoteGreeting::examine_token(std::span<const std::byte> encoded) {
  ASSIGN_OR_RETURN(const auto claims, fabric::decode_claims(encoded));
  const auto secret = door_.secret_of(claims, encoded);
  if (!secret) {
    return fail(
        ErrorCode::permission_denied,
        "the token was not made by this server, or its key was replaced since; make another with `forebay token "
        "create`");
  }
  if (claims.expires_ns <= wall_clock_ns())
    return fail(ErrorCode::permission_denied, "the token has expired; make another with `forebay token create`");
  peer_.uid = claims.uid;
  peer_.gid = static_cast<gid_t>(-1);
  peer_.remote = RemotePeer{address_,
                            {},
                            claims.reservation_id,
                            claims.access_generation,
                            claims.uid,
                            claims.rights,
                            claims.serial,
                            claims.expires_ns,
                            false};
  return *secret;
}

Result<fabric::Secret> RemoteGreeting::examine_pool(std::span<const std::byte> encoded) {
  ASSIGN_OR_RETURN(const auto claims, fabric::decode_pool_claims(encoded));
  const auto secret = door_.secret_of(claims, encoded);
  if (!secret) {
    return fail(ErrorCode::permission_denied,
                "the server that sent this client has another key, or this one belongs to no pool; give all servers of "
                "a pool the same key");
  }
  if (claims.expires_ns <= wall_clock_ns()) {
    return fail(ErrorCode::permission_denied,
                "what the other server said of this client is too old, or its user token has expired; make another "
                "with `forebay token user`, or look whether both nodes have the same time");
  }
  peer_.uid = claims.uid;
  peer_.gid = claims.gid;
  peer_.groups.assign(claims.groups.begin(), claims.groups.end());
  peer_.administrator = claims.administrator;
  peer_.remote = RemotePeer{
      address_, {}, claims.reservation_id, 0, claims.uid, fabric::rights_all, claims.serial, claims.expires_ns, true};
  peer_.remote->segments_only = claims.segments_only;
  return *secret;
}

Result<Peer> RemoteGreeting::admit(const protocol::Message& proof) {
  if (!agreement_) return fail(ErrorCode::protocol, "a proof came before the challenge");
  ASSIGN_OR_RETURN(const auto body, protocol::body_of<wire::RemoteProof>(proof));
  const auto given = body->proof() == nullptr ? std::span<const std::uint8_t>()
                                              : std::span(body->proof()->data(), body->proof()->size());
  if (!fabric::is_same(agreement_->client_proof(), given))
    return fail(ErrorCode::permission_denied, "the client does not have the token that it named");
  return peer_;
}

}  // namespace forebay::server
