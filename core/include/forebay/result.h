// SPDX-License-Identifier: Apache-2.0
// The result type of every call that can fail, and the errors it carries. Stable codes; the text says what to do next.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <tl/expected.hpp>

namespace forebay {

/// What kind of failure it was. Values travel on the wire: never renumber.
enum class ErrorCode : std::uint8_t {
  invalid_argument = 1,   ///< the caller's mistake; trying again does not help
  not_found = 2,          ///< no such reservation, stream, step, variable or consumer
  already_exists = 3,     ///< a name is taken
  permission_denied = 4,  ///< the peer's credentials do not own the reservation
  busy = 5,               ///< somebody holds it, or descriptors or memory are short: trying again later may help
  fenced = 6,             ///< a newer incarnation of the writer group exists
  timeout = 7,            ///< the deadline passed
  cancelled = 8,          ///< the caller's interrupt hook asked to stop waiting
  no_space = 9,           ///< the reservation is full; the text names who holds the space
  corrupt = 10,           ///< a checksum or a bound does not hold
  io_error = 11,          ///< a read, write or sync failed
  disconnected = 12,      ///< the server cannot be reached, or did not come back in time
  step_gone = 13,         ///< the step was dropped, withdrawn or replaced
  refused = 14,           ///< would lose precious steps, or destroy what is in use: force is needed; or no writer comes
  unsupported = 15,       ///< not possible with this build, file system or interface
  protocol = 16,          ///< malformed or unexpected message
  group_broken = 17,      ///< a rank of the writer or reader group was lost; a writer's open step is aborted
  failed = 18,            ///< the stream or reservation is in state failed after a failed sync
  unavailable = 19,       ///< a member server of the reservation, which has what is needed, is away: try again later
};

/// The code's name as written in docs and JSON, for example "no_space".
std::string_view to_string(ErrorCode code) noexcept;

/// A failure: the code, what happened and what to do, and where.
struct Error {
  ErrorCode code = ErrorCode::invalid_argument;
  std::string what;
  std::string where;  ///< "stream run1/flow, step 17", "segment 3 @ 4096"; may be empty

  /// "what (where)" on one line, as a person may see it: control characters of names in it are escaped.
  std::string message() const;
};

/// A value or the error in its place; all of tl::expected's interface. Whoever calls what returns one looks at it.
template <class T = void>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using tl::expected<T, Error>::expected;
};

/// Shorthand for returning an error: `return fail(ErrorCode::not_found, "...")`.
inline tl::unexpected<Error> fail(ErrorCode code, std::string what, std::string where = {}) {
  return tl::unexpected<Error>(Error{code, std::move(what), std::move(where)});
}

/// Passes an error on from a Result of another type.
inline tl::unexpected<Error> fail(Error error) {
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace forebay
