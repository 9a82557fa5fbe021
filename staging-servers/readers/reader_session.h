// SPDX-License-Identifier: Apache-2.0
// A connection that reads one stream: its requests, and where it stands.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include <forebay/reader.h>

#include "loop/connection.h"
#include "readers/follower.h"
#include "readers/followers.h"
#include "readers/reader_registry.h"

namespace forebay::server {

class ReaderSession final : public Session {
 public:
  ReaderSession(Connection& connection, StreamsToRead& streams, ReaderRegistry& registry);
  ~ReaderSession() override;

  void handle(protocol::Message message) override;
  void closed(const std::string& reason) override;
  void rights_changed(const std::string& reservation) override;
  bool uses(const std::string& reservation) const override { return asked_.reservation == reservation; }
  std::size_t kept_bytes() const override;

  Connection& connection() noexcept { return connection_; }
  const Connection& connection() const noexcept { return connection_; }

  // Used by Followers and its parts
  std::uint64_t number = 0;  ///< session number, known to the client, and no other living reader's
  AccessRights access;       ///< in the stream's reservation, when it was opened
  std::string consumer;      ///< as its cursor is called; see consumer_of_reader()
  std::map<StepKey, std::uint32_t> pins;
  /// It has mapped, or is about to, what other members of the reservation have.
  bool maps() const noexcept { return !presences_.empty(); }

  PinLimit pin_limit() const {
    if (!access.guest) return {consumer.empty(), std::nullopt};
    const Peer& peer = connection_.peer();
    return {true, peer.remote ? peer.remote->uid : peer.uid};
  }

  /// Descriptors of these segments that the peer has not got yet; as many as fit into one message.
  std::vector<Descriptor> descriptors_for(const std::vector<std::uint32_t>& wanted,
                                          std::vector<std::uint32_t>& segments);

  /// The other one is on another node, too, and its client says with right that it was this one's.
  bool is_succeeded_by(const ReaderSession& other) const;
  /// Its client has come by another connection.
  void was_cut();

  const wire::ReaderOpenT& asked() const noexcept { return asked_; }
  /// Of its stream; null: it has not joined one, or that was removed.
  Followers* followers() noexcept { return followers_; }

  /// Its reader has joined the stream: answers the Open. `place`: group's number and turn, if it is a rank.
  void enter(Followers& followers, const Follower& reader, const wire::ReaderOpenedT& place = {});
  /// The Open has failed.
  void refuse_open(const Error& error);
  /// The stream was removed or the reservation destroyed, or this reader counts as gone already.
  void stream_removed();
  /// Answers a StepWait or StepGet of this connection with a step.
  void deliver(std::uint32_t request, const storage::StepState& step, wire::StepEventT event = {});

 private:
  void open(const protocol::Message& message);
  /// What is wrong with these options; nothing if they are sane.
  std::optional<Error> refusal(const wire::ReaderOpenT& asked) const;
  Result<void> answer(const protocol::Message& message);
  void take_number();
  /// The connection has ended, as far as is known by no will of the client, which is on another node.
  bool is_cut() const;
  /// What only counts until its reader has joined the stream.
  void forget_lists();
  Result<void> introduce_to_member(const protocol::Message& message);
  /// The number of a file that it is to keep open on the member's node. no_space if it has too many.
  Result<std::uint64_t> begin_mapping(std::uint16_t member);
  /// Who is known to be on a member's node. A token says nothing of it.
  bool may_map() const;
  /// It has come back with these files. `kept_all`: all that it had mapped was kept for it.
  void know_presences(bool kept_all);
  /// To a client on another node, by its data path, which also brings what fails.
  Result<void> send_bytes(const wire::BytesGetT& asked);
  Result<fabric::Transfer> transfer_of(const wire::BytesGetT& asked);

  Connection& connection_;
  StreamsToRead& streams_;
  ReaderRegistry& registry_;
  wire::ReaderOpenT asked_;
  std::size_t asked_bytes_ = 0;  ///< of a message whose lists are kept; the rest of one is short
  std::uint32_t open_request_ = 0;
  std::shared_ptr<Follower> reader_;  ///< itself, or its group
  bool shut_out_ = false;             ///< may not read any more: its pins end with the connection
  bool was_cut_ = false;
  std::set<MemberPresence> presences_;  ///< while it may have something of other members mapped
  bool admitted_ = false;               ///< has joined a stream, and has a file that says that it is present
  Followers* followers_ = nullptr;      ///< of its stream
};

}  // namespace forebay::server
