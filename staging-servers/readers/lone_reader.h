// SPDX-License-Identifier: Apache-2.0
// A connection that reads by itself.
#pragma once

#include <optional>
#include <string>

#include "readers/follower.h"

namespace forebay::server {

class LoneReader final : public Follower {
 public:
  /// All of these outlive it.
  LoneReader(ReaderSession& session, StreamsToRead& streams, ReaderRegistry& registry);

  void come(ReaderSession& session, Followers* found) override;
  bool waits() const override { return wait_request_.has_value(); }
  void drop_wait() override;
  bool closing() const override;
  std::string describe() const override;
  std::string name() const override;
  const Peer& peer() const override;
  void end_with_process() override;
  bool end_if_gone() override;
  void give(const storage::StepState& step, bool rewound_before, std::uint64_t skipped_before) override;
  void tell(wire::StepEventT event) override;
  void refuse(const Error& error) override;
  void stream_removed() override;

  Result<void> ask(ReaderSession& session, std::uint32_t request, const wire::StepWaitT& wait) override;
  wire::StepEventT poll() override;
  Result<void> move_cursor(ReaderSession& session, const wire::CursorMoveT& move) override;
  Result<wire::StepsAnswerT> list(ReaderSession& session, std::uint64_t first, std::uint32_t steps_max) override;
  void left(ReaderSession& session) override;
  void closed(ReaderSession& session) override;
  void shut_out(ReaderSession& session, const Error& error) override;

 private:
  void enter(Followers& followers) override;
  void open_failed(const Error& error) override;

  ReaderSession& session_;
  Followers* followers_ = nullptr;  ///< of its stream
  std::optional<std::uint32_t> wait_request_;
};

}  // namespace forebay::server
