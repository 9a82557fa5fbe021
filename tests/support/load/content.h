// SPDX-License-Identifier: Apache-2.0
// What the load generator writes: every element is a function of stream, epoch, incarnation, step, rank, variable and
// index, so that whoever reads a step can tell whether it is whole, in its place, and of one writer group.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <forebay/reader.h>
#include <forebay/writer.h>

namespace forebay::load {

/// How much each rank writes in a step.
struct Shape {
  std::uint32_t ranks = 1;
  std::uint32_t variables = 2;
  std::uint64_t elements = 4096;  ///< of each variable and rank, at most
  bool varying = false;           ///< the number of elements differs from step to step

  std::uint64_t elements_of(std::uint64_t step) const;
};

/// Where a block belongs.
struct BlockKey {
  std::string_view stream;
  std::uint32_t epoch = 0;
  std::uint32_t incarnation = 0;
  std::uint64_t step = 0;
  std::uint32_t rank = 0;
  std::uint32_t variable = 0;
};

void fill(const BlockKey& key, std::span<std::uint64_t> elements);
/// Index of the first element that is not what fill() wrote; the number of elements if all are right.
std::size_t first_difference(const BlockKey& key, std::span<const std::uint64_t> elements);

std::string variable_name(std::uint32_t variable);

/// Puts this rank's part of a step: single values that say what the step holds, an attribute, a local value, and the
/// arrays.
Result<void> put_part(Writer& writer, const Shape& shape, std::uint32_t rank, std::vector<std::uint64_t>& buffer);

struct StepFindings {
  std::vector<std::string> wrong;  ///< all that was read and is not what was written, or could not be read
  std::string gone;                ///< what a read said of a step that is gone, as one without a pin may be
  std::string unavailable;         ///< what was said of a part that lies on a server that is away; empty: nothing
};
/// Whether a server may lose its power, and with it steps that were not durable, whoever holds them.
enum class Losses : std::uint8_t { none, happen };
StepFindings check_step(const Step& step, std::string_view stream, Losses losses);

/// A zero-copy look at the blocks of one variable, kept to be compared again later.
struct HeldView {
  std::uint64_t step = 0;
  std::uint32_t epoch = 0;
  std::uint32_t incarnation = 0;
  std::uint32_t rank = 0;
  std::uint32_t variable = 0;
  Step::View view;
  std::uint64_t elements = 0;
};
/// Views of all blocks of a pinned step.
Result<std::vector<HeldView>> hold_views(const Step& step);
std::vector<std::string> check_views(const std::vector<HeldView>& views, std::string_view stream);

}  // namespace forebay::load
