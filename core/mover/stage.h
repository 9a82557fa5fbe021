// SPDX-License-Identifier: Apache-2.0
// One stage of a file or a tree: finds both ends, says what there is to do, brings the target up to date.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>

#include <forebay/result.h>

#include "base/file_system_user.h"
#include "mover/report.h"

namespace forebay::mover {

struct Request {
  std::string inside;   ///< where the reservation's files lie
  std::string path;     ///< relative to them; empty: all
  std::string outside;  ///< absolute
  std::string name;     ///< of a copy of all files
  std::string secret;
  bool inward = true;
  std::string only;  ///< "file" or "directory": what the source must be, or be a link to; empty: whatever it is
  bool carries_lists = false;
  /// What lies at the target is exchanged for a new copy in one step, never brought up to date in place.
  bool whole = false;
  bool replaces = false;             ///< with `whole`: something may lie there
  bool must_know_writers = false;    ///< a file of which nobody can tell whether a program writes it is refused
  std::uint32_t wait_closed_ms = 0;  ///< so long a file that a program has open for writing is waited for
  std::optional<FileSystemUser> inside_user;  ///< who works inside, if not the process's user
  std::optional<uid_t> owner;                 ///< of what is made outside
  std::optional<gid_t> group;

  /// From `KEY=VALUE` texts that NUL bytes end.
  static Result<Request> parse(std::string_view text);
};

/// Does it. `confirm` is asked when the plan is told, and again whenever entries are built and lack only their names;
/// it may refuse. `stopping` ends it soon.
Result<Summary> stage(const Request& request, Report& report, const std::function<Result<void>()>& confirm,
                      const std::atomic<bool>& stopping);

}  // namespace forebay::mover
