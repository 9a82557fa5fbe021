// SPDX-License-Identifier: Apache-2.0
// Collects what one rank writes in a step and encodes it as StepMetadata. Memory is kept from step to step: a step with
// the same variables as the last one allocates nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <flatbuffers/flatbuffers.h>

#include <forebay/protocol/step_metadata_generated.h>
#include <forebay/types.h>

namespace forebay::protocol {

/// Minimum and maximum of a block as they lie in the metadata: 16 bytes each, zero-padded.
using Statistics = std::array<std::byte, 32>;

/// All attributes that hold in a step, by name.
using Attributes = std::map<std::string, AttributeValue, std::less<>>;

/// An AttributeTable in serialized form.
std::vector<std::uint8_t> encode_attributes(const Attributes& attributes);

class StepMetadataBuilder {
 public:
  /// What all blocks of a variable have in common. The spans of variables that find() returns live until the next add.
  struct Variable {
    std::string_view name;
    DataType type = DataType::float64;
    ShapeKind kind = ShapeKind::global_array;
    std::size_t dimensions = 0;
    std::span<const std::uint64_t> shape;
  };
  struct Block {
    std::span<const std::uint64_t> start;  ///< global arrays only
    std::span<const std::uint64_t> count;
    std::span<const format::Piece> pieces;
    std::uint32_t checksum = 0;
    Statistics statistics{};
  };

  StepMetadataBuilder();

  /// Forgets the blocks and values of the last step. `rank`, and what the blocks will carry.
  void begin(std::uint32_t rank, bool checksums, bool statistics);

  /// The variable of this step with that name, if it has one already. Cheap when variables come in the last step's
  /// order.
  std::optional<Variable> find(std::string_view name);
  /// Adds a block to an array; `variable` agrees with what find() gives for its name, but for the shape of a global
  /// array: the last one holds. Returns a handle for complete_block.
  std::uint32_t add_block(const Variable& variable, const Block& block);
  /// Sets what was not known yet when the block was added.
  void complete_block(std::uint32_t block, std::uint32_t checksum, const Statistics& statistics);
  /// Sets a single value; a second one of the same name replaces the first.
  void set_value(const Variable& variable, std::span<const std::byte> value);

  /// A digest of what this step says of its variables: names, types, kinds, dimensions and shapes, in any order. Never
  /// 0.
  std::uint64_t definitions() const;

  /// The serialized step, valid until the next call of begin or encode. `attributes` is an encoded table or empty.
  std::span<const std::byte> encode(std::span<const std::uint8_t> attributes);

 private:
  struct VariableEntry {
    std::string name;
    std::uint64_t name_digest = 0;
    std::uint64_t generation = 0;  ///< the step that the rest belongs to
    DataType type = DataType::float64;
    ShapeKind kind = ShapeKind::global_array;
    std::uint32_t dimensions = 0;
    std::size_t shape_start = 0;  ///< in numbers_
    std::uint32_t first_block = 0;
    std::uint32_t last_block = 0;
    std::uint32_t block_count = 0;
    bool one_piece_each = true;
    bool contiguous = true;       ///< its blocks lie one behind another in blocks_
    std::size_t value_start = 0;  ///< in values_
    std::size_t value_bytes = 0;
  };
  struct BlockEntry {
    std::uint32_t next = 0;
    std::uint32_t piece_count = 0;
    std::size_t first_piece = 0;
    std::size_t extents_start = 0;  ///< in numbers_: start, if any, then count
    std::uint32_t checksum = 0;
    Statistics statistics{};
  };

  VariableEntry* lookup(std::string_view name);
  VariableEntry& enter(const Variable& variable);
  flatbuffers::Offset<format::Variable> encode_variable(const VariableEntry& entry);
  void forget_unused();

  std::uint32_t rank_ = 0;
  bool checksums_ = true;
  bool statistics_ = true;
  std::uint64_t generation_ = 0;
  std::vector<VariableEntry> entries_;                      // of this step and of earlier ones
  std::unordered_map<std::string, std::uint32_t> by_name_;  // into entries_
  std::vector<std::uint32_t> order_;                        // variables of this step in order of first writing
  std::size_t expected_ = 0;                                // where in entries_ the next variable is looked for first
  std::vector<BlockEntry> blocks_;
  std::vector<std::uint64_t> numbers_;
  std::vector<format::Piece> pieces_;
  std::vector<std::byte> values_;
  std::vector<flatbuffers::Offset<format::Variable>> offsets_;
  flatbuffers::FlatBufferBuilder builder_;
};

}  // namespace forebay::protocol
