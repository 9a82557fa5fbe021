// SPDX-License-Identifier: Apache-2.0
// What `forebay doctor` asks: does what the server believes agree with itself and with what lies on disk?
#pragma once

#include <string>
#include <vector>

#include <forebay/admin.h>

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

}  // namespace forebay::server
