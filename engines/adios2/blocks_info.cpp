// SPDX-License-Identifier: Apache-2.0
#include "blocks_info.h"

#include <cstring>
#include <utility>

#include <adios2.h>

#include "array_order.h"
#include "variable_facts.h"

namespace forebay::engine {
namespace {

static_assert(sizeof(adios2::PrimitiveStdtypeUnion) == 16);

// ADIOS2's type for `type`; only those that have minimum and maximum matter.
adios2::DataType adios2_type(DataType type) {
  switch (type) {
    case DataType::character:
      return adios2::DataType::Char;
    case DataType::int8:
      return adios2::DataType::Int8;
    case DataType::int16:
      return adios2::DataType::Int16;
    case DataType::int32:
      return adios2::DataType::Int32;
    case DataType::int64:
      return adios2::DataType::Int64;
    case DataType::uint8:
      return adios2::DataType::UInt8;
    case DataType::uint16:
      return adios2::DataType::UInt16;
    case DataType::uint32:
      return adios2::DataType::UInt32;
    case DataType::uint64:
      return adios2::DataType::UInt64;
    case DataType::float32:
      return adios2::DataType::Float;
    case DataType::float64:
      return adios2::DataType::Double;
    case DataType::long_double:
      return adios2::DataType::LongDouble;
    case DataType::complex64:
    case DataType::complex128:
    case DataType::string:
      break;
  }
  return adios2::DataType::None;
}

// NaN alone has no range. As in BP5 the minimum is then above the maximum, so that it never wins a comparison with the
// range of another block.
void set_min_max(adios2::MinBlockInfo& info, const std::byte* min, const std::byte* max, DataType type) {
  if (is_nan(min, type)) return info.MinMax.Init(adios2_type(type));
  std::memcpy(&info.MinMax.MinUnion, min, element_size(type));
  std::memcpy(&info.MinMax.MaxUnion, max, element_size(type));
}

// ADIOS2 takes the numbers of a value that it shows as an array element in place of pointers to them.
const std::size_t* number_as_pointer(std::size_t number) {
  return reinterpret_cast<const std::size_t*>(number);
}

}  // namespace

Result<adios2::MinVarInfo*> BlocksInfo::make(std::shared_ptr<const Step> step, const VariableInfo& as_stored,
                                             std::size_t label, bool column_major) {
  step_ = std::move(step);
  if (column_major) reversed_ = reversed(as_stored);
  const VariableInfo& variable = column_major ? reversed_ : as_stored;
  const std::size_t blocks = variable.blocks.size();
  values_.assign(blocks, Value{});
  strings_.assign(blocks, {});
  texts_.assign(blocks, nullptr);
  const bool local_value = variable.kind == ShapeKind::local_value;
  const bool value = variable.kind == ShapeKind::global_value || local_value;
  const bool local_array = variable.kind == ShapeKind::local_array;

  std::size_t dimensions = variable.shape.size();
  if (local_array) dimensions = blocks == 0 ? 0 : variable.blocks.front().count.size();
  if (local_value) dimensions = 1;
  const std::size_t* shape = value || local_array ? nullptr : variable.shape.data();
  if (local_value) shape = number_as_pointer(blocks);

  auto result = std::make_unique<adios2::MinVarInfo>(static_cast<int>(dimensions), shape);
  result->Step = label;
  result->WasLocalValue = local_value;
  result->IsReverseDims = column_major && dimensions > 1;
  // ADIOS2 would take the minimum of strings for a std::string; their value it takes from text.
  result->IsValue = variable.kind == ShapeKind::global_value || (local_value && variable.type == DataType::string);
  result->BlocksInfo.resize(blocks);
  for (std::size_t i = 0; i < blocks; ++i) {
    const BlockInfo& block = variable.blocks[i];
    adios2::MinBlockInfo& info = result->BlocksInfo[i];
    info.WriterID = static_cast<int>(block.rank);
    info.BlockID = i;
    info.Start = value || local_array ? nullptr : block.start.data();
    info.Count = value ? nullptr : block.count.data();
    if (local_value) {
      info.Start = number_as_pointer(i);
      info.Count = number_as_pointer(1);
    }
    std::memset(&info.MinMax, 0, sizeof info.MinMax);
    if (value) {
      if (auto added = add_value(as_stored, i, info); !added) return fail(added.error());
    } else if (block.has_statistics) {
      set_min_max(info, block.min, block.max, variable.type);
    } else if (has_order(variable.type)) {
      info.MinMax.Init(adios2_type(variable.type));  // the minimum above the maximum: unknown
    }
  }
  return result.release();
}

Result<void> BlocksInfo::add_value(const VariableInfo& variable, std::size_t block, adios2::MinBlockInfo& info) {
  if (variable.type == DataType::string) {
    auto text = step_->read_string(variable, block);
    if (!text) return fail(text.error());
    strings_[block] = std::move(*text);
    texts_[block] = strings_[block].c_str();
    info.BufferP = &texts_[block];
    return {};
  }
  if (auto read = step_->read_value(variable, block, values_[block].data()); !read) return read;
  info.BufferP = values_[block].data();
  if (has_order(variable.type)) set_min_max(info, values_[block].data(), values_[block].data(), variable.type);
  return {};
}

}  // namespace forebay::engine
