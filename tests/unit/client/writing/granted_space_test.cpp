// SPDX-License-Identifier: Apache-2.0
// Space for the next step that comes with a commit, and cannot be opened just then. The step has committed all the
// same.
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "base/log.h"
#include "tests/support/no_descriptors.h"
#include "tests/unit/client/server_on_disk.h"
#include "tests/unit/client/stream_fixture.h"

namespace forebay::testing {
namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20;

class GrantedSpace : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(server_.start());
    ASSERT_OK(server_.create("res", 32 * mib));
  }

  std::unique_ptr<Writer> writer() {
    auto opened = Writer::open(address_, {});
    EXPECT_TRUE(opened) << opened.error().message();
    return opened ? std::move(*opened) : nullptr;
  }
  static Result<void> put(Writer& writer, const std::vector<double>& values) {
    const Dimensions shape{values.size()};
    const Dimensions zeros{0};
    BlockSpec block;
    block.name = "T";
    block.type = DataType::float64;
    block.shape = shape;
    block.start = zeros;
    block.count = shape;
    return writer.put(block, values.data());
  }
  static Result<void> begin(Writer& writer, const std::vector<double>& values) {
    if (auto begun = writer.begin_step(); !begun) return fail(std::move(begun.error()));
    return put(writer, values);
  }
  void expect_steps(const std::vector<std::vector<double>>& written) {
    ReaderOptions options;
    options.follow = false;
    auto reader = Reader::open(address_, options);
    ASSERT_OK(reader);
    for (std::uint64_t number = 0; number < written.size(); ++number) {
      const auto step = (*reader)->step(number);
      ASSERT_OK(step);
      ASSERT_OK((*step)->verify());
      std::vector<double> values(written[number].size());
      ASSERT_OK((*step)->read(*(*step)->find("T"), {{0}, {values.size()}}, values.data()));
      EXPECT_EQ(values, written[number]);
    }
  }

  const Address address_{"res", "flow", std::nullopt};
  ServerOnDisk server_;
};

// crash-matrix: committing a step | server without descriptors, which cannot open the segments that it grants with the commit | the step, told as committed; the next one says what is in the way, and is written when nothing is any more
TEST_F(GrantedSpace, that_cannot_be_opened_is_no_failure_of_the_step_before) {
  const std::vector<std::vector<double>> steps(6, std::vector<double>(3 * mib / 2 / sizeof(double), 2.5));
  auto writing = writer();
  std::size_t refused = 0;
  log::set_level(log::Level::off);  // Of what was planned the server complains.
  for (const auto& values : steps) {
    ASSERT_OK(begin(*writing, values));
    const NoDescriptors none;
    ASSERT_OK(writing->end_step());
    // Nothing is in the way of a step that needs no other segments than this writer has.
    if (const auto begun = begin(*writing, values); !begun) {
      EXPECT_EQ(begun.error().code, ErrorCode::busy) << begun.error().message();
      ++refused;
    }
    if (writing->in_step()) {
      ASSERT_OK(writing->abort_step());
    }
  }
  log::set_level(log::Level::error);
  EXPECT_GE(refused, 3U);
  expect_steps(steps);
}

}  // namespace
}  // namespace forebay::testing
