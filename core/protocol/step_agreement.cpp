// SPDX-License-Identifier: Apache-2.0
#include "protocol/step_agreement.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <forebay/writer.h>

#include "base/plain_text.h"

namespace forebay::protocol {
namespace {

constexpr std::size_t shown_dimensions_max = 4;

std::span<const std::uint64_t> shape_of(const format::Variable& variable) {
  return variable.shape() == nullptr ? std::span<const std::uint64_t>()
                                     : std::span(variable.shape()->data(), variable.shape()->size());
}

const char* name_of_kind(ShapeKind kind) {
  switch (kind) {
    case ShapeKind::global_value:
      return "single value";
    case ShapeKind::local_value:
      return "value per rank";
    case ShapeKind::global_array:
      return "global array";
    case ShapeKind::joined_array:
      return "joined array";
    case ShapeKind::local_array:
      return "local array";
  }
  return "variable";
}

}  // namespace

const char* conflict_between(const format::Variable& first, const format::Variable& other) {
  if (first.type() != other.type()) return "types";
  if (first.kind() != other.kind()) return "kinds of shape";
  if (first.dimensions() != other.dimensions()) return "numbers of dimensions";
  if (!std::ranges::equal(shape_of(first), shape_of(other))) return "shapes";
  return nullptr;
}

std::string description_of(const format::Variable& variable) {
  std::string text = std::string(name_of_kind(kind_of(variable))) + " of " + std::string(to_string(type_of(variable)));
  if (kind_of(variable) == ShapeKind::local_array)
    return text + ", " + std::to_string(variable.dimensions()) +
           (variable.dimensions() == 1 ? " dimension" : " dimensions");
  std::size_t shown_dimensions = 0;
  for (const std::uint64_t extent : shape_of(variable)) {
    if (shown_dimensions == shown_dimensions_max) return text + " x ...";
    text += shown_dimensions++ == 0 ? ", " : " x ";
    text += extent == joined_dimension ? "joined" : std::to_string(extent);
  }
  return text;
}

std::string conflict_text(const char* conflict, std::uint32_t first_rank, const format::Variable& first,
                          std::uint32_t other_rank, const format::Variable& other) {
  return std::string("different ") + conflict + ": rank " + std::to_string(first_rank) + " says " +
         description_of(first) + "; rank " + std::to_string(other_rank) + " says " + description_of(other);
}

Result<void> check_agreement(std::span<const RankMetadata> ranks) {
  struct Said {
    std::uint32_t rank;
    const format::Variable* variable;
  };
  std::unordered_map<std::string_view, Said> first;
  for (const RankMetadata& part : ranks) {
    if (part.metadata->variables() == nullptr) continue;
    for (const format::Variable* variable : *part.metadata->variables()) {
      const auto [known, added] = first.try_emplace(name_of(*variable), Said{part.rank, variable});
      if (added) continue;
      const char* conflict = conflict_between(*known->second.variable, *variable);
      if (conflict == nullptr) continue;
      return fail(ErrorCode::invalid_argument,
                  "ranks write variable " + shown_name(name_of(*variable)) + " with " +
                      conflict_text(conflict, known->second.rank, *known->second.variable, part.rank, *variable));
    }
  }
  return {};
}

}  // namespace forebay::protocol
