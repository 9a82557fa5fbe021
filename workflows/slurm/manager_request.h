// SPDX-License-Identifier: Apache-2.0
// Requests to the manager over its socket, in HTTP, without a library for it: one connection for each.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace forebay::slurm {

struct ManagerAnswer {
  int http_status = 0;
  std::optional<int> exit_status;  ///< of calls that have one, from the header X-Forebay-Exit-Status
  std::string body;
};

/// Sends a whole request, with "Connection: close", to the manager of `root`. Each part of the answer must come within
/// `wait` (0: at any time). Nothing, with the reason in errno, if the manager cannot be reached or its answer is not
/// whole; ENOENT: there is no manager at this root.
std::optional<ManagerAnswer> answer_of_manager(const std::string& root, const std::string& request,
                                               std::chrono::seconds wait);

}  // namespace forebay::slurm
