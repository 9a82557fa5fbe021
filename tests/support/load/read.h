// SPDX-License-Identifier: Apache-2.0
// The load generator as a follower of a stream, and as the independent reader that checks every kept step.
#pragma once

#include <cstddef>
#include <cstdint>

#include <forebay/reader.h>

#include "content.h"

namespace forebay::load {

struct ReadOptions {
  Address address;
  ReaderOptions reader;
  std::uint64_t steps = 0;  ///< to read before ending; 0: until the end of the stream
  std::size_t hold = 0;     ///< keep that many steps with views, which are compared again when let go
  bool acknowledge = false;
  bool ordered = true;     ///< step numbers must go on without a gap that was not told
  bool unchecked = false;  ///< check_stream: steps may have been written without checksums
  Losses losses = Losses::none;
  bool commands = false;             ///< do what standard input says: next, get N, ack, seek N, compare, release
  std::int64_t timeout_ms = 60'000;  ///< longest wait for a step
};

int follow_stream(const ReadOptions& options);
int check_stream(const ReadOptions& options);

}  // namespace forebay::load
