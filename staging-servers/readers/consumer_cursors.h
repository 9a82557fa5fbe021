// SPDX-License-Identifier: Apache-2.0
// The named consumers of a stream: where their durable cursors stand, and which reader holds each name.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <forebay/reader.h>
#include <forebay/result.h>

#include "loop/access_rights.h"
#include "readers/followed_stream.h"

namespace forebay::server {

class Follower;

/// What the cursor of a consumer is called: who may only read has names of their own ("u1001.render"), so that nobody
/// takes or moves another's cursor.
std::string consumer_of_reader(const AccessRights& access, uid_t uid, const std::string& name);

class ConsumerCursors {
 public:
  /// Both outlive it.
  ConsumerCursors(FollowedStream& stream, const storage::StreamState& state) : stream_(stream), state_(state) {}

  /// busy if another reader holds the name.
  Result<void> check_free(const std::string& consumer);
  void hold(Follower& reader);
  void let_go(const Follower& reader);

  /// Puts the cursor there. The caller says that what may go has changed. no_space for another consumer than the
  /// stream may have.
  Result<void> set(const std::string& consumer, std::uint64_t position);
  /// The consumer has done with the steps before `position`. A cursor never goes back by that.
  Result<void> acknowledge(const std::string& consumer, std::uint32_t epoch, std::uint64_t position);
  /// Durable cursors of earlier epochs that lie beyond `first` go back there.
  void set_back(std::uint64_t first);

  /// The first step that not all of these have passed; of no consumers, the one after all.
  std::uint64_t first_not_passed(const std::vector<std::string>& consumers) const;
  /// The first step that some consumer needs: one has not passed it, and may do more than read.
  std::uint64_t first_needed() const;
  std::vector<ConsumerInfo> list() const;

 private:
  /// How many consumers a stream may have: each takes room in its journal until it is removed.
  static constexpr std::ptrdiff_t consumers_max = 1024;
  static constexpr std::ptrdiff_t guests_consumers_max = 256;  ///< of them, those of users who may only read
  static constexpr std::ptrdiff_t guest_consumers_max = 64;    ///< of these, each user's
  Result<void> check_room(const std::string& consumer) const;

  FollowedStream& stream_;
  const storage::StreamState& state_;
  std::map<std::string, Follower*> holders_;  ///< by consumer; readers that share a name do not hold it
};

}  // namespace forebay::server
