// SPDX-License-Identifier: Apache-2.0
// Requests of a writer that survive a restart of the server.
#pragma once

#include "client/connection/reconnect.h"
#include "client/writing/writer_impl.h"

namespace forebay {

template <class Object>
Result<std::optional<protocol::Message>> Writer::Impl::ask(std::uint32_t& request, protocol::MessageType type,
                                                           const Object& body, protocol::MessageType expected,
                                                           bool (*is_settled)(const Impl&)) {
  const std::int64_t timeout_ms = options.reconnect_timeout_ms;
  std::optional<Deadline> deadline;
  while (true) {
    if (request == 0) {
      auto started = connection->start(type, body);
      if (started) {
        request = *started;
      } else if (!connection->is_broken()) {
        return failed(std::move(started.error()));
      }
    }
    if (request != 0) {
      auto answer = connection->wait(request, Deadline::never());
      if (answer) {
        request = 0;
        auto message = client::Connection::expect(std::move(*answer), expected);
        if (!message) return failed(std::move(message.error()));
        return std::optional(std::move(*message));
      }
      // Interrupted: the request goes on, and a later call waits for it again.
      if (!connection->is_broken()) return failed(std::move(answer.error()));
      request = 0;
    }
    if (!deadline) deadline = Deadline::after_ms(timeout_ms);
    if (auto rejoined = rejoin(*deadline); !rejoined) return failed(std::move(rejoined.error()));
    if (is_settled != nullptr && is_settled(*this)) return std::optional<protocol::Message>();
  }
}

template <class Object>
Result<void> Writer::Impl::order(protocol::MessageType type, const Object& body) {
  std::uint32_t request = 0;
  auto answer = ask(request, type, body, protocol::MessageType::done, nullptr);
  if (answer) return {};
  if (request != 0) connection->forget(request);
  return fail(std::move(answer.error()));
}

}  // namespace forebay
