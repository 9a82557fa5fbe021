// SPDX-License-Identifier: Apache-2.0
// Two macros for functions that return a Result: they pass the error of a call on unchanged.
#pragma once

#include <utility>

#include <forebay/result.h>

/// Returns the error of a Result, and goes on where there is none:
///   RETURN_IF_ERROR(file->sync());
#define RETURN_IF_ERROR(...)                                     \
  do {                                                           \
    if (auto&& checked_result = (__VA_ARGS__); !checked_result)  \
      return ::forebay::fail(std::move(checked_result.error())); \
  } while (false)

/// Returns the error of a Result, or initializes `target` with its value. A statement of its own, never the body of an
/// `if`:
///   ASSIGN_OR_RETURN(const std::uint64_t bytes, file->size());
#define ASSIGN_OR_RETURN(target, ...) FOREBAY_ASSIGN_OR_RETURN(FOREBAY_NUMBERED(__COUNTER__), target, (__VA_ARGS__))

#define FOREBAY_ASSIGN_OR_RETURN(result, target, expression)      \
  auto&& result = expression;                                     \
  if (!result) return ::forebay::fail(std::move(result.error())); \
  target = *std::move(result)
#define FOREBAY_NUMBERED(number) FOREBAY_JOINED(checked_result_, number)
#define FOREBAY_JOINED(first, second) first##second
