// SPDX-License-Identifier: Apache-2.0
// Boxes over other decompositions, blocks, memory selections, and the shapes that blocks may have.
#include <numeric>
#include <vector>

#include "engine_fixture.h"

namespace forebay::engine_test {
namespace {

using adios2::Dims;

class EngineSelections : public EngineTest {
 protected:
  // An array of `shape` whose elements are their own numbers, written in one step as blocks of `tile`.
  void write_numbers(const Dims& shape, const Dims& tile) {
    adios2::IO out = make_io("out");
    auto variable = out.DefineVariable<int>("numbers", shape, Dims(shape.size(), 0), shape);
    adios2::Engine writer = out.Open("numbers", adios2::Mode::Write);
    writer.BeginStep();
    Dims start(shape.size(), 0);
    for (bool more = true; more;) {
      Dims count(shape.size());
      for (std::size_t i = 0; i < shape.size(); ++i) count[i] = std::min(tile[i], shape[i] - start[i]);
      variable.SetSelection({start, count});
      const std::vector<int> block = numbers(shape, start, count);
      writer.Put(variable, block.data(), adios2::Mode::Sync);
      more = false;
      for (std::size_t i = shape.size(); i-- > 0;) {
        start[i] += tile[i];
        if (start[i] < shape[i]) {
          more = true;
          break;
        }
        start[i] = 0;
      }
    }
    writer.EndStep();
    writer.Close();
  }

  static std::vector<int> numbers(const Dims& shape, const Dims& start, const Dims& count) {
    std::vector<int> result;
    const std::size_t total = std::accumulate(count.begin(), count.end(), std::size_t{1}, std::multiplies<>());
    for (std::size_t i = 0; i < total; ++i) {
      std::size_t rest = i, number = 0, stride = 1;
      for (std::size_t d = shape.size(); d-- > 0;) {
        number += (start[d] + rest % count[d]) * stride;
        rest /= count[d];
        stride *= shape[d];
      }
      result.push_back(static_cast<int>(number));
    }
    return result;
  }

  adios2::Engine open_reader() {
    in_ = make_io("in");
    adios2::Engine reader = in_.Open("numbers", adios2::Mode::Read);
    EXPECT_EQ(reader.BeginStep(), adios2::StepStatus::OK);
    return reader;
  }

  adios2::IO in_;
};

TEST_F(EngineSelections, boxes_cut_across_blocks_in_one_to_four_dimensions) {
  const std::vector<std::pair<Dims, Dims>> cases{
      {{100}, {7}}, {{20, 30}, {6, 11}}, {{8, 9, 10}, {3, 4, 5}}, {{4, 5, 6, 7}, {2, 2, 3, 7}}};
  for (const auto& [shape, tile] : cases) {
    SCOPED_TRACE(shape.size());
    stream_ += "x";
    write_numbers(shape, tile);
    adios2::Engine reader = open_reader();
    auto variable = in_.InquireVariable<int>("numbers");
    std::vector<Dims> starts{Dims(shape.size(), 0), Dims(shape.size(), 1)}, counts{shape, Dims(shape.size(), 2)};
    Dims most = shape;
    for (std::size_t& extent : most) extent -= 2;
    starts.push_back(Dims(shape.size(), 1));
    counts.push_back(most);
    for (std::size_t i = 0; i < starts.size(); ++i) {
      variable.SetSelection({starts[i], counts[i]});
      std::vector<int> read;
      reader.Get(variable, read, adios2::Mode::Sync);
      EXPECT_EQ(read, numbers(shape, starts[i], counts[i]));
    }
    reader.Close();
    adios_.RemoveIO("out");
    adios_.RemoveIO("in");
  }
}

TEST_F(EngineSelections, box_outside_the_shape_is_refused) {
  write_numbers({10}, {10});
  adios2::Engine reader = open_reader();
  auto variable = in_.InquireVariable<int>("numbers");
  variable.SetSelection({{8}, {3}});
  std::vector<int> read(3);
  EXPECT_TRUE(throws<std::invalid_argument>([&] { reader.Get(variable, read.data(), adios2::Mode::Sync); }, "numbers"));
  reader.Close();
}

TEST_F(EngineSelections, block_of_a_global_array_is_read_whole) {
  write_numbers({6, 8}, {4, 5});
  adios2::Engine reader = open_reader();
  auto variable = in_.InquireVariable<int>("numbers");
  const auto blocks = reader.BlocksInfo(variable, 0);
  ASSERT_EQ(blocks.size(), 4U);
  for (const auto& block : blocks) {
    variable.SetBlockSelection(block.BlockID);
    std::vector<int> read(block.Count[0] * block.Count[1]);
    reader.Get(variable, read.data());
    reader.PerformGets();
    EXPECT_EQ(read, numbers({6, 8}, block.Start, block.Count));
  }
  variable.SetBlockSelection(4);
  int none = 0;
  EXPECT_TRUE(throws<std::invalid_argument>([&] { reader.Get(variable, &none, adios2::Mode::Sync); }, "4 blocks"));
  reader.Close();
}

TEST_F(EngineSelections, box_after_a_block_is_a_box_of_the_whole) {
  write_numbers({6, 8}, {3, 4});
  adios2::Engine reader = open_reader();
  auto variable = in_.InquireVariable<int>("numbers");
  variable.SetBlockSelection(3);
  variable.SetSelection({{1, 1}, {2, 2}});
  std::vector<int> read;
  reader.Get(variable, read, adios2::Mode::Sync);
  EXPECT_EQ(read, numbers({6, 8}, {1, 1}, {2, 2}));
  reader.Close();
}

TEST_F(EngineSelections, selection_objects_say_all_box_block_and_box_in_block) {
  write_numbers({6, 8}, {3, 4});
  adios2::Engine reader = open_reader();
  auto variable = in_.InquireVariable<int>("numbers");
  std::vector<int> read(48);
  reader.Get(variable, read.data(), adios2::Selection::All(), adios2::Mode::Sync);
  EXPECT_EQ(read, numbers({6, 8}, {0, 0}, {6, 8}));
  read.resize(6);
  reader.Get(variable, read.data(), adios2::Selection::BoundingBox({2, 3}, {2, 3}), adios2::Mode::Deferred);
  reader.PerformGets();
  EXPECT_EQ(read, numbers({6, 8}, {2, 3}, {2, 3}));
  read.resize(12);
  reader.Get(variable, read.data(), adios2::Selection::Block(1), adios2::Mode::Sync);
  EXPECT_EQ(read, numbers({6, 8}, {0, 4}, {3, 4}));
  read.resize(4);
  reader.Get(variable, read.data(), adios2::Selection::BoundingBox({1, 1}, {2, 2}).WithBlock(1), adios2::Mode::Sync);
  EXPECT_EQ(read, numbers({6, 8}, {1, 5}, {2, 2}));
  std::vector<int> framed(4 * 5, -1), expected(4 * 5, -1);
  reader.Get(variable, framed.data(), adios2::Selection::BoundingBox({0, 0}, {2, 3}).WithMemory({1, 1}, {4, 5}),
             adios2::Mode::Sync);
  for (int row = 0; row < 2; ++row) {
    for (int column = 0; column < 3; ++column) expected[(row + 1) * 5 + column + 1] = row * 8 + column;
  }
  EXPECT_EQ(framed, expected);
  reader.Close();
}

TEST_F(EngineSelections, memory_selection_leaves_ghost_cells_out_and_alone) {
  adios2::IO out = make_io("out");
  auto variable = out.DefineVariable<int>("numbers", {2, 3, 4}, {0, 0, 0}, {2, 3, 4});
  variable.SetMemorySelection({{1, 1, 1}, {4, 5, 6}});
  std::vector<int> with_ghosts(4 * 5 * 6, -7);
  for (int i = 0; i < 24; ++i) with_ghosts[(i / 12 + 1) * 30 + (i / 4 % 3 + 1) * 6 + i % 4 + 1] = i;
  adios2::Engine writer = out.Open("numbers", adios2::Mode::Write);
  for (const adios2::Mode mode : {adios2::Mode::Sync, adios2::Mode::Deferred}) {
    writer.BeginStep();
    writer.Put(variable, with_ghosts.data(), mode);
    writer.EndStep();
  }
  writer.Close();

  adios2::Engine reader = open_reader();
  for (int step = 0; step < 2; ++step) {
    auto read_variable = in_.InquireVariable<int>("numbers");
    std::vector<int> read(24);
    reader.Get(read_variable, read.data(), adios2::Mode::Sync);
    EXPECT_EQ(read, numbers({2, 3, 4}, {0, 0, 0}, {2, 3, 4}));
    std::vector<int> read_with_ghosts(4 * 5 * 6, -7);
    read_variable.SetMemorySelection({{1, 1, 1}, {4, 5, 6}});
    reader.Get(read_variable, read_with_ghosts.data(), adios2::Mode::Sync);
    EXPECT_EQ(read_with_ghosts, with_ghosts);
    reader.EndStep();
    EXPECT_EQ(reader.BeginStep(), step == 0 ? adios2::StepStatus::OK : adios2::StepStatus::EndOfStream);
  }
  reader.Close();
}

TEST_F(EngineSelections, selections_are_reset_by_each_step) {
  adios2::IO out = make_io("out");
  auto variable = out.DefineVariable<int>("numbers", {6}, {0}, {6});
  adios2::Engine writer = out.Open("numbers", adios2::Mode::Write);
  std::vector<int> data(6);
  std::iota(data.begin(), data.end(), 0);
  for (int step = 0; step < 2; ++step) {
    writer.BeginStep();
    writer.Put(variable, data.data());
    writer.EndStep();
  }
  writer.Close();
  adios2::Engine reader = open_reader();
  auto first = in_.InquireVariable<int>("numbers");
  first.SetSelection({{2}, {2}});
  first.SetMemorySelection({{1}, {4}});
  first.SetBlockSelection(0);
  reader.EndStep();
  ASSERT_EQ(reader.BeginStep(), adios2::StepStatus::OK);
  auto second = in_.InquireVariable<int>("numbers");
  EXPECT_EQ(second.Start(), Dims{0});
  EXPECT_EQ(second.Count(), Dims{6});
  std::vector<int> read(6);
  reader.Get(second, read.data(), adios2::Mode::Sync);
  EXPECT_EQ(read, data);
  reader.Close();
}

TEST_F(EngineSelections, empty_blocks_and_empty_boxes_are_allowed) {
  adios2::IO out = make_io("out");
  auto variable = out.DefineVariable<int>("numbers", {4}, {0}, {0});
  auto empty = out.DefineVariable<int>("empty", {0}, {0}, {0});
  adios2::Engine writer = out.Open("numbers", adios2::Mode::Write);
  writer.BeginStep();
  const int* nothing = nullptr;
  writer.Put(variable, nothing);
  writer.Put(empty, nothing);
  const std::vector<int> data{1, 2, 3, 4};
  variable.SetSelection({{0}, {4}});
  writer.Put(variable, data.data());
  writer.EndStep();
  writer.Close();
  adios2::Engine reader = open_reader();
  auto read_variable = in_.InquireVariable<int>("numbers");
  EXPECT_EQ(reader.BlocksInfo(read_variable, 0).size(), 2U);
  std::vector<int> read;
  reader.Get(read_variable, read, adios2::Mode::Sync);
  EXPECT_EQ(read, data);
  read_variable.SetSelection({{4}, {0}});
  reader.Get(read_variable, read, adios2::Mode::Sync);
  EXPECT_TRUE(read.empty());
  auto read_empty = in_.InquireVariable<int>("empty");
  ASSERT_TRUE(read_empty);
  EXPECT_EQ(read_empty.Shape(), Dims{0});
  reader.Get(read_empty, read, adios2::Mode::Sync);
  reader.Close();
}

TEST_F(EngineSelections, local_blocks_differ_in_size_and_sub_boxes_lie_in_them) {
  adios2::IO out = make_io("out");
  auto local = out.DefineVariable<int>("numbers", {}, {}, {2, 2});
  adios2::Engine writer = out.Open("numbers", adios2::Mode::Write);
  writer.BeginStep();
  const std::vector<int> small{0, 1, 2, 3}, large = numbers({3, 4}, {0, 0}, {3, 4});
  writer.Put(local, small.data());
  local.SetSelection({{}, {3, 4}});
  writer.Put(local, large.data());
  writer.EndStep();
  writer.Close();
  adios2::Engine reader = open_reader();
  auto variable = in_.InquireVariable<int>("numbers");
  EXPECT_EQ(variable.ShapeID(), adios2::ShapeID::LocalArray);
  const auto blocks = reader.BlocksInfo(variable, 0);
  ASSERT_EQ(blocks.size(), 2U);
  EXPECT_TRUE(blocks[1].Start.empty());
  EXPECT_EQ(blocks[1].Count, (Dims{3, 4}));
  std::vector<int> read(12);
  variable.SetBlockSelection(1);
  reader.Get(variable, read.data(), adios2::Mode::Sync);
  EXPECT_EQ(read, large);
  read.resize(2);
  variable.SetSelection({{1, 1}, {1, 2}});
  reader.Get(variable, read.data(), adios2::Mode::Sync);
  EXPECT_EQ(read, (std::vector<int>{5, 6}));
  reader.Close();
}

TEST_F(EngineSelections, blocks_keep_the_order_of_the_puts_in_mixed_modes) {
  adios2::IO out = make_io("out");
  auto local = out.DefineVariable<int>("numbers", {}, {}, {2});
  adios2::Engine writer = out.Open("numbers", adios2::Mode::Write);
  const std::vector<int> a{0, 1}, b{2, 3}, c{4, 5};
  writer.BeginStep();
  writer.Put(local, a.data(), adios2::Mode::Deferred);
  writer.Put(local, b.data(), adios2::Mode::Sync);
  writer.Put(local, c.data(), adios2::Mode::Deferred);
  writer.EndStep();
  writer.Close();
  adios2::Engine reader = open_reader();
  auto variable = in_.InquireVariable<int>("numbers");
  for (std::size_t block = 0; block < 3; ++block) {
    variable.SetBlockSelection(block);
    std::vector<int> read(2);
    reader.Get(variable, read.data(), adios2::Mode::Sync);
    EXPECT_EQ(read[0], static_cast<int>(2 * block));
  }
  reader.Close();
}

}  // namespace
}  // namespace forebay::engine_test
