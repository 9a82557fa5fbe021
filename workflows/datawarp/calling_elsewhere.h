// SPDX-License-Identifier: Apache-2.0
// A call of libdatawarp from a node without the manager: by a server of the pool, as other clients of such nodes go.
#pragma once

#include <string>

namespace forebay::datawarp {

/// What became of one attempt.
struct Asked {
  int status = 0;  ///< of HTTP; 0: there is no answer
  std::string body;
  bool is_absent = false;  ///< there is no manager this way, or none for this user
};

/// `server`: "HOST:PORT". MUNGE says who the caller is; where it is not installed, a user token.
Asked ask_elsewhere(const std::string& server, const std::string& body);

}  // namespace forebay::datawarp
