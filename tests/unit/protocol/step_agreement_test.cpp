// SPDX-License-Identifier: Apache-2.0
// What ranks say of their variables: the digest changes exactly when that does, and disagreement is told with names.
#include "protocol/step_agreement.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "protocol/step_metadata_builder.h"

namespace forebay::protocol {
namespace {

using Numbers = std::vector<std::uint64_t>;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct Said {
  std::string name;
  DataType type = DataType::float64;
  ShapeKind kind = ShapeKind::global_array;
  Numbers shape = {4, 6};
};

// One rank's step, whose blocks have no elements.
class Rank {
 public:
  explicit Rank(const std::vector<Said>& variables) {
    builder_.begin(0, true, true);
    for (const Said& said : variables) {
      const Numbers zeros(said.shape.size(), 0);
      const bool global = said.kind == ShapeKind::global_array;
      Numbers count = zeros;
      for (std::size_t d = 0; said.kind == ShapeKind::joined_array && d < count.size(); ++d)
        count[d] = said.shape[d] == static_cast<std::uint64_t>(-2) ? 0 : said.shape[d];
      const Numbers none;
      const Numbers& shape = said.kind == ShapeKind::local_array ? none : said.shape;
      builder_.add_block({said.name, said.type, said.kind, said.shape.size(), shape},
                         {global ? zeros : none, count, {}, 0, {}});
    }
    definitions_ = builder_.definitions();
    const auto encoded = builder_.encode({});
    bytes_.assign(encoded.begin(), encoded.end());
    metadata_ = decode_step_metadata(bytes_).value();
  }

  std::uint64_t definitions() const { return definitions_; }
  RankMetadata as(std::uint32_t rank) const { return {rank, metadata_}; }

 private:
  StepMetadataBuilder builder_;
  std::uint64_t definitions_ = 0;
  std::vector<std::byte> bytes_;
  const format::StepMetadata* metadata_ = nullptr;
};

TEST(StepAgreement, digest_is_that_of_the_definitions_in_any_order) {
  const Said a{"a"}, b{"b"};
  EXPECT_EQ(Rank({a, b}).definitions(), Rank({b, a}).definitions());
  EXPECT_EQ(Rank({a}).definitions(), Rank({a}).definitions());
  EXPECT_NE(Rank({a}).definitions(), Rank({b}).definitions());
  EXPECT_NE(Rank({a}).definitions(), Rank({a, b}).definitions());
  EXPECT_NE(Rank({}).definitions(), 0U);
  for (const Said& other : {Said{"a", DataType::float32}, Said{"a", DataType::float64, ShapeKind::local_array},
                            Said{"a", DataType::float64, ShapeKind::global_array, {4}},
                            Said{"a", DataType::float64, ShapeKind::global_array, {6, 4}}}) {
    EXPECT_NE(Rank({a}).definitions(), Rank({other}).definitions());
  }
}

TEST(StepAgreement, names_variable_ranks_and_what_each_says) {
  const Rank first({{"same"}, {"T"}});
  const auto told = [&](const Said& said) {
    const Rank second({{"same"}, said});
    const auto agreed = check_agreement(std::vector{first.as(0), Rank({}).as(1), second.as(7)});
    return agreed ? std::string() : agreed.error().what;
  };
  EXPECT_EQ(told({"T"}), "");
  EXPECT_EQ(told({"other", DataType::int8}), "");
  EXPECT_EQ(
      told({"T", DataType::int32}),
      "ranks write variable T with different types: rank 0 says global array of float64, 4 x 6; rank 7 says global "
      "array of int32, 4 x 6");
  EXPECT_THAT(told({"T", DataType::float64, ShapeKind::global_array, {4, 7}}),
              AllOf(HasSubstr("different shapes"), HasSubstr("4 x 7")));
  EXPECT_THAT(told({"T", DataType::float64, ShapeKind::global_array, {4}}), HasSubstr("numbers of dimensions"));
  EXPECT_THAT(told({"T", DataType::float64, ShapeKind::local_array}),
              AllOf(HasSubstr("kinds of shape"), HasSubstr("local array of float64, 2 dimensions")));
}

TEST(StepAgreement, cuts_what_is_long) {
  const std::string name(4000, 'n');
  const Rank first({{name, DataType::float64, ShapeKind::global_array, Numbers(32, 9)}});
  const Rank second({{name, DataType::float32, ShapeKind::global_array, Numbers(32, 9)}});
  const auto agreed = check_agreement(std::vector{first.as(0), second.as(1)});
  ASSERT_FALSE(agreed);
  EXPECT_LT(agreed.error().what.size(), 300U);
}

}  // namespace
}  // namespace forebay::protocol
