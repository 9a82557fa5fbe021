// SPDX-License-Identifier: Apache-2.0
// Readers whose Open waits until the stream has the writer group that they ask for: one of their run, or a living one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <forebay/protocol/messages_generated.h>
#include <forebay/reader.h>

#include "readers/followed_stream.h"
#include "readers/step_sharing.h"
#include "storage/stream_state.h"

namespace forebay::server {

class Follower;

class WriterWaits {
 public:
  /// Both outlive it.
  WriterWaits(FollowedStream& stream, const storage::StreamState& state) : stream_(stream), state_(state) {}

  /// Has the stream the group that this Open asks for? Always, if it asks for none, or resumes.
  bool has_writer_for(const wire::ReaderOpenT& asked) const;
  void add(Follower& reader);
  void remove(const Follower& reader);
  /// A group has formed, or has come back: those who waited for it go on.
  void writer_came();
  /// The group that was to come, of this run or of none, was refused: those that do not wait for ever are told.
  void writer_refused(const std::string& run, const std::string& why);
  /// They wait for the next stream of this name.
  void stream_removed();
  /// How many of them would take steps of this run.
  std::uint32_t count(const std::string& run) const;
  /// What did not come, for people.
  std::string describe(const wire::ReaderOpenT& asked) const;
  /// Appends who waits now.
  void describe_waits(std::vector<StreamWait>& waits) const;

 private:
  FollowedStream& stream_;
  const storage::StreamState& state_;
  FollowersByNumber waiting_;
};

/// The run as errors name it: quoted, and not longer than anyone would read.
std::string quoted_run(std::string_view run);

}  // namespace forebay::server
