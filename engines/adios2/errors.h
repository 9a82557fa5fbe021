// SPDX-License-Identifier: Apache-2.0
// Turns the client's results into the exceptions that ADIOS2 applications expect.
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <utility>

#include <forebay/result.h>

namespace forebay::engine {

/// Throws std::invalid_argument for the caller's mistakes and std::runtime_error for the world's. `action` says what
/// was being done, for example "opening stream run1/flow".
[[noreturn]] void throw_error(const Error& error, std::string_view action);

/// Throws std::logic_error: the application called in the wrong order.
[[noreturn]] void throw_misuse(std::string_view action, std::string_view what);

/// The name of a variable as messages have it: cut, for it may have thousands of bytes.
std::string shown_name(const std::string& name);

/// The result's value, or throws.
template <class T>
T value_or_throw(Result<T> result, std::string_view action) {
  if (!result) throw_error(result.error(), action);
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

/// The same where to put `action` together costs more than the call: it is asked for when it is needed.
template <class T, std::invocable Action>
T value_or_throw(Result<T> result, const Action& action) {
  if (!result) throw_error(result.error(), action());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

}  // namespace forebay::engine
