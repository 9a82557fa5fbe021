// SPDX-License-Identifier: Apache-2.0
// What a writer group asks of the stream that it writes. Streams stand above and implement it.
#pragma once

#include <cstdint>
#include <string>

#include <forebay/reader.h>
#include <forebay/result.h>
#include <forebay/storage/journal_generated.h>

#include "loop/access_rights.h"
#include "space/space_user.h"

namespace forebay::server {

class WriterGroup;
struct Peer;

class WrittenStream : public SpaceUser {
 public:
  /// How often the storage may have lost what was not synced: each part carries it.
  virtual std::uint64_t storage_incarnation() const = 0;
  /// The first step that is not durable for everyone to see.
  virtual std::uint64_t durable_next() const = 0;
  /// Somebody waits for what is committed to become durable.
  virtual void make_durable_soon() = 0;

  /// A new group begins, and with one record withdraws the steps from `formed.withdraws_from` on.
  virtual Result<void> form_group(journal::GroupFormedT formed) = 0;
  /// Makes the step visible: readers get it, old steps go, WriterGroup::answer_commit() is called.
  virtual Result<void> commit(journal::StepCommittedT step) = 0;
  virtual Result<void> note_rank_closed(journal::RankClosedT closed) = 0;
  /// The end counts also where it cannot be written down, which is the error returned: nobody waits for a group that
  /// is no more. A restarted server would not know of it, and wait for the group.
  virtual Result<void> group_ended(std::uint32_t incarnation, StreamStatus status, const std::string& text) = 0;
  /// A group that was to write, of this run or of none, was refused. Readers that wait for it are told, unless another
  /// one has come by then.
  virtual void writer_refused(const std::string& run, const std::string& why) = 0;
  /// For so long followers wait for a group that was lost.
  virtual void begin_grace(std::int64_t grace_ms) = 0;
};

/// Where writer sessions find what they are to write.
class StreamsToWrite {
 public:
  virtual ~StreamsToWrite() = default;
  /// `make`: makes the stream if there is none. Errors: invalid_argument, not_found, permission_denied, corrupt (a
  /// stream that cannot be opened), no_space.
  virtual Result<WriterGroup*> find_to_write(const Peer& peer, const std::string& reservation,
                                             const std::string& stream, bool make) = 0;
  /// What the peer may do there now; none where there is no such reservation.
  virtual AccessRights rights_of(const Peer& peer, const std::string& reservation) = 0;
};

}  // namespace forebay::server
