// SPDX-License-Identifier: Apache-2.0
// What readers notice, without asking for it, of blocks whose bytes have changed on the disk.
#include <fcntl.h>
#include <unistd.h>

#include <filesystem>

#include "base/return_error.h"
#include "tests/unit/client/stream_fixture.h"

namespace forebay::testing {
namespace {

class Verifying : public StreamTest {
 protected:
  static constexpr std::uint64_t rows = 64;
  static constexpr std::uint64_t columns = 1000;  // of a block

  /// One step: two blocks side by side, so that their rows lie apart in the array. Element (i, j) is i * 2000 + j.
  void write_two_blocks(bool checksums = true) {
    WriterOptions options;
    options.checksums = checksums;
    auto writer = open_writer(options);
    ASSERT_OK(writer->begin_step());
    for (const std::uint64_t block : {0, 1}) {
      std::vector<double> values(rows * columns);
      for (std::uint64_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<double>(i / columns * 2 * columns + block * columns + i % columns);
      const Dimensions shape{rows, 2 * columns};
      const Dimensions start{0, block * columns};
      const Dimensions count{rows, columns};
      BlockSpec spec;
      spec.name = "T";
      spec.shape = shape;
      spec.start = start;
      spec.count = count;
      ASSERT_OK(writer->put(spec, values.data()));
    }
    ASSERT_OK(writer->end_step());
    ASSERT_OK(writer->close());
  }

  /// Changes the element (10, 1500), of the second block.
  void scribble() const {
    bool scribbled = false;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(server_.root() + "/reservations")) {
      if (entry.path().parent_path().filename() != "segments") continue;
      const int file = ::open(entry.path().c_str(), O_RDWR);
      ASSERT_GE(file, 0);
      const auto at = static_cast<off_t>(sizeof(double) * (rows * columns + 10 * columns + 500));
      double value = 0;
      if (::pread(file, &value, sizeof value, at) == sizeof value && value == 21'500.0) {
        value = -1.0;
        scribbled = ::pwrite(file, &value, sizeof value, at) == sizeof value;
      }
      ::close(file);
    }
    ASSERT_TRUE(scribbled);
  }
  void restart() {
    server_.kill();
    server_.start();
  }

  static Result<std::vector<double>> read(const Step& step, const Box& box) {
    std::vector<double> values(box.count[0] * box.count[1]);
    RETURN_IF_ERROR(step.read(*step.find("T"), box, values.data()));
    return values;
  }
  static Box all() { return {{0, 0}, {rows, 2 * columns}}; }
};

TEST_F(Verifying, whole_block_of_an_earlier_life_of_the_server_is_checked_by_default) {
  write_two_blocks();
  restart();
  auto reader = open_reader();
  auto step = reader->step(0);
  ASSERT_OK(step);
  const auto whole = read(**step, all());
  ASSERT_OK(whole);
  for (std::uint64_t i = 0; i < whole->size(); ++i) ASSERT_EQ((*whole)[i], static_cast<double>(i));

  scribble();
  for (const Box& box : {all(), Box{{0, columns}, {rows, columns}}}) {
    auto again = open_reader();
    auto damaged = again->step(0);
    ASSERT_OK(damaged);
    const auto refused = read(**damaged, box);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::corrupt);
    EXPECT_NE(refused.error().message().find("variable T"), std::string::npos) << refused.error().message();
    EXPECT_TRUE(read(**damaged, {{0, 0}, {rows, columns}}));
  }
}

TEST_F(Verifying, parts_of_blocks_and_views_are_checked_with_first_only) {
  write_two_blocks();
  scribble();
  restart();
  const Box part{{10, 1500}, {1, 1}};
  const Box block{{0, columns}, {rows, columns}};
  auto reader = open_reader();
  auto step = reader->step(0);
  ASSERT_OK(step);
  const auto unchecked = read(**step, part);
  ASSERT_OK(unchecked);
  EXPECT_EQ(unchecked->front(), -1.0);
  EXPECT_TRUE((*step)->view(*(*step)->find("T"), block));

  ReaderOptions options;
  options.verify = Verify::first;
  auto careful = open_reader(options);
  step = careful->step(0);
  ASSERT_OK(step);
  EXPECT_EQ(read(**step, part).error().code, ErrorCode::corrupt);
  EXPECT_EQ((*step)->view(*(*step)->find("T"), block).error().code, ErrorCode::corrupt);
}

TEST_F(Verifying, step_that_was_committed_just_now_is_read_without_a_check) {
  write_two_blocks();
  scribble();
  auto reader = open_reader();
  auto step = reader->step(0);
  ASSERT_OK(step);
  const auto values = read(**step, all());
  ASSERT_OK(values);
  EXPECT_EQ((*values)[10 * 2 * columns + 1500], -1.0);
}

TEST_F(Verifying, block_without_a_checksum_is_read_by_default) {
  write_two_blocks(false);
  restart();
  auto reader = open_reader();
  auto step = reader->step(0);
  ASSERT_OK(step);
  const auto values = read(**step, all());
  ASSERT_OK(values);
  EXPECT_EQ(values->back(), static_cast<double>(rows * 2 * columns - 1));
}

}  // namespace
}  // namespace forebay::testing
