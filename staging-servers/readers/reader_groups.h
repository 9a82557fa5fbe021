// SPDX-License-Identifier: Apache-2.0
// The reader groups of a server: finds the one that a rank belongs to, or makes it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "readers/reader_group.h"

namespace forebay::server {

class ReaderGroups {
 public:
  /// Both outlive it.
  ReaderGroups(EventLoop& loop, ReaderRegistry& registry) : loop_(loop), registry_(registry) {}

  /// The group of a rank that opens, or comes back. Errors: invalid_argument, busy (another process is this rank),
  /// group_broken (a rank was lost, so that the others are to begin anew, too).
  Result<std::shared_ptr<ReaderGroup>> admit(ReaderSession& session, StreamsToRead& streams);
  /// Nobody belongs to it any more. Ranks of its name form another one.
  void forget(const ReaderGroup& group);

  /// Ends the process if an invariant is broken; how many things were looked at.
  std::size_t check() const;

 private:
  Result<std::shared_ptr<ReaderGroup>> make(ReaderSession& session, StreamsToRead& streams, ReaderGroupName name);

  EventLoop& loop_;
  ReaderRegistry& registry_;
  std::map<ReaderGroupName, std::weak_ptr<ReaderGroup>> by_name_;
  std::map<std::uint64_t, std::shared_ptr<ReaderGroup>> by_number_;  ///< also of those whose ranks are to come back
};

}  // namespace forebay::server
