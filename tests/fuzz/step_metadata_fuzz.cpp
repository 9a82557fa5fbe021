// SPDX-License-Identifier: Apache-2.0
// Step metadata as it may lie on a disk that lies: refused, or safe to walk.
#include "base/bounds.h"
#include "protocol/step_metadata.h"
#include "tests/fuzz/input.h"

namespace forebay {
namespace {

void walk(const format::Variable& variable) {
  using namespace protocol;
  fuzz::require(element_size(type_of(variable)) > 0 || type_of(variable) == DataType::string);
  fuzz::require(!name_of(variable).empty());
  if (is_single_value(variable)) return;
  std::uint64_t pieces = 0;
  const auto visited = visit_blocks(variable, [&](const BlockPlace& place) -> Result<void> {
    const BlockPlace again = block_place(variable, place.block);
    fuzz::require(again.first_piece == place.first_piece && again.bytes == place.bytes);
    std::uint64_t bytes = 0;
    for (std::uint32_t piece = 0; piece < place.piece_count; ++piece)
      bytes += piece_of(variable, place.first_piece + piece).length();
    fuzz::require(bytes == place.bytes);
    fuzz::require(block_extents(variable, place.block).size() <= dimensions_max);
    pieces += place.piece_count;
    return {};
  });
  fuzz::require(visited.has_value());
  fuzz::require(pieces == (variable.pieces() == nullptr ? 0 : variable.pieces()->size()));
}

}  // namespace
}  // namespace forebay

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace forebay;
  const fuzz::AlignedBytes bytes({data, size});
  const auto metadata = protocol::decode_step_metadata(bytes.get());
  if (!metadata) {
    fuzz::require(!metadata.error().what.empty());
    return 0;
  }
  fuzz::understood();
  if ((*metadata)->variables() != nullptr) {
    for (const format::Variable* variable : *(*metadata)->variables()) walk(*variable);
  }
  if (const format::AttributeTable* attributes = protocol::attributes_of(**metadata);
      attributes != nullptr && attributes->attributes() != nullptr) {
    for (const format::Attribute* attribute : *attributes->attributes()) (void)protocol::attribute_value(*attribute);
  }
  return 0;
}
