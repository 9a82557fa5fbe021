// SPDX-License-Identifier: Apache-2.0
// Every type that ADIOS2 has but struct, as every kind of variable, by Put and Get in both modes.
#include <algorithm>
#include <complex>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine_fixture.h"

namespace forebay::engine_test {
namespace {

template <class T>
T element(std::size_t i) {
  if constexpr (std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>) {
    return T(static_cast<typename T::value_type>(i) + 1, -static_cast<typename T::value_type>(i));
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(i) / 3 - 2;
  } else {
    return static_cast<T>(i + 1);
  }
}

template <class T>
std::vector<T> elements(std::size_t count, std::size_t first = 0) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = element<T>(first + i);
  return values;
}

template <class T>
class EngineTypes : public EngineTest {};

using Types = ::testing::Types<char, std::int8_t, std::int16_t, std::int32_t, std::int64_t, std::uint8_t, std::uint16_t,
                               std::uint32_t, std::uint64_t, float, double, long double, std::complex<float>,
                               std::complex<double>>;
TYPED_TEST_SUITE(EngineTypes, Types);

TYPED_TEST(EngineTypes, every_kind_of_variable_comes_back) {
  using T = TypeParam;
  constexpr std::size_t joined_rows = 5;
  adios2::IO out = this->make_io("out");
  auto value = out.DefineVariable<T>("value");
  auto local_value = out.DefineVariable<T>("local value", {adios2::LocalValueDim});
  auto global = out.DefineVariable<T>("global", {4, 6}, {0, 0}, {2, 6});
  auto joined = out.DefineVariable<T>("joined", {adios2::JoinedDim, 3}, {}, {2, 3});
  auto local = out.DefineVariable<T>("local", {}, {}, {3});
  adios2::Engine writer = out.Open("types", adios2::Mode::Write);
  for (std::size_t step = 0; step < 2; ++step) {
    const adios2::Mode mode = step == 0 ? adios2::Mode::Sync : adios2::Mode::Deferred;
    const std::vector<T> top = elements<T>(12, step);
    const std::vector<T> bottom = elements<T>(12, step + 12);
    const std::vector<T> two_rows = elements<T>(6, step);
    const std::vector<T> three_rows = elements<T>(9, step + 6);
    const std::vector<T> three = elements<T>(3, step);
    const std::vector<T> two = elements<T>(2, step + 50);
    writer.BeginStep();
    writer.Put(value, element<T>(step + 40));
    writer.Put(local_value, element<T>(step + 41));
    global.SetSelection({{0, 0}, {2, 6}});
    writer.Put(global, top.data(), mode);
    global.SetSelection({{2, 0}, {2, 6}});
    writer.Put(global, bottom.data(), mode);
    joined.SetSelection({{}, {2, 3}});
    writer.Put(joined, two_rows.data(), mode);
    joined.SetSelection({{}, {3, 3}});
    writer.Put(joined, three_rows.data(), mode);
    local.SetSelection({{}, {3}});
    writer.Put(local, three.data(), mode);
    local.SetSelection({{}, {2}});
    writer.Put(local, two.data(), mode);
    writer.EndStep();
  }
  writer.Close();

  adios2::IO in = this->make_io("in");
  adios2::Engine reader = in.Open("types", adios2::Mode::Read);
  for (std::size_t step = 0; step < 2; ++step) {
    const adios2::Mode mode = step == 0 ? adios2::Mode::Sync : adios2::Mode::Deferred;
    ASSERT_EQ(reader.BeginStep(), adios2::StepStatus::OK);
    auto global_in = in.InquireVariable<T>("global");
    auto joined_in = in.InquireVariable<T>("joined");
    auto local_in = in.InquireVariable<T>("local");
    auto local_value_in = in.InquireVariable<T>("local value");
    ASSERT_TRUE(global_in && joined_in && local_in && local_value_in);
    EXPECT_EQ(in.InquireVariable<T>("value").ShapeID(), adios2::ShapeID::GlobalValue);
    EXPECT_EQ(global_in.ShapeID(), adios2::ShapeID::GlobalArray);
    EXPECT_EQ(local_in.ShapeID(), adios2::ShapeID::LocalArray);
    EXPECT_EQ(joined_in.Shape(), (adios2::Dims{joined_rows, 3}));
    EXPECT_EQ(local_value_in.Shape(), adios2::Dims{1});
    T value_read{};
    std::vector<T> global_read(24), joined_read(15), local_read(2), local_values(1), by_vector;
    reader.Get("value", value_read);
    reader.Get(global_in, global_read.data(), mode);
    reader.Get(joined_in, joined_read.data(), mode);
    local_in.SetBlockSelection(1);
    reader.Get(local_in, local_read.data(), mode);
    reader.Get(local_value_in, local_values.data(), mode);
    reader.Get(global_in, by_vector, mode);
    if (step == 1) reader.PerformGets();
    EXPECT_EQ(value_read, element<T>(step + 40));
    EXPECT_EQ(global_read, elements<T>(24, step));
    EXPECT_EQ(by_vector, elements<T>(24, step));
    EXPECT_EQ(joined_read, elements<T>(15, step));
    EXPECT_EQ(local_read, elements<T>(2, step + 50));
    EXPECT_EQ(local_values, std::vector<T>{element<T>(step + 41)});
    reader.EndStep();
  }
  EXPECT_EQ(reader.BeginStep(), adios2::StepStatus::EndOfStream);
  reader.Close();
}

TYPED_TEST(EngineTypes, attributes_come_back_single_and_array) {
  using T = TypeParam;
  adios2::IO out = this->make_io("out");
  const std::vector<T> many = elements<T>(5);
  out.DefineAttribute<T>("single", element<T>(3));
  out.DefineAttribute<T>("many", many.data(), many.size());
  adios2::Engine writer = out.Open("attributes", adios2::Mode::Write);
  writer.BeginStep();
  writer.EndStep();
  writer.Close();
  adios2::IO in = this->make_io("in");
  adios2::Engine reader = in.Open("attributes", adios2::Mode::Read);
  ASSERT_EQ(reader.BeginStep(), adios2::StepStatus::OK);
  auto single = in.InquireAttribute<T>("single");
  auto array = in.InquireAttribute<T>("many");
  ASSERT_TRUE(single && array);
  EXPECT_TRUE(single.IsValue());
  EXPECT_EQ(single.Data(), std::vector<T>{element<T>(3)});
  EXPECT_FALSE(array.IsValue());
  EXPECT_EQ(array.Data(), many);
  reader.Close();
}

TYPED_TEST(EngineTypes, blocks_info_has_minimum_and_maximum) {
  using T = TypeParam;
  adios2::IO out = this->make_io("out");
  auto global = out.DefineVariable<T>("global", {9}, {0}, {4});
  auto value = out.DefineVariable<T>("value");
  adios2::Engine writer = out.Open("blocks", adios2::Mode::Write);
  const std::vector<T> all = elements<T>(9);
  writer.BeginStep();
  writer.Put(global, all.data());
  global.SetSelection({{4}, {5}});
  writer.Put(global, all.data() + 4);
  writer.Put(value, element<T>(7));
  writer.EndStep();
  writer.Close();
  adios2::IO in = this->make_io("in");
  adios2::Engine reader = in.Open("blocks", adios2::Mode::Read);
  ASSERT_EQ(reader.BeginStep(), adios2::StepStatus::OK);
  const auto blocks = reader.BlocksInfo(in.InquireVariable<T>("global"), reader.CurrentStep());
  ASSERT_EQ(blocks.size(), 2U);
  EXPECT_EQ(blocks[1].BlockID, 1U);
  EXPECT_EQ(blocks[1].WriterID, 0);
  EXPECT_EQ(blocks[1].Start, adios2::Dims{4});
  EXPECT_EQ(blocks[1].Count, adios2::Dims{5});
  EXPECT_FALSE(blocks[1].IsValue);
  EXPECT_FALSE(blocks[1].IsReverseDims);
  if constexpr (std::is_arithmetic_v<T>) {
    EXPECT_EQ(blocks[1].Min, *std::min_element(all.begin() + 4, all.end()));
    EXPECT_EQ(blocks[1].Max, *std::max_element(all.begin() + 4, all.end()));
    EXPECT_EQ(in.InquireVariable<T>("global").Min(), *std::min_element(all.begin(), all.end()));
    EXPECT_EQ(in.InquireVariable<T>("global").Max(), *std::max_element(all.begin(), all.end()));
    EXPECT_EQ(in.InquireVariable<T>("value").MinMax(), std::make_pair(element<T>(7), element<T>(7)));
  }
  EXPECT_EQ(in.InquireVariable<T>("global").Steps(), 1U);
  const auto value_blocks = reader.BlocksInfo(in.InquireVariable<T>("value"), reader.CurrentStep());
  ASSERT_EQ(value_blocks.size(), 1U);
  EXPECT_TRUE(value_blocks[0].IsValue);
  EXPECT_EQ(value_blocks[0].Value, element<T>(7));
  reader.Close();
}

class EngineStrings : public EngineTest {};

TEST_F(EngineStrings, values_of_every_length_come_back) {
  adios2::IO out = make_io("out");
  auto value = out.DefineVariable<std::string>("value");
  auto local = out.DefineVariable<std::string>("local", {adios2::LocalValueDim});
  adios2::Engine writer = out.Open("strings", adios2::Mode::Write);
  const std::vector<std::string> texts{"", "short", std::string(100'000, 'x'), "späte Schritte"};
  for (const std::string& text : texts) {
    writer.BeginStep();
    writer.Put(value, text);
    writer.Put(local, text + "0");
    writer.EndStep();
  }
  writer.Close();
  adios2::IO in = make_io("in");
  adios2::Engine reader = in.Open("strings", adios2::Mode::Read);
  for (const std::string& text : texts) {
    ASSERT_EQ(reader.BeginStep(), adios2::StepStatus::OK);
    std::string read, read_local;
    reader.Get("value", read);
    auto local_in = in.InquireVariable<std::string>("local");
    ASSERT_TRUE(local_in);
    EXPECT_EQ(local_in.ShapeID(), adios2::ShapeID::LocalValue);
    local_in.SetBlockSelection(0);
    reader.Get(local_in, read_local);
    const auto blocks = reader.BlocksInfo(local_in, reader.CurrentStep());
    reader.EndStep();
    EXPECT_EQ(read, text);
    EXPECT_EQ(read_local, text + "0");
    ASSERT_EQ(blocks.size(), 1U);
    EXPECT_EQ(blocks[0].Value, text + "0");
  }
  reader.Close();
}

TEST_F(EngineStrings, attributes_come_back) {
  adios2::IO out = make_io("out");
  const std::vector<std::string> names{"x", "", "a longer name"};
  out.DefineAttribute<std::string>("title", "flow");
  out.DefineAttribute<std::string>("names", names.data(), names.size());
  adios2::Engine writer = out.Open("strings", adios2::Mode::Write);
  writer.BeginStep();
  writer.EndStep();
  writer.Close();
  adios2::IO in = make_io("in");
  adios2::Engine reader = in.Open("strings", adios2::Mode::Read);
  ASSERT_EQ(reader.BeginStep(), adios2::StepStatus::OK);
  EXPECT_EQ(in.InquireAttribute<std::string>("title").Data(), std::vector<std::string>{"flow"});
  EXPECT_EQ(in.InquireAttribute<std::string>("names").Data(), names);
  reader.Close();
}

}  // namespace
}  // namespace forebay::engine_test
