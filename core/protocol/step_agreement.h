// SPDX-License-Identifier: Apache-2.0
// What the ranks of a writer group must say alike in one step: each variable has one type, kind, number of dimensions
// and shape. Blocks of ranks that do not agree make no variable that anyone could read.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "protocol/step_metadata.h"

namespace forebay::protocol {

/// What one rank wrote in the step.
struct RankMetadata {
  std::uint32_t rank = 0;
  const format::StepMetadata* metadata = nullptr;
};

/// What is different between blocks of `other` and the variable that `first` defines ("types"); null if they belong
/// together.
const char* conflict_between(const format::Variable& first, const format::Variable& other);

/// What a rank says of a variable: "global array of float64, 4 x 2".
std::string description_of(const format::Variable& variable);

/// The same with both ranks and what they say, for people: "different types: rank 0 says ...; rank 1 says ...".
std::string conflict_text(const char* conflict, std::uint32_t first_rank, const format::Variable& first,
                          std::uint32_t other_rank, const format::Variable& other);

/// Whether the ranks agree on every variable. Errors: invalid_argument, with the first variable on which they do not,
/// the first two ranks that differ, and what each says.
Result<void> check_agreement(std::span<const RankMetadata> ranks);

}  // namespace forebay::protocol
