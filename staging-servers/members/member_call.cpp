// SPDX-License-Identifier: Apache-2.0
#include "members/member_call.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include <forebay/address.h>

#include "base/fail_point.h"
#include "base/return_error.h"
#include "base/system_error.h"
#include "fabric/handshake.h"
#include "fabric/tcp_socket.h"
#include "protocol/message.h"

namespace forebay::server {

using protocol::Message;
using protocol::MessageType;

namespace {

Result<Message> expected_of(Message message, MessageType type) {
  if (message.type == type) return message;
  if (message.type == MessageType::failure) return fail(protocol::failure_of(message));
  return fail(ErrorCode::protocol, std::string("the member answered with ") + wire::EnumNameMessageType(message.type) +
                                       " instead of " + wire::EnumNameMessageType(type));
}

/// Whoever listens where a member's server is down sends no more than that.
constexpr std::size_t greeting_bytes_max = 4096;

tl::unexpected<Error> ends() {
  return fail(ErrorCode::cancelled, "the server ends");
}

std::vector<std::uint8_t> numbers_from(std::span<const std::byte> bytes) {
  const auto* begin = reinterpret_cast<const std::uint8_t*>(bytes.data());
  return {begin, begin + bytes.size()};
}

}  // namespace

Result<std::unique_ptr<MemberCall>> MemberCall::open(const std::string& server, const std::string& uuid,
                                                     const fabric::Token& token, Deadline deadline,
                                                     const std::atomic<bool>& ending) {
  ASSIGN_OR_RETURN(const auto place, parse_server(server));
  const auto keep_waiting = [&ending] { return ending ? Result<void>(ends()) : Result<void>(); };
  ASSIGN_OR_RETURN(auto socket, fabric::connect_tcp(place.host, place.port, deadline, keep_waiting));
  std::unique_ptr<MemberCall> call(new MemberCall(std::move(socket), ending));
  if (auto proved = call->prove(uuid, token, deadline); !proved) {
    if (proved.error().where.empty()) proved.error().where = server;
    return fail(std::move(proved.error()));
  }
  return call;
}

Result<void> MemberCall::prove(const std::string& uuid, const fabric::Token& token, Deadline deadline) {
  socket_.set_body_bytes_max(greeting_bytes_max);
  const fabric::Nonce nonce = fabric::draw_nonce();
  wire::RemoteHelloT hello;
  hello.version = protocol::protocol_version;
  hello.program = "forebayd";
  hello.claims = numbers_from(token.claims);
  hello.nonce.assign(nonce.begin(), nonce.end());
  const auto greeting = protocol::pack(hello);
  ASSIGN_OR_RETURN(const auto answer, ask(MessageType::remote_hello, {greeting.data(), greeting.size()},
                                          MessageType::remote_challenge, deadline));
  ASSIGN_OR_RETURN(const auto challenge, protocol::body_of<wire::RemoteChallenge>(answer));
  fabric::Nonce theirs{};
  if (challenge->nonce() == nullptr || challenge->nonce()->size() != theirs.size() || challenge->proof() == nullptr)
    return fail(ErrorCode::protocol, "the member's challenge is malformed");
  std::ranges::copy(*challenge->nonce(), theirs.begin());
  if (!challenge->encrypted())
    return fail(ErrorCode::refused,
                "servers of a pool encrypt their messages; start the member with control_encryption");
  const fabric::Agreement agreement(token.secret, token.claims, nonce, theirs, fabric::ControlEncryption::on);
  if (!fabric::is_same(agreement.server_proof(), std::span(challenge->proof()->data(), challenge->proof()->size())))
    return fail(ErrorCode::permission_denied, "the member's server has not the pool's key");
  wire::RemoteProofT mine;
  const fabric::Proof own = agreement.client_proof();
  mine.proof.assign(own.begin(), own.end());
  const auto proof = protocol::pack(mine);
  // What follows the proof is encrypted, in both directions.
  RETURN_IF_ERROR(socket_.send(MessageType::remote_proof, ++last_request_, {proof.data(), proof.size()}));
  socket_.encrypt(agreement.client_cipher());
  socket_.set_body_bytes_max(protocol::body_bytes_max);
  ASSIGN_OR_RETURN(auto welcome, wait(last_request_, deadline));
  ASSIGN_OR_RETURN(welcome, expected_of(std::move(welcome), MessageType::welcome));
  ASSIGN_OR_RETURN(const auto greeted, protocol::body_of<wire::Welcome>(welcome));
  if (protocol::text_of(greeted->root_uuid()) != uuid)
    return fail(ErrorCode::refused, "another server of the pool answers at this address");
  return {};
}

Result<Message> MemberCall::ask(MessageType type, std::span<const std::uint8_t> body, MessageType expected,
                                Deadline deadline) {
  fail_point("server.call.before_send");
  if (auto sent = socket_.send(type, ++last_request_, body); !sent) {
    broken_ = true;
    return fail(std::move(sent.error()));
  }
  fail_point("server.call.after_send");
  auto answer = wait(last_request_, deadline);
  fail_point("server.call.answered");
  if (!answer) {
    // A late answer would be taken for that to another question.
    broken_ = true;
    return answer;
  }
  return expected_of(std::move(*answer), expected);
}

Result<Message> MemberCall::wait(std::uint32_t request, Deadline deadline) {
  constexpr std::int64_t slice_ms = 100;
  while (true) {
    while (auto message = socket_.pop()) {
      if (message->type == MessageType::none)
        return fail(ErrorCode::protocol, "the member sent no message of Forebay's");
      if (message->request == request) return std::move(*message);
    }
    if (ending_) return ends();
    if (deadline.passed()) return fail(ErrorCode::timeout, "the member's server does not answer");
    pollfd entry{socket_.descriptor(), POLLIN, 0};
    if (socket_.has_unsent()) entry.events |= POLLOUT;
    const int ready = ::poll(&entry, 1, static_cast<int>(deadline.remaining_ms(slice_ms)));
    if (ready < 0 && errno != EINTR) return system_error(errno, "cannot wait for a member");
    if (ready <= 0) continue;
    if ((entry.revents & POLLOUT) != 0) RETURN_IF_ERROR(socket_.flush());
    if ((entry.revents & ~POLLOUT) != 0) RETURN_IF_ERROR(socket_.receive());
  }
}

}  // namespace forebay::server
