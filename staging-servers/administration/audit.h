// SPDX-License-Identifier: Apache-2.0
// What `forebay doctor` asks: does what the server believes agree with itself and with what lies on disk?
#pragma once

#include <string>
#include <vector>

#include <forebay/admin.h>
#include <forebay/storage/journal_generated.h>

#include "base/segment_layout.h"

namespace forebay::server {

class AdministeredServer;

/// Of findings about one place the first, and how many more there are: users may make as many as they like.
std::vector<Finding> few_of_each(std::vector<Finding> findings);

/// Without reading data: streams' states, the accounting of space, segments' sizes, leftovers.
std::vector<Finding> audit_accounting(AdministeredServer& server);

/// A reservation whose files are to be measured in a worker.
struct FilesToMeasure {
  std::string reservation;
  std::string id;
  std::uint64_t granted_bytes = 0;
};
std::vector<FilesToMeasure> files_to_measure(AdministeredServer& server);
/// In a worker: what takes more than it was granted.
std::vector<Finding> audit_files(AdministeredServer& server, const std::vector<FilesToMeasure>& files);

/// A step whose blocks are to be read in a worker, detached from the server's state.
struct StepToRead {
  std::string reservation;
  std::string stream;
  std::uint32_t epoch = 0;
  std::uint64_t step = 0;
  SegmentLayout layout;
  std::uint64_t segment_bytes = 0;
  std::vector<std::string> segment_paths;  ///< by segment number
  std::vector<std::uint8_t> record;        ///< StepCommitted
};
std::vector<StepToRead> steps_to_read(AdministeredServer& server);

/// A step whose data does not agree with its checksums, whose ranks do not agree on a variable, or in which blocks of
/// an array overlap or leave elements out.
struct DamagedStep {
  StepToRead step;
  std::string what;
  std::string advice;
  Finding::Severity severity = Finding::Severity::problem;
};
/// In a worker.
std::vector<DamagedStep> read_steps(AdministeredServer& server, const std::vector<StepToRead>& steps);
/// Back in the loop: steps that were dropped while they were read are not findings.
std::vector<Finding> still_damaged(AdministeredServer& server, const std::vector<DamagedStep>& damaged);

}  // namespace forebay::server
