// SPDX-License-Identifier: Apache-2.0
#include "protocol/step_metadata.h"

#include <forebay/writer.h>

#include "base/bounds.h"
#include "base/return_error.h"
#include "base/verifier.h"

namespace forebay::protocol {
namespace {

// A table takes at least 8 bytes, so that this bounds nothing but the verifier's own default.
constexpr Verifier::Options limits{.max_depth = 8, .max_tables = 1U << 28};
constexpr std::size_t bytes_max = std::size_t{1} << 31;

template <class Vector>
std::size_t size_of(const Vector* vector) {
  return vector == nullptr ? 0 : vector->size();
}

template <class T>
std::span<const T> span_of(const flatbuffers::Vector<T>* vector) {
  return vector == nullptr ? std::span<const T>() : std::span<const T>(vector->data(), vector->size());
}

// FlatBuffers' verifier does not look at where a vector's elements lie.
template <class T>
bool is_aligned(const flatbuffers::Vector<T>* vector) {
  return size_of(vector) == 0 || reinterpret_cast<std::uintptr_t>(vector->Data()) % 8 == 0;
}

// What is wrong with a variable, or null. Texts are put together with the name only where one is returned.
const char* fault_of_value(const format::Variable& variable) {
  if (variable.dimensions() != 0 || size_of(variable.shape()) != 0 || size_of(variable.starts()) != 0 ||
      size_of(variable.counts()) != 0) {
    return "a single value has dimensions";
  }
  if (size_of(variable.pieces()) != 0 || size_of(variable.piece_counts()) != 0 || size_of(variable.checksums()) != 0) {
    return "a single value has pieces";
  }
  const DataType type = type_of(variable);
  if (type != DataType::string && size_of(variable.value()) != element_size(type))
    return "the value's size is not that of its type";
  if (variable.statistics() != nullptr && (variable.statistics()->size() != statistics_bytes || !has_order(type))) {
    return "the statistics have a wrong size";
  }
  return nullptr;
}

const char* fault_of_shape(const format::Variable& variable, ShapeKind kind, std::size_t dimensions) {
  const auto shape = span_of(variable.shape());
  if (kind == ShapeKind::local_array) return shape.empty() ? nullptr : "a local array has a shape";
  if (shape.size() != dimensions) return "the shape has a wrong number of dimensions";
  if (kind == ShapeKind::global_array) return nullptr;
  std::size_t joined = 0;
  for (std::uint64_t extent : shape) joined += extent == joined_dimension ? 1 : 0;
  return joined == 1 ? nullptr : "a joined array has no joined dimension or several";
}

const char* fault_of_extents(const format::Variable& variable, ShapeKind kind, std::size_t blocks,
                             std::size_t dimensions) {
  const auto shape = span_of(variable.shape());
  const auto counts = span_of(variable.counts());
  const auto starts = span_of(variable.starts());
  if (kind == ShapeKind::global_array ? starts.size() != counts.size() : !starts.empty())
    return "the starts do not match the counts";
  if (kind == ShapeKind::local_array) return nullptr;
  for (std::size_t block = 0; block < blocks; ++block) {
    for (std::size_t d = 0; d < dimensions; ++d) {
      const std::size_t i = block * dimensions + d;
      if (kind == ShapeKind::global_array) {
        if (!range_within(starts[i], counts[i], shape[d])) return "a block lies outside the shape";
      } else if (shape[d] != joined_dimension && counts[i] != shape[d]) {
        return "a block's extents do not fit the joined shape";
      }
    }
  }
  return nullptr;
}

const char* fault_of_pieces(const format::Variable& variable, std::size_t blocks, std::size_t dimensions) {
  const auto counts = span_of(variable.counts());
  const std::uint64_t element_bytes = element_size(type_of(variable));
  const auto* piece_counts = variable.piece_counts();
  const auto* checksums = variable.checksums();
  const std::size_t pieces = size_of(variable.pieces());
  if (piece_counts != nullptr && piece_counts->size() != blocks) return "the piece counts do not match the blocks";
  if (checksums != nullptr && checksums->size() != blocks) return "the checksums do not match the blocks";
  std::size_t next = 0;
  for (std::size_t block = 0; block < blocks; ++block) {
    const auto bytes = checked_bytes(counts.subspan(block * dimensions, dimensions), element_bytes);
    if (!bytes) return "a block's size overflows";
    const std::uint64_t expected = *bytes > 0 ? 1 : 0;
    const std::uint64_t count =
        piece_counts != nullptr ? piece_counts->Get(static_cast<flatbuffers::uoffset_t>(block)) : expected;
    if (count > pieces - next) return "there are fewer pieces than the blocks need";
    if (*bytes == 0) {
      if (count != 0) return "a block without bytes has pieces";
      if (checksums != nullptr && checksums->Get(static_cast<flatbuffers::uoffset_t>(block)) != 0)
        return "a block without bytes has a checksum";
      continue;
    }
    if (count == 0 || (*bytes < page_bytes && count != 1)) return "a block has a wrong number of pieces";
    std::uint64_t left = *bytes;
    for (std::uint64_t i = 0; i < count; ++i) {
      const format::Piece& piece = *variable.pieces()->Get(static_cast<flatbuffers::uoffset_t>(next + i));
      if (piece.length() == 0 || piece.length() > left) return "a block's pieces do not add up to its size";
      if (!checked_add(piece.offset(), piece.length())) return "a piece's end overflows";
      const std::uint64_t alignment = *bytes < page_bytes ? small_block_alignment : page_bytes;
      if (piece.offset() % alignment != 0) return "a piece is not aligned";
      left -= piece.length();
      if (left > 0 && piece.length() % page_bytes != 0) return "a piece other than the last ends within a page";
    }
    if (left != 0) return "a block's pieces do not add up to its size";
    next += count;
  }
  return next == pieces ? nullptr : "there are more pieces than the blocks need";
}

const char* fault_of_array(const format::Variable& variable) {
  const ShapeKind kind = kind_of(variable);
  const DataType type = type_of(variable);
  const std::size_t dimensions = variable.dimensions();
  if (type == DataType::string) return "an array of strings";
  if (dimensions == 0 || dimensions > dimensions_max) return "a wrong number of dimensions";
  if (size_of(variable.value()) != 0) return "an array has a single value";
  if (size_of(variable.counts()) % dimensions != 0) return "the counts do not match the number of dimensions";
  const std::size_t blocks = size_of(variable.counts()) / dimensions;
  if (const char* fault = fault_of_shape(variable, kind, dimensions)) return fault;
  if (const char* fault = fault_of_extents(variable, kind, blocks, dimensions)) return fault;
  if (const auto* statistics = variable.statistics()) {
    if (statistics->size() != blocks * statistics_bytes || !has_order(type)) return "the statistics have a wrong size";
  }
  return fault_of_pieces(variable, blocks, dimensions);
}

const char* fault_of(const format::Variable& variable) {
  if (!is_aligned(variable.shape()) || !is_aligned(variable.starts()) || !is_aligned(variable.counts()) ||
      !is_aligned(variable.pieces()))
    return "numbers are not aligned";
  if (!is_valid(type_of(variable))) return "unknown element type";
  switch (kind_of(variable)) {
    case ShapeKind::global_value:
    case ShapeKind::local_value:
      return fault_of_value(variable);
    case ShapeKind::global_array:
    case ShapeKind::joined_array:
    case ShapeKind::local_array:
      return fault_of_array(variable);
  }
  return "unknown shape kind";
}

const char* fault_of(const format::Attribute& attribute) {
  const auto type = static_cast<DataType>(attribute.type());
  if (!is_valid(type)) return "unknown element type";
  std::size_t elements = 0;
  if (type == DataType::string) {
    if (size_of(attribute.bytes()) != 0) return "strings with bytes";
    elements = size_of(attribute.strings());
  } else {
    if (size_of(attribute.strings()) != 0) return "numbers with strings";
    if (size_of(attribute.bytes()) % element_size(type) != 0) return "the size is not a multiple of the type's";
    elements = size_of(attribute.bytes()) / element_size(type);
  }
  return attribute.is_array() || elements == 1 ? nullptr : "a single value with another number of elements";
}

tl::unexpected<Error> corrupt(std::string what, std::string where = {}) {
  return fail(ErrorCode::corrupt, "step metadata: " + std::move(what), std::move(where));
}

}  // namespace

Result<const format::AttributeTable*> decode_attributes(std::span<const std::byte> bytes) {
  const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  if (reinterpret_cast<std::uintptr_t>(data) % 8 != 0) return corrupt("the attribute table is not aligned");
  if (bytes.size() < 8 || bytes.size() > bytes_max) return corrupt("the attribute table has an impossible size");
  Verifier verifier(data, bytes.size(), limits);
  if (!verifier.VerifyBuffer<format::AttributeTable>(nullptr)) return corrupt("the attribute table is malformed");
  const auto* table = flatbuffers::GetRoot<format::AttributeTable>(data);
  if (table->attributes() == nullptr) return table;
  for (const format::Attribute* attribute : *table->attributes()) {
    if (const char* fault = fault_of(*attribute)) return corrupt(fault, "attribute " + attribute->name()->str());
  }
  return table;
}

Result<const format::StepMetadata*> decode_step_metadata(std::span<const std::byte> bytes) {
  const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  if (bytes.size() < 12 || bytes.size() > bytes_max || reinterpret_cast<std::uintptr_t>(data) % 8 != 0) {
    return corrupt("the buffer has an impossible size");
  }
  Verifier verifier(data, bytes.size(), limits);
  if (!format::VerifyStepMetadataBuffer(verifier)) return corrupt("the buffer is malformed");
  const format::StepMetadata* metadata = format::GetStepMetadata(data);
  if (metadata->version() != step_metadata_version) {
    return corrupt("version " + std::to_string(metadata->version()) +
                   " is not known here; was it written by a newer Forebay?");
  }
  if (metadata->variables() != nullptr) {
    for (const format::Variable* variable : *metadata->variables()) {
      if (variable->name()->size() == 0) return corrupt("a variable has no name");
      if (const char* fault = fault_of(*variable)) return corrupt(fault, "variable " + variable->name()->str());
    }
  }
  // The nested table has a buffer of its own so far as offsets go; its start is aligned to 8 only if the writer saw to
  // it.
  if (size_of(metadata->attributes()) > 0) {
    RETURN_IF_ERROR(decode_attributes(std::as_bytes(span_of(metadata->attributes()))));
  }
  return metadata;
}

const format::AttributeTable* attributes_of(const format::StepMetadata& metadata) noexcept {
  if (size_of(metadata.attributes()) == 0) return nullptr;
  return flatbuffers::GetRoot<format::AttributeTable>(metadata.attributes()->data());
}

AttributeValue attribute_value(const format::Attribute& attribute) {
  AttributeValue value;
  value.type = static_cast<DataType>(attribute.type());
  value.is_array = attribute.is_array();
  const auto bytes = std::as_bytes(span_of(attribute.bytes()));
  value.bytes.assign(bytes.begin(), bytes.end());
  if (attribute.strings() != nullptr) {
    for (const flatbuffers::String* text : *attribute.strings()) value.strings.push_back(text->str());
  }
  return value;
}

bool is_single_value(const format::Variable& variable) noexcept {
  return kind_of(variable) == ShapeKind::global_value || kind_of(variable) == ShapeKind::local_value;
}

std::uint32_t block_count(const format::Variable& variable) noexcept {
  if (is_single_value(variable)) return 1;
  return static_cast<std::uint32_t>(size_of(variable.counts()) / variable.dimensions());
}

std::span<const std::uint64_t> block_extents(const format::Variable& variable, std::uint32_t block) noexcept {
  const std::size_t dimensions = variable.dimensions();
  return span_of(variable.counts()).subspan(block * dimensions, dimensions);
}

std::uint64_t block_bytes(const format::Variable& variable, std::uint32_t block) noexcept {
  std::uint64_t bytes = element_size(type_of(variable));
  for (std::uint64_t extent : block_extents(variable, block)) bytes *= extent;
  return bytes;
}

BlockPlace block_place(const format::Variable& variable, std::uint32_t block) noexcept {
  BlockPlace place;
  place.block = block;
  place.bytes = block_bytes(variable, block);
  if (const auto* piece_counts = variable.piece_counts()) {
    for (std::uint32_t i = 0; i < block; ++i) place.first_piece += piece_counts->Get(i);
    place.piece_count = piece_counts->Get(block);
  } else {
    place.first_piece = block;
    if (size_of(variable.pieces()) != block_count(variable)) {
      place.first_piece = 0;
      for (std::uint32_t i = 0; i < block; ++i) place.first_piece += block_bytes(variable, i) > 0 ? 1 : 0;
    }
    place.piece_count = place.bytes > 0 ? 1 : 0;
  }
  if (const auto* checksums = variable.checksums()) place.checksum = checksums->Get(block);
  return place;
}

}  // namespace forebay::protocol
