// SPDX-License-Identifier: Apache-2.0
#include "members/member_link.h"

#include <utility>

#include "base/clock.h"

namespace forebay::server {
namespace {

constexpr std::int64_t connect_timeout_ms = 3'000;
/// After a server could not be reached, what else is asked of it fails at once for so long.
constexpr std::int64_t failure_holds_ns = 500'000'000;

}  // namespace

std::string MemberLink::name() const {
  const PoolServer* const place = pool_.find_server(uuid_);
  return place == nullptr ? uuid_ : place->name;
}

void MemberLink::ask(protocol::MessageType type, std::shared_ptr<flatbuffers::DetachedBuffer> body,
                     protocol::MessageType expected, std::int64_t timeout_ms, std::weak_ptr<const bool> wanted,
                     Told told) {
  const PoolServer* const known = pool_.find_server(uuid_);
  std::optional<PoolServer> place;
  if (known != nullptr) place = *known;
  worker_.add([this, place = std::move(place), token = pool_.own_introduction(), type, body = std::move(body), expected,
               timeout_ms, wanted = std::move(wanted), told = std::move(told)] {
    if (wanted.expired()) return;
    auto answer = std::make_shared<Result<protocol::Message>>(
        call(place, token, type, {body->data(), body->size()}, expected, timeout_ms));
    loop_.post([answer, wanted, told] {
      if (!wanted.expired()) told(std::move(*answer));
    });
  });
}

Result<protocol::Message> MemberLink::call(const std::optional<PoolServer>& place, const fabric::Token& token,
                                           protocol::MessageType type, std::span<const std::uint8_t> body,
                                           protocol::MessageType expected, std::int64_t timeout_ms) {
  if (!place) return fail(ErrorCode::disconnected, "the pool's manager has not told where the server is", uuid_);
  // It may have been started anew elsewhere.
  const bool is_over = renew_.exchange(false);
  if (call_ && (is_over || call_->is_broken() || called_ != place->server)) call_.reset();
  // All but looks may be asked twice; they are to notice that the server was started anew.
  const bool may_repeat = call_ != nullptr && type != protocol::MessageType::member_look;
  if (!call_) {
    if (failure_ && monotonic_ns() - failed_ns_ < failure_holds_ns) return fail(*failure_);
    auto opened = MemberCall::open(place->server, uuid_, token, Deadline::after_ms(connect_timeout_ms), ending_);
    if (!opened) {
      failure_ = opened.error();
      failed_ns_ = monotonic_ns();
      return fail(std::move(opened.error()));
    }
    failure_.reset();
    call_ = std::move(*opened);
    called_ = place->server;
  }
  auto answer = call_->ask(type, body, expected, Deadline::after_ms(timeout_ms));
  if (call_->is_broken()) call_.reset();
  // What was kept open ended with an earlier start of the server: that is no reason to take it for away.
  const bool was_stale = !call_ && answer.error().code == ErrorCode::disconnected;
  if (may_repeat && was_stale) return call(place, token, type, body, expected, timeout_ms);
  return answer;
}

MemberLink& MemberLinks::to(const std::string& uuid, Use use) {
  auto& link = links_[{uuid, use}];
  if (!link) link = std::make_unique<MemberLink>(loop_, pool_, uuid);
  return *link;
}

}  // namespace forebay::server
