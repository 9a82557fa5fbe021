// SPDX-License-Identifier: Apache-2.0
// A connection that reads one stream: its requests, and where it stands.
#pragma once

#include <map>
#include <optional>
#include <string>

#include <forebay/reader.h>

#include "loop/connection.h"
#include "readers/followers.h"

namespace forebay::server {

class ReaderSession final : public Session {
 public:
  ReaderSession(Connection& connection, StreamsToRead& streams, ReaderRegistry& registry);
  ~ReaderSession() override;

  void handle(protocol::Message message) override;
  void closed(const std::string& reason) override;
  void rights_changed(const std::string& reservation) override;

  Connection& connection() noexcept { return connection_; }
  const Connection& connection() const noexcept { return connection_; }

  // Used by Followers
  std::uint64_t number = 0;  ///< session number, known to the client, and no other living reader's
  AccessRights access;       ///< in the stream's reservation, when it was opened
  std::string consumer;      ///< as its cursor is called; see consumer_of_reader()
  std::string run;           ///< takes no step of another; empty: of any
  std::string share;         ///< readers with the same one share steps out, if they share any: by consumer and range
  Watermark min_watermark = Watermark::committed;
  bool latest_only = false;
  bool follow = true;
  StepDistribution distribution = StepDistribution::stream_default;
  std::uint64_t first_step = 0;   ///< takes none before
  std::optional<RunEnd> run_end;  ///< another run has begun
  std::uint64_t position = 0;     ///< next step to give
  std::uint64_t skipped = 0;
  bool rewound = false;
  std::optional<std::uint32_t> wait_request;
  std::int64_t wait_since_ns = 0;  ///< of that request, or of the Open that waits; wall clock
  StreamStatus told_status = StreamStatus::waiting;
  bool status_to_tell = false;
  std::string refusal_to_tell;  ///< why a writer that it waits for was refused; empty: nothing to tell
  std::map<StepKey, std::uint32_t> pins;

  PinLimit pin_limit() const {
    if (!access.guest) return {consumer.empty(), std::nullopt};
    const Peer& peer = connection_.peer();
    return {true, peer.remote ? peer.remote->uid : peer.uid};
  }

  /// Descriptors of these segments that the peer has not got yet; as many as fit into one message.
  std::vector<Descriptor> descriptors_for(const std::vector<std::uint32_t>& wanted,
                                          std::vector<std::uint32_t>& segments);

  const wire::ReaderOpenT& wish() const noexcept { return wish_; }
  /// May it take steps of a writer of this run?
  bool wants_run(const std::string& run) const { return wish_.run.empty() || wish_.run == run; }

  /// The stream came into being.
  void stream_made();
  /// The writer group came that it waits for.
  void writer_came();
  /// The stream was removed while it waited for a writer.
  void awaited_stream_removed();
  /// The reservation was destroyed in which the stream would have come into being.
  void reservation_destroyed();
  /// The writer that its Open waits for was refused. It waits no longer, unless it waits for ever.
  void writer_refused(const std::string& run, const std::string& why);
  /// The stream was removed or the reservation destroyed, or this reader counts as gone already.
  void stream_removed();

 private:
  void open(const protocol::Message& message);
  void join();
  /// Waits for the stream, or for the writer that is to come to this one.
  void wait(Followers* found);
  bool is_waiting() const noexcept { return waiting_for_stream_ || waiting_in_ != nullptr; }
  void leave_waiting();
  void give_up_waiting();
  std::string wanted_path() const { return wish_.reservation + "/" + wish_.stream; }
  Result<void> answer(const protocol::Message& message);
  void take_number();
  /// To a client on another node, by its data path, which also brings what fails.
  Result<void> send_bytes(const wire::BytesGetT& wish);
  Result<fabric::Transfer> transfer_of(const wire::BytesGetT& wish);
  /// It waits for its stream no longer, and is told why.
  void stop_waiting(const Error& error);

  Connection& connection_;
  StreamsToRead& streams_;
  ReaderRegistry& registry_;
  wire::ReaderOpenT wish_;
  std::uint32_t open_request_ = 0;
  bool waiting_for_stream_ = false;
  Followers* waiting_in_ = nullptr;  ///< of the stream in which it waits for a writer
  bool shut_out_ = false;            ///< may not read any more: its pins end with the connection
  bool admitted_ = false;            ///< has joined a stream, and has a file that says that it is present
  std::optional<EventLoop::TimerId> open_timer_;
  Followers* followers_ = nullptr;  ///< of its stream
};

/// A reader's wait as people see it; `wanted`: for what.
StreamWait reader_wait(const ReaderSession& session, StreamWait::Kind kind, std::string wanted, std::int64_t since_ns);

}  // namespace forebay::server
