// SPDX-License-Identifier: Apache-2.0
// Arrays in Fortran's and in C's order, written by either and read by either: shapes, values, selections and blocks are
// those that BP5 gives.
#include <unistd.h>

#include <array>
#include <filesystem>
#include <numeric>
#include <ostream>
#include <utility>
#include <vector>

#include "engine_fixture.h"

namespace forebay::engine_test {
namespace {

using adios2::ArrayOrdering;
using adios2::Dims;
using adios2::Mode;

// What a reader sees of one variable.
struct Seen {
  Dims shape;
  std::vector<int> all, box, block;
  std::vector<std::pair<Dims, Dims>> blocks;  // start and count
  bool operator==(const Seen&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Seen& seen) {
  const auto list = [&](const auto& numbers) {
    for (const auto number : numbers) out << number << ' ';
  };
  out << "shape ";
  list(seen.shape);
  out << "all ";
  list(seen.all);
  out << "box ";
  list(seen.box);
  out << "block ";
  list(seen.block);
  for (const auto& [start, count] : seen.blocks) {
    out << "[ ";
    list(start);
    out << "| ";
    list(count);
    out << "] ";
  }
  return out;
}

enum class Access : std::uint8_t { steps, random };

class EngineArrayOrder : public EngineTest {
 protected:
  enum class Kind : std::uint8_t { forebay, bp5 };

  adios2::IO make(const std::string& name, Kind kind, ArrayOrdering order) {
    adios_.RemoveIO(name);
    adios2::IO io = adios_.DeclareIO(name, order);
    if (kind == Kind::bp5) {
      io.SetEngine("BP5");
    } else {
      configure(io, stream_);
      if (access_ == Access::random && name == "in") io.SetParameter("RandomAccess", "true");
    }
    return io;
  }
  std::string name_of_file() const {
    return (std::filesystem::path(::testing::TempDir()) / ("forebay " + std::to_string(getpid()) + ".bp")).string();
  }
  void TearDown() override { std::filesystem::remove_all(name_of_file()); }

  // Two blocks of a global array of 3x2x4 and of a local array, each element its place in memory.
  void write(Kind kind, ArrayOrdering order) {
    adios2::IO io = make("out", kind, order);
    auto global = io.DefineVariable<int>("global", {3, 2, 4}, {0, 0, 0}, {3, 2, 4});
    auto local = io.DefineVariable<int>("local", {}, {}, {2, 3});
    adios2::Engine writer = io.Open(name_of_file(), Mode::Write);
    writer.BeginStep();
    for (const std::size_t first : {0, 1}) {
      const Dims count{first == 0 ? 1UL : 2UL, 2, 4};
      global.SetSelection({{first, 0, 0}, count});
      std::vector<int> data(8 * count[0]);
      std::iota(data.begin(), data.end(), static_cast<int>(100 * first));
      writer.Put(global, data.data(), Mode::Sync);
      local.SetSelection({{}, {2 + first, 3}});
      std::iota(data.begin(), data.end(), static_cast<int>(1000 * first));
      writer.Put(local, data.data(), Mode::Sync);
    }
    writer.EndStep();
    writer.Close();
  }

  std::vector<Seen> read(Kind kind, ArrayOrdering order) {
    adios2::IO io = make("in", kind, order);
    const bool random = access_ == Access::random;
    adios2::Engine reader = io.Open(name_of_file(), random ? Mode::ReadRandomAccess : Mode::Read);
    if (!random) {
      EXPECT_EQ(reader.BeginStep(), adios2::StepStatus::OK);
    }
    auto global = io.InquireVariable<int>("global");
    auto local = io.InquireVariable<int>("local");
    std::vector<Seen> seen(2);
    seen[0].shape = global.Shape();
    const auto get = [&](auto variable, std::vector<int>& data, std::size_t size) {
      data.assign(size, -1);
      reader.Get(variable, data.data(), Mode::Sync);
    };
    global.SetSelection({{0, 0, 0}, global.Shape()});
    get(global, seen[0].all, 24);
    Dims start(3), count(3);
    for (std::size_t i = 0; i < 3; ++i) {
      start[i] = global.Shape()[i] > 2 ? 1 : 0;
      count[i] = 2;
    }
    global.SetSelection({start, count});
    get(global, seen[0].box, 8);
    global.SetBlockSelection(1);
    get(global, seen[0].block, 16);
    for (const auto& block : reader.BlocksInfo(global, 0)) seen[0].blocks.emplace_back(block.Start, block.Count);
    local.SetBlockSelection(1);
    get(local, seen[1].block, 9);
    for (const auto& block : reader.BlocksInfo(local, 0)) seen[1].blocks.emplace_back(Dims(), block.Count);
    if (!random) reader.EndStep();
    reader.Close();
    return seen;
  }

  Access access_ = Access::steps;
};

constexpr std::array<ArrayOrdering, 2> orders = {ArrayOrdering::RowMajor, ArrayOrdering::ColumnMajor};

const char* name_of(ArrayOrdering order) {
  return order == ArrayOrdering::RowMajor ? "row-major" : "column-major";
}

TEST_F(EngineArrayOrder, is_that_of_bp5) {
  for (const ArrayOrdering writer : orders) {
    for (const ArrayOrdering reader : orders) {
      for (access_ = Access::steps;; access_ = Access::random) {
        SCOPED_TRACE(std::string(name_of(writer)) + " read as " + name_of(reader));
        write(Kind::bp5, writer);
        const std::vector<Seen> right = read(Kind::bp5, reader);
        write(Kind::forebay, writer);
        EXPECT_EQ(read(Kind::forebay, reader), right);
        if (access_ == Access::random) break;
      }
    }
  }
}

// For a build of ADIOS2 that hides the order: what the parameter says goes before what the IO says.
TEST_F(EngineArrayOrder, is_what_the_parameter_says) {
  for (const ArrayOrdering writer : orders) {
    for (const ArrayOrdering reader : orders) {
      write(Kind::bp5, writer);
      const std::vector<Seen> right = read(Kind::bp5, reader);
      setenv("FOREBAY_ARRAY_ORDER", name_of(writer), 1);
      write(Kind::forebay, ArrayOrdering::RowMajor);
      setenv("FOREBAY_ARRAY_ORDER", name_of(reader), 1);
      EXPECT_EQ(read(Kind::forebay, ArrayOrdering::RowMajor), right);
      unsetenv("FOREBAY_ARRAY_ORDER");
    }
  }
}

class EngineFortranOrder : public EngineTest {
 protected:
  adios2::IO column_major(const std::string& name) {
    adios2::IO io = adios_.DeclareIO(name, ArrayOrdering::ColumnMajor);
    configure(io, stream_);
    return io;
  }
  adios2::IO row_major(const std::string& name) { return make_io(name); }
};

TEST_F(EngineFortranOrder, elements_keep_their_indices) {
  adios2::IO out = column_major("out");
  auto variable = out.DefineVariable<int>("A", {3, 2}, {0, 0}, {3, 2});
  adios2::Engine writer = out.Open("A", Mode::Write);
  writer.BeginStep();
  const std::vector<int> data{0, 10, 20, 1, 11, 21};  // A(i,j) = 10 i + j
  writer.Put(variable, data.data());
  writer.EndStep();
  writer.Close();
  adios2::IO in = row_major("in");
  adios2::Engine reader = in.Open("A", Mode::Read);
  ASSERT_EQ(reader.BeginStep(), adios2::StepStatus::OK);
  auto shown = in.InquireVariable<int>("A");
  EXPECT_EQ(shown.Shape(), (Dims{2, 3}));
  shown.SetSelection({{1, 0}, {1, 3}});
  std::vector<int> row;
  reader.Get(shown, row, Mode::Sync);
  EXPECT_EQ(row, (std::vector<int>{1, 11, 21}));
  reader.EndStep();
  reader.Close();
}

TEST_F(EngineFortranOrder, memory_selections_and_joined_arrays_follow_it) {
  adios2::IO out = column_major("out");
  auto inner = out.DefineVariable<int>("inner", {3, 2}, {0, 0}, {3, 2});
  auto joined = out.DefineVariable<int>("joined", {2, adios2::JoinedDim}, {}, {2, 1});
  adios2::Engine writer = out.Open("A", Mode::Write);
  writer.BeginStep();
  // 4 x 3 in memory, column by column; the block begins at (1, 1).
  inner.SetMemorySelection({{1, 1}, {4, 3}});
  const std::vector<int> data{-1, -1, -1, -1, -1, 0, 10, 20, -1, 1, 11, 21};
  writer.Put(inner, data.data(), Mode::Sync);
  for (int column = 0; column < 3; ++column) {
    const std::vector<int> two{column, 10 + column};
    writer.Put(joined, two.data(), Mode::Sync);
  }
  writer.EndStep();
  writer.Close();
  const std::vector<int> right_joined{0, 10, 1, 11, 2, 12};
  for (const bool fortran : {false, true}) {
    adios2::IO in = fortran ? column_major("in fortran") : row_major("in c");
    adios2::Engine reader = in.Open("A", Mode::Read);
    ASSERT_EQ(reader.BeginStep(), adios2::StepStatus::OK);
    auto shown = in.InquireVariable<int>("inner");
    EXPECT_EQ(shown.Shape(), (fortran ? Dims{3, 2} : Dims{2, 3}));
    std::vector<int> read(12, -1);
    if (fortran) {
      shown.SetMemorySelection({{1, 1}, {4, 3}});
      reader.Get(shown, read.data(), Mode::Sync);
      EXPECT_EQ(read, data);
    } else {
      reader.Get(shown, read, Mode::Sync);
      EXPECT_EQ(read, (std::vector<int>{0, 10, 20, 1, 11, 21}));
    }
    auto together = in.InquireVariable<int>("joined");
    EXPECT_EQ(together.Shape(), (fortran ? Dims{2, 3} : Dims{3, 2}));
    reader.Get(together, read, Mode::Sync);
    EXPECT_EQ(read, right_joined);
    reader.EndStep();
    reader.Close();
  }
}

TEST_F(EngineFortranOrder, shape_of_each_step_is_seen_in_random_access) {
  adios2::IO out = column_major("out");
  auto grid = out.DefineVariable<int>("grid", {1, 5}, {0, 0}, {1, 5});
  adios2::Engine writer = out.Open("A", Mode::Write);
  for (std::size_t size = 1; size <= 3; ++size) {
    const std::vector<int> data(5 * size, static_cast<int>(size));
    writer.BeginStep();
    grid.SetShape({size, 5});
    grid.SetSelection({{0, 0}, {size, 5}});
    writer.Put(grid, data.data());
    writer.EndStep();
  }
  writer.Close();
  for (const bool fortran : {false, true}) {
    adios2::IO in = fortran ? column_major("in fortran") : row_major("in c");
    in.SetParameter("RandomAccess", "true");
    adios2::Engine reader = in.Open("A", Mode::ReadRandomAccess);
    auto shown = in.InquireVariable<int>("grid");
    for (std::size_t size = 1; size <= 3; ++size) {
      shown.SetStepSelection({size - 1, 1});
      EXPECT_EQ(shown.Shape(), (fortran ? Dims{size, 5} : Dims{5, size}));
    }
    reader.Close();
  }
}

}  // namespace
}  // namespace forebay::engine_test
