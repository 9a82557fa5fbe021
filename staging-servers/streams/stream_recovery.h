// SPDX-License-Identifier: Apache-2.0
// Brings a stream back from its journal after the server ended, however it ended.
#pragma once

#include <memory>
#include <string>

#include <forebay/result.h>

#include "storage/journal.h"
#include "storage/stream_state.h"
#include "streams/attribute_sets.h"
#include "streams/journal_waste.h"

namespace forebay::server {

class ReservationSpace;
class Stream;
struct StreamServices;

/// A stream whose journal was read.
struct ReadStream {
  storage::StreamState state;
  std::unique_ptr<storage::Journal> journal;
  storage::JournalRecovery recovery;
  JournalWaste waste;
  AttributeSets sets;  ///< whose space has been taken, with how many users
};

/// Reads the journal.
Result<ReadStream> read_stream(const StreamServices& services, ReservationSpace& space, const std::string& name,
                               bool after_boot);

/// Takes the space of its steps in the reservation's map: after a boot, of the durable ones. Space of others is given
/// to other streams as soon as a record says that they were dropped, which power loss may have taken back; and what a
/// damaged journal says of its steps may have been overtaken. So this comes for all streams with a whole journal before
/// any is recovered. corrupt, with nothing taken, if two steps claim the same bytes.
Result<void> take_certain_space(const StreamServices& services, ReservationSpace& space, ReadStream& read,
                                bool after_boot);

/// Closes what a crash left open. After a boot, every block behind the durable watermark is checked and the stream is
/// cut at the first that does not hold, or whose space is another stream's by now. `number`: the server's for it.
Result<std::unique_ptr<Stream>> recover_stream(const StreamServices& services, ReservationSpace& space,
                                               std::uint64_t number, ReadStream read, bool after_boot);

}  // namespace forebay::server
