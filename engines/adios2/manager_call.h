// SPDX-License-Identifier: Apache-2.0
// What the engine asks of the instance's manager: to carry out a rule that comes with a stream.
#pragma once

#include <cstdint>
#include <string>

#include <forebay/result.h>
#include <forebay/writer.h>

namespace forebay::engine {

/// A rule for stage-out, as the program gave it, for one stream.
struct StageOutRule {
  std::string root;    ///< of the instance
  std::string stream;  ///< "RESERVATION/STREAM"
  std::string rules;   ///< one or several, with ';' between them
};

/// Whether the manager would carry the rule out. disconnected if it cannot be reached for `wait_ms` (negative: ever);
/// cancelled if the hook says so.
Result<void> check_stage_out(const StageOutRule& rule, std::int64_t wait_ms, const InterruptHook& interrupt);

/// Has the manager begin, as this process's user. The stream exists.
Result<void> begin_stage_out(const StageOutRule& rule, std::int64_t wait_ms, const InterruptHook& interrupt);

}  // namespace forebay::engine
