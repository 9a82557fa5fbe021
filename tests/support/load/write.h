// SPDX-License-Identifier: Apache-2.0
// The load generator as one rank of a writer group.
#pragma once

#include <cstdint>

#include <forebay/writer.h>

#include "content.h"

namespace forebay::load {

struct WriteOptions {
  Address address;
  WriterOptions writer;
  Shape shape;
  std::uint64_t steps = 10;    ///< to write before closing; 0: until killed
  bool commands = false;       ///< do what standard input says instead: begin, put, end, abort, step, close
  std::uint64_t pause_us = 0;  ///< between steps, as a simulation computes
  std::uint64_t attempts = 1;  ///< for a step that a server that went away keeps from being written
};

/// The program's exit status.
int write_stream(const WriteOptions& options);

}  // namespace forebay::load
