// SPDX-License-Identifier: Apache-2.0
#include "protocol/step_metadata_builder.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "protocol/step_metadata.h"

namespace forebay::protocol {
namespace {

// Names that a program no longer uses are forgotten once there are many more of them than of those in use.
constexpr std::size_t unused_names_max = 4096;
constexpr std::size_t initial_bytes = std::size_t{64} << 10;

// FNV-1a.
std::uint64_t digest_of(std::string_view name) {
  std::uint64_t digest = 14'695'981'039'346'656'037U;
  for (const char c : name) digest = (digest ^ static_cast<unsigned char>(c)) * 1'099'511'628'211U;
  return digest;
}

// One number more, as splitmix64 scatters it.
std::uint64_t mixed(std::uint64_t digest, std::uint64_t number) {
  digest = (digest ^ number) + 0x9e37'79b9'7f4a'7c15U;
  digest = (digest ^ (digest >> 30)) * 0xbf58'476d'1ce4'e5b9U;
  digest = (digest ^ (digest >> 27)) * 0x94d0'49bb'1331'11ebU;
  return digest ^ (digest >> 31);
}

}  // namespace

std::vector<std::uint8_t> encode_attributes(const Attributes& attributes) {
  flatbuffers::FlatBufferBuilder builder(initial_bytes);
  std::vector<flatbuffers::Offset<format::Attribute>> offsets;
  offsets.reserve(attributes.size());
  for (const auto& [name, value] : attributes) {
    const auto name_offset = builder.CreateString(name);
    flatbuffers::Offset<flatbuffers::Vector<std::uint8_t>> bytes;
    flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<flatbuffers::String>>> strings;
    if (value.type == DataType::string) {
      strings = builder.CreateVectorOfStrings(value.strings);
    } else {
      // Aligned for every element type, so that readers may take the bytes in place.
      builder.ForceVectorAlignment(value.bytes.size(), 1, 16);
      bytes = builder.CreateVector(reinterpret_cast<const std::uint8_t*>(value.bytes.data()), value.bytes.size());
    }
    offsets.push_back(format::CreateAttribute(builder, name_offset, static_cast<std::uint8_t>(value.type),
                                              value.is_array, bytes, strings));
  }
  builder.Finish(format::CreateAttributeTable(builder, builder.CreateVector(offsets)));
  return {builder.GetBufferPointer(), builder.GetBufferPointer() + builder.GetSize()};
}

StepMetadataBuilder::StepMetadataBuilder() : builder_(initial_bytes) {}

void StepMetadataBuilder::begin(std::uint32_t rank, bool checksums, bool statistics) {
  rank_ = rank;
  checksums_ = checksums;
  statistics_ = statistics;
  if (entries_.size() > 2 * order_.size() + unused_names_max) forget_unused();
  ++generation_;
  order_.clear();
  expected_ = 0;
  blocks_.clear();
  numbers_.clear();
  pieces_.clear();
  values_.clear();
}

void StepMetadataBuilder::forget_unused() {
  std::erase_if(entries_, [this](const VariableEntry& entry) { return entry.generation != generation_; });
  by_name_.clear();
  for (std::uint32_t i = 0; i < entries_.size(); ++i) by_name_.emplace(entries_[i].name, i);
}

StepMetadataBuilder::VariableEntry* StepMetadataBuilder::lookup(std::string_view name) {
  if (expected_ < entries_.size() && entries_[expected_].name == name) return &entries_[expected_];
  const auto found = by_name_.find(std::string(name));
  if (found == by_name_.end()) return nullptr;
  expected_ = found->second;
  return &entries_[expected_];
}

std::optional<StepMetadataBuilder::Variable> StepMetadataBuilder::find(std::string_view name) {
  const VariableEntry* entry = lookup(name);
  if (entry == nullptr || entry->generation != generation_) return std::nullopt;
  Variable variable{entry->name, entry->type, entry->kind, entry->dimensions, {}};
  if (entry->kind == ShapeKind::global_array || entry->kind == ShapeKind::joined_array) {
    variable.shape = std::span(numbers_).subspan(entry->shape_start, entry->dimensions);
  }
  return variable;
}

StepMetadataBuilder::VariableEntry& StepMetadataBuilder::enter(const Variable& variable) {
  VariableEntry* entry = lookup(variable.name);
  if (entry == nullptr) {
    by_name_.emplace(std::string(variable.name), static_cast<std::uint32_t>(entries_.size()));
    VariableEntry added;
    added.name = variable.name;
    added.name_digest = digest_of(variable.name);
    entries_.push_back(std::move(added));
    expected_ = entries_.size() - 1;
    entry = &entries_.back();
  }
  if (entry->generation != generation_) {
    entry->generation = generation_;
    entry->type = variable.type;
    entry->kind = variable.kind;
    entry->dimensions = static_cast<std::uint32_t>(variable.dimensions);
    entry->shape_start = numbers_.size();
    numbers_.insert(numbers_.end(), variable.shape.begin(), variable.shape.end());
    entry->block_count = 0;
    entry->one_piece_each = true;
    entry->contiguous = true;
    entry->value_bytes = 0;
    order_.push_back(static_cast<std::uint32_t>(expected_));
  }
  ++expected_;
  return *entry;
}

std::uint32_t StepMetadataBuilder::add_block(const Variable& variable, const Block& block) {
  VariableEntry& entry = enter(variable);
  std::ranges::copy(variable.shape, numbers_.begin() + static_cast<std::ptrdiff_t>(entry.shape_start));
  const auto index = static_cast<std::uint32_t>(blocks_.size());
  if (entry.block_count == 0) {
    entry.first_block = index;
  } else {
    blocks_[entry.last_block].next = index;
    entry.contiguous = entry.contiguous && entry.last_block + 1 == index;
  }
  entry.last_block = index;
  ++entry.block_count;
  entry.one_piece_each = entry.one_piece_each && block.pieces.size() == 1;

  BlockEntry& added = blocks_.emplace_back();
  added.first_piece = pieces_.size();
  added.piece_count = static_cast<std::uint32_t>(block.pieces.size());
  pieces_.insert(pieces_.end(), block.pieces.begin(), block.pieces.end());
  added.extents_start = numbers_.size();
  numbers_.insert(numbers_.end(), block.start.begin(), block.start.end());
  numbers_.insert(numbers_.end(), block.count.begin(), block.count.end());
  added.checksum = block.checksum;
  added.statistics = block.statistics;
  return index;
}

void StepMetadataBuilder::complete_block(std::uint32_t block, std::uint32_t checksum, const Statistics& statistics) {
  blocks_[block].checksum = checksum;
  blocks_[block].statistics = statistics;
}

void StepMetadataBuilder::set_value(const Variable& variable, std::span<const std::byte> value) {
  VariableEntry& entry = enter(variable);
  entry.value_start = values_.size();
  entry.value_bytes = value.size();
  values_.insert(values_.end(), value.begin(), value.end());
}

std::uint64_t StepMetadataBuilder::definitions() const {
  std::uint64_t sum = 1;
  for (const std::uint32_t index : order_) {
    const VariableEntry& entry = entries_[index];
    std::uint64_t digest = mixed(entry.name_digest, static_cast<std::uint64_t>(entry.type));
    digest = mixed(digest, static_cast<std::uint64_t>(entry.kind));
    digest = mixed(digest, entry.dimensions);
    if (entry.kind == ShapeKind::global_array || entry.kind == ShapeKind::joined_array) {
      for (std::size_t i = 0; i < entry.dimensions; ++i) digest = mixed(digest, numbers_[entry.shape_start + i]);
    }
    sum += digest;
  }
  return sum == 0 ? 1 : sum;
}

flatbuffers::Offset<format::Variable> StepMetadataBuilder::encode_variable(const VariableEntry& entry) {
  const auto name = builder_.CreateString(entry.name);
  if (entry.kind == ShapeKind::global_value || entry.kind == ShapeKind::local_value) {
    builder_.ForceVectorAlignment(entry.value_bytes, 1, 16);
    const auto value = builder_.CreateVector(reinterpret_cast<const std::uint8_t*>(values_.data()) + entry.value_start,
                                             entry.value_bytes);
    format::VariableBuilder table(builder_);
    table.add_name(name);
    table.add_value(value);
    table.add_type(static_cast<std::uint8_t>(entry.type));
    table.add_kind(static_cast<std::uint8_t>(entry.kind));
    return table.Finish();
  }

  const std::size_t dimensions = entry.dimensions;
  const std::size_t blocks = entry.block_count;
  const bool has_shape = entry.kind != ShapeKind::local_array;
  const bool has_starts = entry.kind == ShapeKind::global_array;
  const bool with_statistics = statistics_ && has_order(entry.type);
  const auto each_block = [&](auto&& visit) {
    std::uint32_t index = entry.first_block;
    for (std::size_t i = 0; i < blocks; ++i) {
      visit(i, blocks_[index]);
      index = entry.contiguous ? index + 1 : blocks_[index].next;
    }
  };

  flatbuffers::Offset<flatbuffers::Vector<std::uint64_t>> shape;
  flatbuffers::Offset<flatbuffers::Vector<std::uint64_t>> starts;
  flatbuffers::Offset<flatbuffers::Vector<std::uint64_t>> counts;
  flatbuffers::Offset<flatbuffers::Vector<std::uint32_t>> piece_counts;
  flatbuffers::Offset<flatbuffers::Vector<const format::Piece*>> pieces;
  flatbuffers::Offset<flatbuffers::Vector<std::uint32_t>> checksums;
  flatbuffers::Offset<flatbuffers::Vector<std::uint8_t>> statistics;

  if (has_shape) shape = builder_.CreateVector(numbers_.data() + entry.shape_start, dimensions);
  if (has_starts) {
    std::uint64_t* out = nullptr;
    starts = builder_.CreateUninitializedVector(blocks * dimensions, &out);
    each_block([&](std::size_t i, const BlockEntry& block) {
      std::memcpy(out + i * dimensions, numbers_.data() + block.extents_start, dimensions * sizeof *out);
    });
  }
  {
    std::uint64_t* out = nullptr;
    counts = builder_.CreateUninitializedVector(blocks * dimensions, &out);
    const std::size_t skip = has_starts ? dimensions : 0;
    each_block([&](std::size_t i, const BlockEntry& block) {
      std::memcpy(out + i * dimensions, numbers_.data() + block.extents_start + skip, dimensions * sizeof *out);
    });
  }
  std::size_t piece_total = 0;
  each_block([&](std::size_t, const BlockEntry& block) { piece_total += block.piece_count; });
  if (!entry.one_piece_each) {
    std::uint32_t* out = nullptr;
    piece_counts = builder_.CreateUninitializedVector(blocks, &out);
    each_block([&](std::size_t i, const BlockEntry& block) { out[i] = block.piece_count; });
  }
  if (piece_total > 0) {
    format::Piece* out = nullptr;
    pieces = builder_.CreateUninitializedVectorOfStructs(piece_total, &out);
    each_block([&](std::size_t, const BlockEntry& block) {
      std::memcpy(static_cast<void*>(out), pieces_.data() + block.first_piece, block.piece_count * sizeof *out);
      out += block.piece_count;
    });
  }
  if (checksums_) {
    std::uint32_t* out = nullptr;
    checksums = builder_.CreateUninitializedVector(blocks, &out);
    each_block([&](std::size_t i, const BlockEntry& block) { out[i] = block.checksum; });
  }
  if (with_statistics) {
    std::uint8_t* out = nullptr;
    statistics = builder_.CreateUninitializedVector(blocks * statistics_bytes, &out);
    each_block([&](std::size_t i, const BlockEntry& block) {
      std::memcpy(out + i * statistics_bytes, block.statistics.data(), statistics_bytes);
    });
  }

  format::VariableBuilder table(builder_);
  table.add_name(name);
  if (has_shape) table.add_shape(shape);
  if (has_starts) table.add_starts(starts);
  table.add_counts(counts);
  if (!entry.one_piece_each) table.add_piece_counts(piece_counts);
  if (piece_total > 0) table.add_pieces(pieces);
  if (checksums_) table.add_checksums(checksums);
  if (with_statistics) table.add_statistics(statistics);
  table.add_type(static_cast<std::uint8_t>(entry.type));
  table.add_kind(static_cast<std::uint8_t>(entry.kind));
  table.add_dimensions(static_cast<std::uint8_t>(dimensions));
  return table.Finish();
}

std::span<const std::byte> StepMetadataBuilder::encode(std::span<const std::uint8_t> attributes) {
  builder_.Clear();
  offsets_.clear();
  for (std::uint32_t index : order_) offsets_.push_back(encode_variable(entries_[index]));
  const auto variables = builder_.CreateVector(offsets_);
  flatbuffers::Offset<flatbuffers::Vector<std::uint8_t>> attribute_bytes;
  if (!attributes.empty()) {
    builder_.ForceVectorAlignment(attributes.size(), 1, 16);
    attribute_bytes = builder_.CreateVector(attributes.data(), attributes.size());
  }
  format::FinishStepMetadataBuffer(
      builder_, format::CreateStepMetadata(builder_, step_metadata_version, rank_, variables, attribute_bytes));
  return std::as_bytes(std::span(builder_.GetBufferPointer(), builder_.GetSize()));
}

}  // namespace forebay::protocol
