// SPDX-License-Identifier: Apache-2.0
// What `forebay doctor --read-data` adds to the audit: every step is read and compared with its checksums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <forebay/admin.h>

#include "streams/step_reading.h"

namespace forebay::server {

class AdministeredServer;

std::vector<StepToRead> steps_to_read(AdministeredServer& server);

class DataAudit {
 public:
  /// Calls `done` in the loop, once, unless `wanted` has expired by then.
  static void begin(AdministeredServer& server, std::vector<StepToRead> steps, std::weak_ptr<const bool> wanted,
                    std::function<void(std::vector<Finding>)> done);

 private:
  explicit DataAudit(AdministeredServer& server) : server_(server) {}

  void add(const StepToRead& step, const StepRead& found);
  std::vector<Finding> findings() const;

  /// A step whose data does not agree with its checksums, or whose ranks do not agree on a variable.
  struct Damaged {
    std::string reservation;
    std::string stream;
    std::uint32_t epoch = 0;
    std::uint64_t step = 0;
    std::string what;
    Finding::Severity severity = Finding::Severity::problem;
  };
  static Damaged damaged(const StepToRead& step, std::string what) {
    return {step.reservation, step.stream, step.epoch, step.step, std::move(what)};
  }
  /// Blocks of an array that overlap or leave elements out. A program that leaves a gap does so in every step: told
  /// once.
  struct Gap {
    Damaged first;
    std::string text;
    std::size_t steps = 0;
  };
  /// Steps with blocks on a member that could not compare them.
  struct NotAsked {
    std::string why;
    std::size_t steps = 0;
  };

  AdministeredServer& server_;
  std::vector<Damaged> damaged_;
  std::map<std::tuple<std::string, std::string, std::string>, Gap> gaps_;  ///< by reservation, stream and variable
  std::map<std::pair<std::string, std::uint16_t>, NotAsked> not_asked_;    ///< by reservation and member
};

}  // namespace forebay::server
