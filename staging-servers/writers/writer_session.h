// SPDX-License-Identifier: Apache-2.0
// A connection that is one rank of a writer group.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include <forebay/reader.h>

#include "loop/connection.h"

namespace forebay::server {

class StreamsToWrite;
class WriterGroup;

class WriterSession final : public Session {
 public:
  WriterSession(Connection& connection, StreamsToWrite& streams);

  void handle(protocol::Message message) override;
  void closed(const std::string& reason) override;
  void rights_changed(const std::string& reservation) override;
  bool uses(const std::string& reservation) const override { return reservation_ == reservation; }
  /// What a rank asks for is kept until its group has formed.
  std::size_t kept_bytes() const override { return member ? 0 : asked_bytes_; }

  Connection& connection() noexcept { return connection_; }
  const Connection& connection() const noexcept { return connection_; }

  // Used by WriterGroup
  std::uint32_t rank = 0;
  bool member = false;      ///< of a group that has formed
  bool has_closed = false;  ///< its part is done; asking again is answered again
  std::uint32_t incarnation = 0;
  std::string broken;                 ///< why the group is no more; empty while it is whole
  std::optional<std::uint16_t> near;  ///< the member of the reservation whose server is on its node
  /// Members that it could not reach, until when it gets no space there; monotonic.
  std::map<std::uint16_t, std::int64_t> avoids;
  /// Segments of other members for which it has a permit, and for which start of their server.
  std::map<std::uint32_t, std::uint64_t> permitted;
  bool is_permitted(std::uint32_t segment, std::uint64_t server_run) const {
    const auto found = permitted.find(segment);
    return found != permitted.end() && found->second == server_run;
  }
  /// What its permits say.
  std::uint64_t access_generation() const;

  /// The stream was removed or the reservation destroyed, or this rank counts as lost already.
  void stream_removed() { group_ = nullptr; }
  /// Once the connection has ended, or is about to: how, for people.
  std::string describe_end(const std::string& reason) const;

 private:
  Result<void> open(const protocol::Message& message);
  Result<void> rejoin(const protocol::Message& message);
  Result<void> tell_missing(const protocol::Message& message);
  /// Finds the stream's group, and becomes one of those that it deals with.
  Result<void> join(const std::string& reservation, const std::string& stream, bool make);
  Result<void> send_segments(const protocol::Message& message);
  Result<void> introduce_to_member(const protocol::Message& message);
  /// `root`: of the server on its node, as it says: a hint for where its space is best.
  void place_near(const std::string& root);
  void answer_if_failed(const protocol::Message& message, const Result<void>& result);
  void leave(const wire::WriterLeave& message);

  Connection& connection_;
  StreamsToWrite& streams_;
  bool has_asked_ = false;        ///< to open or to rejoin: once for each connection
  std::size_t asked_bytes_ = 0;   ///< of the message that opens
  WriterGroup* group_ = nullptr;  ///< of its stream
  std::string reservation_;       ///< of its stream
};

/// A rank's wait as people see it; `wanted`: for what.
StreamWait writer_wait(const WriterSession& session, StreamWait::Kind kind, std::string wanted, std::int64_t since_ns);

}  // namespace forebay::server
