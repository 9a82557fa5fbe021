// SPDX-License-Identifier: Apache-2.0
// The ranks that have asked to write a stream together and wait until all of them are there.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <forebay/protocol/messages_generated.h>
#include <forebay/reader.h>
#include <forebay/result.h>
#include <forebay/storage/journal_generated.h>

#include "loop/event_loop.h"
#include "storage/stream_state.h"

namespace forebay::server {

class WriterSession;

class GroupForming {
 public:
  struct Candidate {
    WriterSession* session = nullptr;
    std::uint32_t request = 0;
    wire::WriterOpenT asked;
    std::optional<EventLoop::TimerId> timer;
    std::int64_t since_ns = 0;  ///< wall clock
  };

  /// `stream`: its path, for errors.
  GroupForming(EventLoop& loop, std::string stream) : loop_(loop), stream_(std::move(stream)) {}
  ~GroupForming();
  GroupForming(const GroupForming&) = delete;
  GroupForming& operator=(const GroupForming&) = delete;

  bool is_empty() const noexcept { return candidates_.empty(); }
  bool is_whole() const noexcept { return !is_empty() && candidates_.size() >= asked().ranks; }
  /// What the group wants: what rank 0 asks for holds for all, once it is there.
  const wire::WriterOpenT& asked() const { return candidates_.begin()->second.asked; }

  /// Why this rank cannot take part; nothing if it can.
  std::optional<Error> refusal(const wire::WriterOpenT& asked) const;
  /// Is it one of those that have not come?
  bool awaits(const wire::WriterRefusedT& report) const;
  /// Why nobody can: this rank and one of the others contradict each other.
  std::optional<Error> conflict(const WriterSession& session, const wire::WriterOpenT& asked) const;
  /// `timed_out` is called with its request when the rank has waited as long as it wants to.
  void add(WriterSession& session, std::uint32_t request, const wire::WriterOpenT& asked,
           std::function<void(const wire::WriterOpenT&)> timed_out);
  /// The connection has ended.
  void drop(const WriterSession& session);
  /// Answers all with this error.
  void fail_all(const Error& error);
  /// Which ranks have not come, for people; empty if all have.
  std::string describe_missing() const;
  /// Appends all of them as waiting for what is `wanted`.
  void describe_waits(const std::string& wanted, std::vector<StreamWait>& waits) const;
  /// The group that these ranks make, for the journal: the next incarnation, and the steps that it withdraws. Errors:
  /// failed (the stream), refused (precious steps would be lost), invalid_argument.
  Result<journal::GroupFormedT> record(const storage::StreamState& state) const;
  /// All of them, by rank; nobody waits any more.
  std::map<std::uint32_t, Candidate> take();

 private:
  /// The numbers that the ranks gave their opens, in order of ranks.
  std::vector<std::uint64_t> openings() const;
  /// What their nodes know the ranks by, in order of ranks; nothing if one of them does not say.
  std::vector<std::string> processes() const;

  EventLoop& loop_;
  const std::string stream_;
  std::map<std::uint32_t, Candidate> candidates_;  ///< by rank
};

}  // namespace forebay::server
