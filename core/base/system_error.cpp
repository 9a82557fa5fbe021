// SPDX-License-Identifier: Apache-2.0
#include "base/system_error.h"

#include <cerrno>
#include <system_error>

namespace forebay {

tl::unexpected<Error> system_error(int number, std::string action, std::string where) {
  ErrorCode code = ErrorCode::io_error;
  switch (number) {
    case ENOSPC:
    case EDQUOT:
      code = ErrorCode::no_space;
      break;
    case ENOENT:
      code = ErrorCode::not_found;
      break;
    case EEXIST:
      code = ErrorCode::already_exists;
      break;
    case EACCES:
    case EPERM:
    case EROFS:
      code = ErrorCode::permission_denied;
      break;
    case EOPNOTSUPP:
    case ENOSYS:
      code = ErrorCode::unsupported;
      break;
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
      code = ErrorCode::disconnected;
      break;
    default:
      break;
  }
  return fail(code, std::move(action) + ": " + std::generic_category().message(number), std::move(where));
}

}  // namespace forebay
