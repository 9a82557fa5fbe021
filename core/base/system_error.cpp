// SPDX-License-Identifier: Apache-2.0
#include "base/system_error.h"

#include <cerrno>
#include <system_error>

namespace forebay {

tl::unexpected<Error> system_error(int number, std::string action, std::string where) {
  ErrorCode code = ErrorCode::io_error;
  const char* advice = "";
  switch (number) {
    case ENOSPC:
      code = ErrorCode::no_space;
      advice = "; make room on that file system, then try again";
      break;
    case EDQUOT:
      code = ErrorCode::no_space;
      advice = "; make room within your quota, then try again";
      break;
    case ENAMETOOLONG:
      code = ErrorCode::invalid_argument;
      advice = "; give a shorter name or path";
      break;
    case ENOENT:
      code = ErrorCode::not_found;
      break;
    case EEXIST:
      code = ErrorCode::already_exists;
      break;
    case EACCES:
    case EPERM:
      code = ErrorCode::permission_denied;
      break;
    case EOPNOTSUPP:
    case ENOSYS:
      code = ErrorCode::unsupported;
      break;
    case EMFILE:
    case ENFILE:
      code = ErrorCode::busy;
      advice = "; raise the limit of open files (ulimit -n)";
      break;
    case ENOMEM:
    case ENOBUFS:
      code = ErrorCode::busy;
      break;
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
      code = ErrorCode::disconnected;
      break;
    default:
      break;
  }
  return fail(code, std::move(action) + ": " + std::generic_category().message(number) + advice, std::move(where));
}

}  // namespace forebay
