// SPDX-License-Identifier: Apache-2.0
#include "read_selection.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "array_order.h"

namespace forebay::engine {
namespace {

bool has_box(const Selected& selected) {
  return selected.selection.GetSelectionType() == adios2::SelectionType::BoundingBox;
}

Dimensions in_order(const Selected& selected, const adios2::Dims& dimensions) {
  return selected.column_major ? reversed(dimensions) : dimensions;
}

Box selected_box(const Selected& selected) {
  return {in_order(selected, selected.selection.GetStart()), in_order(selected, selected.selection.GetCount())};
}

Box whole(const Dimensions& count) {
  return {Dimensions(count.size(), 0), count};
}

bool is_empty(const Box& box) {
  return std::find(box.count.begin(), box.count.end(), 0U) != box.count.end();
}

MemoryLayout memory_layout(const Selected& selected) {
  if (!selected.selection.HasMemorySelection()) return {};
  return {in_order(selected, selected.selection.GetMemoryStart()),
          in_order(selected, selected.selection.GetMemoryCount())};
}

tl::unexpected<Error> no_such_block(const Step& step, const VariableInfo& variable, std::size_t block) {
  return fail(ErrorCode::invalid_argument,
              "block " + std::to_string(block) + " is selected, but " + variable.name + " has " +
                  std::to_string(variable.blocks.size()) + " blocks, numbered from 0",
              "step " + std::to_string(step.number()));
}

// The block that a Get of `variable` reads, if it reads a single one.
std::optional<std::size_t> single_block(const VariableInfo& variable, const Selected& selected) {
  const adios2::core::Selection& selection = selected.selection;
  const std::size_t block = selection.HasBlockSelection() ? selection.GetBlockID() : 0;
  switch (variable.kind) {
    case ShapeKind::global_value:
    case ShapeKind::local_array:
      return block;
    case ShapeKind::local_value:
      if (variable.type == DataType::string) return block;
      if (selection.HasBlockSelection() && !has_box(selected)) return block;
      return std::nullopt;
    case ShapeKind::global_array:
    case ShapeKind::joined_array:
      if (selection.HasBlockSelection() && (!has_box(selected) || selected.with_get)) return block;
      return std::nullopt;
  }
  return std::nullopt;
}

bool is_value(ShapeKind kind) {
  return kind == ShapeKind::global_value || kind == ShapeKind::local_value;
}

Box box_of(const VariableInfo& variable, std::optional<std::size_t> block, const Selected& selected) {
  if (has_box(selected)) return selected_box(selected);
  return whole(block ? variable.blocks[*block].count : variable.shape);
}

}  // namespace

Result<std::uint64_t> read_selection(const Step& step, const VariableInfo& variable, const Selected& selected,
                                     void* out) {
  const std::optional<std::size_t> block = single_block(variable, selected);
  if (block && *block >= variable.blocks.size()) return no_such_block(step, variable, *block);
  Result<void> result;
  if (block && is_value(variable.kind)) {
    result = step.read_value(variable, *block, out);
    if (!result) return fail(result.error());
    return 1;
  }
  const Box box = box_of(variable, block, selected);
  if (is_empty(box)) return 0;
  result = block ? step.read_block(variable, *block, box, out, memory_layout(selected))
                 : step.read(variable, box, out, memory_layout(selected));
  if (!result) return fail(result.error());
  return element_count(box.count);
}

Result<std::string> read_selected_string(const Step& step, const VariableInfo& variable, const Selected& selected) {
  const std::size_t block = single_block(variable, selected).value_or(0);
  if (block >= variable.blocks.size()) return no_such_block(step, variable, block);
  return step.read_string(variable, block);
}

std::uint64_t selected_elements(const VariableInfo& variable, const Selected& selected) {
  const std::optional<std::size_t> block = single_block(variable, selected);
  if (block && (*block >= variable.blocks.size() || is_value(variable.kind))) return 1;
  return element_count(box_of(variable, block, selected).count);
}

}  // namespace forebay::engine
