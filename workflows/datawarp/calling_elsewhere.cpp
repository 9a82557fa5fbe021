// SPDX-License-Identifier: Apache-2.0
#include "calling_elsewhere.h"

#include <new>

#include <forebay/address.h>
#include <forebay/admin.h>

#include "base/munge.h"
#include "base/return_error.h"

namespace forebay::datawarp {
namespace {

Result<ServerPlace> place_of(const std::string& server) {
  if (!has_munge()) return ServerPlace::at_server(server);
  // Jobs have a token of their reservation, which the manager does not take.
  ServerPlace place;
  ASSIGN_OR_RETURN(place.remote, parse_server(server));
  place.remote->by_munge = true;
  return place;
}

Result<ManagerAnswer> answer_of(const std::string& server, const std::string& body) {
  ASSIGN_OR_RETURN(const auto place, place_of(server));
  ASSIGN_OR_RETURN(const auto managers, pool_server(place, ""));
  ASSIGN_OR_RETURN(const auto admin, Admin::connect_to(managers));
  return admin->call_manager("POST", "/datawarp", body);
}

}  // namespace

Asked ask_elsewhere(const std::string& server, const std::string& body) {
  try {
    auto answer = answer_of(server, body);
    if (answer) return {answer->status, std::move(answer->body), false};
    switch (answer.error().code) {
      case ErrorCode::permission_denied:
      case ErrorCode::invalid_argument:
      case ErrorCode::unsupported:
      case ErrorCode::not_found:
        return {0, {}, true};
      default:
        return {};
    }
  } catch (const std::bad_alloc&) {
    return {};
  }
}

}  // namespace forebay::datawarp
