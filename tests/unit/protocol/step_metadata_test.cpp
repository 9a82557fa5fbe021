// SPDX-License-Identifier: Apache-2.0
// Step metadata: what is encoded is what is decoded, what breaks a rule is refused, and damaged buffers never do harm.
#include "protocol/step_metadata.h"

#include <cstring>
#include <functional>

#include <gtest/gtest.h>

#include "protocol/step_metadata_builder.h"
#include "tests/support/randomness.h"

namespace forebay::protocol {
namespace {

using Numbers = std::vector<std::uint64_t>;

// Aligned as decode_step_metadata asks for.
std::vector<std::byte> bytes_of(std::span<const std::byte> bytes) {
  return {bytes.begin(), bytes.end()};
}

std::vector<std::byte> example() {
  StepMetadataBuilder builder;
  builder.begin(3, true, true);
  const Numbers shape{100, 200};
  const Numbers start{0, 0};
  const Numbers count{50, 200};
  const Numbers second{50, 0};
  const format::Piece pieces[] = {{1, 0, 0, 8192, 40960}, {2, 0, 0, 0, 39040}};
  const format::Piece one[] = {{4, 0, 0, 4096, 80000}};
  Statistics statistics{};
  statistics[0] = std::byte{7};
  const StepMetadataBuilder::Variable temperature{"temperature", DataType::float64, ShapeKind::global_array, 2, shape};
  builder.add_block(temperature, {start, count, pieces, 17, statistics});
  builder.add_block(temperature, {second, count, one, 18, statistics});
  const Numbers joined_shape{5, static_cast<std::uint64_t>(-2)};
  const Numbers joined_count{5, 3};
  const Numbers none{5, 0};
  const format::Piece small[] = {{1, 0, 0, 64, 15}};
  const StepMetadataBuilder::Variable joined{"joined", DataType::uint8, ShapeKind::joined_array, 2, joined_shape};
  builder.add_block(joined, {{}, joined_count, small, 1, {}});
  builder.add_block(joined, {{}, none, {}, 0, {}});
  const Numbers local_count{1};
  const format::Piece local[] = {{1, 0, 0, 128, 8}};
  builder.add_block({"local", DataType::complex64, ShapeKind::local_array, 1, {}}, {{}, local_count, local, 2, {}});
  const double time = 0.5;
  builder.set_value({"time", DataType::float64, ShapeKind::global_value, 0, {}}, std::as_bytes(std::span(&time, 1)));
  builder.set_value({"name", DataType::string, ShapeKind::local_value, 0, {}}, std::as_bytes(std::span("bed", 3)));
  Attributes attributes;
  attributes["unit"].strings = {"K"};
  attributes["list"] = {DataType::int32, true, std::vector<std::byte>(12), {}};
  return bytes_of(builder.encode(encode_attributes(attributes)));
}

const format::Variable& named(const format::StepMetadata& metadata, std::string_view name) {
  for (const format::Variable* variable : *metadata.variables()) {
    if (name_of(*variable) == name) return *variable;
  }
  throw std::runtime_error("no such variable");
}

TEST(StepMetadata, decodes_what_was_encoded) {
  const auto bytes = example();
  auto decoded = decode_step_metadata(bytes);
  ASSERT_TRUE(decoded) << decoded.error().message();
  const format::StepMetadata& metadata = **decoded;
  EXPECT_EQ(metadata.rank(), 3U);
  ASSERT_EQ(metadata.variables()->size(), 5U);
  const format::Variable& temperature = named(metadata, "temperature");
  EXPECT_EQ(block_count(temperature), 2U);
  EXPECT_EQ(block_bytes(temperature, 1), 80000U);
  EXPECT_EQ(temperature.statistics()->Get(32), 7);
  std::vector<BlockPlace> places;
  ASSERT_TRUE(visit_blocks(metadata, [&](const format::Variable& variable, const BlockPlace& place) -> Result<void> {
    places.push_back(place);
    const BlockPlace alone = block_place(variable, place.block);
    EXPECT_EQ(alone.first_piece, place.first_piece);
    EXPECT_EQ(alone.piece_count, place.piece_count);
    EXPECT_EQ(alone.bytes, place.bytes);
    EXPECT_EQ(alone.checksum, place.checksum);
    return {};
  }));
  ASSERT_EQ(places.size(), 5U);
  EXPECT_EQ(places[0].piece_count, 2U);
  EXPECT_EQ(places[1].first_piece, 2U);
  EXPECT_EQ(places[1].checksum, 18U);
  EXPECT_EQ(places[3].piece_count, 0U);
  const format::AttributeTable* attributes = attributes_of(metadata);
  ASSERT_NE(attributes, nullptr);
  EXPECT_EQ(attributes->attributes()->size(), 2U);
  EXPECT_EQ(attribute_value(*attributes->attributes()->Get(1)).strings, std::vector<std::string>{"K"});
}

TEST(StepMetadata, same_builder_encodes_the_next_step) {
  StepMetadataBuilder builder;
  const Numbers shape{10};
  const Numbers start{0};
  for (std::uint64_t step = 0; step < 20; ++step) {
    builder.begin(0, false, false);
    // Names come and go, and come in another order.
    for (std::uint64_t i = 0; i < 5; ++i) {
      const std::string name = "v" + std::to_string((i * (step + 1)) % 7 + step / 4);
      if (builder.find(name)) continue;
      const format::Piece piece[] = {{1, 0, 0, 64 * i, 80}};
      builder.add_block({name, DataType::float64, ShapeKind::global_array, 1, shape}, {start, shape, piece, 0, {}});
      ASSERT_TRUE(builder.find(name));
      EXPECT_EQ(builder.find(name)->type, DataType::float64);
    }
    EXPECT_FALSE(builder.find("absent"));
    const auto bytes = bytes_of(builder.encode({}));
    auto decoded = decode_step_metadata(bytes);
    ASSERT_TRUE(decoded) << decoded.error().message();
    EXPECT_EQ(attributes_of(**decoded), nullptr);
    for (const format::Variable* variable : *(*decoded)->variables()) {
      EXPECT_EQ(variable->checksums(), nullptr);
      EXPECT_EQ(variable->statistics(), nullptr);
    }
  }
}

// One variable, and a change to it that must be noticed.
void expect_refused(const std::function<void(format::VariableT&)>& change, const char* why) {
  format::StepMetadataT metadata;
  metadata.version = 1;
  auto variable = std::make_unique<format::VariableT>();
  variable->name = "v";
  variable->type = static_cast<std::uint8_t>(DataType::float64);
  variable->kind = static_cast<std::uint8_t>(ShapeKind::global_array);
  variable->dimensions = 1;
  variable->shape = {2000};
  variable->starts = {0, 1000};
  variable->counts = {1000, 1000};
  variable->piece_counts = {2, 1};
  variable->pieces = {{1, 0, 0, 4096, 4096}, {1, 0, 0, 16384, 3904}, {2, 0, 0, 0, 8000}};
  variable->checksums = {1, 2};
  variable->statistics = std::vector<std::uint8_t>(64);
  change(*variable);
  metadata.variables.push_back(std::move(variable));
  flatbuffers::FlatBufferBuilder builder;
  format::FinishStepMetadataBuffer(builder, format::StepMetadata::Pack(builder, &metadata));
  const auto bytes = bytes_of(std::as_bytes(std::span(builder.GetBufferPointer(), builder.GetSize())));
  auto decoded = decode_step_metadata(bytes);
  if (why == nullptr) {
    EXPECT_TRUE(decoded) << decoded.error().message();
    return;
  }
  ASSERT_FALSE(decoded) << why;
  EXPECT_EQ(decoded.error().code, ErrorCode::corrupt);
  EXPECT_NE(decoded.error().message().find(why), std::string::npos) << decoded.error().message();
}

TEST(StepMetadata, refuses_what_breaks_a_rule) {
  using V = format::VariableT;
  expect_refused([](V&) {}, nullptr);
  expect_refused([](V& v) { v.name.clear(); }, "no name");
  expect_refused([](V& v) { v.type = 0; }, "unknown element type");
  expect_refused([](V& v) { v.type = 16; }, "unknown element type");
  expect_refused([](V& v) { v.type = 15; }, "array of strings");
  expect_refused([](V& v) { v.kind = 9; }, "unknown shape kind");
  expect_refused([](V& v) { v.dimensions = 0; }, "number of dimensions");
  expect_refused([](V& v) { v.dimensions = 33; }, "number of dimensions");
  expect_refused([](V& v) { v.dimensions = 2; }, "wrong number of dimensions");
  expect_refused([](V& v) { v.shape = {1999}; }, "outside the shape");
  expect_refused([](V& v) { v.starts = {0, ~0ULL}; }, "outside the shape");
  expect_refused([](V& v) { v.starts = {0}; }, "starts do not match");
  expect_refused([](V& v) { v.counts = {1000, 999}; }, "do not add up");
  expect_refused([](V& v) { v.shape = {~0ULL}, v.counts = {1000, 1ULL << 62}; }, "overflows");
  expect_refused([](V& v) { v.piece_counts = {1, 1}; }, "do not add up");
  expect_refused([](V& v) { v.piece_counts = {2}; }, "piece counts");
  expect_refused([](V& v) { v.piece_counts = {2, 0}; }, "wrong number of pieces");
  expect_refused([](V& v) { v.piece_counts = {2, 4'000'000'000U}; }, "fewer pieces");
  expect_refused([](V& v) { v.pieces.push_back({1, 0, 0, 0, 8}); }, "more pieces");
  expect_refused([](V& v) { v.pieces.pop_back(); }, "fewer pieces");
  expect_refused([](V& v) { v.pieces[0] = {1, 0, 0, 4160, 4096}; }, "not aligned");
  expect_refused([](V& v) { v.pieces[0] = {1, 0, 0, 4096, 4000}, v.pieces[1] = {1, 0, 0, 16384, 4000}; },
                 "ends within a page");
  expect_refused([](V& v) { v.pieces[2] = {1, 0, 0, ~0ULL & ~4095ULL, 8000}; }, "overflows");
  expect_refused([](V& v) { v.checksums = {1}; }, "checksums");
  expect_refused([](V& v) { v.statistics.pop_back(); }, "statistics");
  expect_refused([](V& v) { v.value = {1}; }, "single value");
  expect_refused([](V& v) { v.kind = 5; }, "local array has a shape");
  expect_refused([](V& v) { v.kind = 3, v.starts.clear(); }, "joined dimension");
  expect_refused([](V& v) { v.kind = 3, v.starts.clear(), v.shape = {static_cast<std::uint64_t>(-2)}; }, nullptr);
  expect_refused([](V& v) { v.kind = 1; }, "single value has dimensions");
  const auto value = [](V& v) {
    v = {};
    v.name = "v";
    v.type = static_cast<std::uint8_t>(DataType::int32);
    v.kind = 1;
    v.value = {1, 2, 3, 4};
  };
  expect_refused(value, nullptr);
  expect_refused([&](V& v) { value(v), v.value.pop_back(); }, "value's size");
  expect_refused([&](V& v) { value(v), v.pieces.emplace_back(1, 0, 0, 0, 4); }, "has pieces");
  // A block without bytes has neither pieces nor a checksum.
  const auto empty = [](V& v) {
    v.counts = {1000, 0}, v.piece_counts = {2, 0}, v.checksums = {1, 0}, v.pieces.pop_back();
  };
  expect_refused(empty, nullptr);
  expect_refused([&](V& v) { empty(v), v.checksums = {1, 5}; }, "has a checksum");
  expect_refused([&](V& v) { empty(v), v.piece_counts = {1, 1}; }, "do not add up");
}

TEST(StepMetadata, truncated_buffers_are_refused) {
  const auto bytes = example();
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    // A buffer of its own, so that a sanitizer sees reads beyond its end.
    const std::vector<std::byte> cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length));
    if (auto decoded = decode_step_metadata(cut)) {
      // What lies last need not be missed, but all that is reachable is there.
      (void)visit_blocks(**decoded, [](const format::Variable&, const BlockPlace&) -> Result<void> { return {}; });
    }
  }
  EXPECT_FALSE(decode_step_metadata(std::span(bytes).first(bytes.size() / 2)));
}

TEST(StepMetadata, flipped_bits_never_do_harm) {
  const auto bytes = example();
  forebay::testing::Random random(forebay::testing::test_seed());
  std::uint64_t accepted = 0;
  const auto walk = [&](const std::vector<std::byte>& damaged) {
    auto decoded = decode_step_metadata(damaged);
    if (!decoded) return;
    ++accepted;
    std::uint64_t sum = 0;
    (void)visit_blocks(**decoded, [&](const format::Variable& variable, const BlockPlace& place) -> Result<void> {
      sum += name_of(variable).size() + block_extents(variable, place.block).size();
      for (std::uint32_t i = 0; i < place.piece_count; ++i) sum += piece_of(variable, place.first_piece + i).length();
      return {};
    });
    if (const auto* table = attributes_of(**decoded); table != nullptr && table->attributes() != nullptr) {
      for (const format::Attribute* attribute : *table->attributes()) sum += attribute_value(*attribute).bytes.size();
    }
    EXPECT_GE(sum, 0U);
  };
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    auto damaged = bytes;
    damaged[bit / 8] ^= std::byte(1U << (bit % 8));
    walk(damaged);
  }
  for (int round = 0; round < 20'000; ++round) {
    auto damaged = bytes;
    for (std::uint64_t i = 0; i < 1 + random() % 8; ++i) damaged[random() % damaged.size()] = std::byte(random());
    walk(damaged);
  }
  EXPECT_GT(accepted, 0U);
}

}  // namespace
}  // namespace forebay::protocol
