// SPDX-License-Identifier: Apache-2.0
// Steps whose bytes follow from one number, so that a reader can tell which writing of a step it has before it, and
// that all of it is there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <forebay/reader.h>
#include <forebay/writer.h>

namespace forebay::testing {

/// Elements of the step's large array.
std::uint64_t elements_of(std::uint64_t content);

/// Who puts the content, and how.
struct Putting {
  std::uint32_t rank = 0;  ///< the first puts everything but the others' shares of the large array
  std::uint32_t ranks = 1;
  bool in_place = false;            ///< the large arrays are computed in the step's memory
  std::uint64_t ballast_bytes = 0;  ///< an array that makes the step large, whose bytes nothing but its checksum tells
};

/// Puts several variables, among them a string, and attributes into the open step.
Result<void> put_content(Writer& writer, std::uint64_t content, const Putting& putting = {});

/// The number that the step was written with. corrupt if any of its variables or attributes says otherwise; other
/// errors are those of the reads.
Result<std::uint64_t> content_of(const Step& step);

}  // namespace forebay::testing
