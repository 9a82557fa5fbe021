// SPDX-License-Identifier: Apache-2.0
// Space for the next step that comes with a commit, and cannot be opened just then. The step has committed all the
// same.
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "base/log.h"
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

// crash-matrix: committing a step | server's disk, when a segment for the next step is opened | the step, told as committed; the next one gets the space when it needs it
TEST_F(GrantedSpace, that_cannot_be_opened_is_no_failure_of_the_step_before) {
  const std::vector<std::vector<double>> steps(3, std::vector<double>(3 * mib / 2 / sizeof(double), 2.5));
  auto writing = writer();
  log::set_level(log::Level::off);  // Of what was planned the server complains.
  for (const auto& values : steps) {
    ASSERT_OK(writing->begin_step());
    ASSERT_OK(put(*writing, values));
    server_.disk().fail_at(Operation::open, 1);
    ASSERT_OK(writing->end_step());
    server_.disk().fail_at(Operation::open, 0);
  }
  log::set_level(log::Level::error);
  expect_steps(steps);
}

}  // namespace
}  // namespace forebay::testing
