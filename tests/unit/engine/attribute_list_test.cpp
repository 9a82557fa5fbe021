// SPDX-License-Identifier: Apache-2.0
#include "attribute_list.h"

#include <complex>
#include <vector>

#include <gtest/gtest.h>

namespace forebay::engine {
namespace {

std::map<std::string, std::string> told_by_adios2(adios2::IO io) {
  std::map<std::string, std::string> types;
  for (const auto& [name, facts] : io.AvailableAttributes()) types.emplace(name, facts.at("Type"));
  return types;
}

TEST(AttributeList, is_what_adios2_lists) {
  adios2::ADIOS adios;
  adios2::IO io = adios.DeclareIO("io");
  EXPECT_FALSE(has_attributes(io));
  EXPECT_TRUE(attribute_types(io).empty());
  const std::vector<std::string> names{"x", "", "a longer name"};
  io.DefineAttribute<std::string>("names", names.data(), names.size());
  io.DefineAttribute<std::string>("title", "flow");
  io.DefineVariable<double>("T");
  io.DefineAttribute<std::string>("units", "K", "T");
  std::size_t number = 0;
#define FOREBAY_DEFINE(T) io.DefineAttribute<T>("number " + std::to_string(number++), static_cast<T>(1));
  ADIOS2_FOREACH_PRIMITIVE_STDTYPE_1ARG(FOREBAY_DEFINE)
#undef FOREBAY_DEFINE
  EXPECT_TRUE(has_attributes(io));
  const auto types = attribute_types(io);
  EXPECT_EQ(types, told_by_adios2(io));
  EXPECT_EQ(types.at("T/units"), "string");
  EXPECT_EQ(types.size(), number + 3);

  io.RemoveAttribute("title");
  io.DefineAttribute<float>("title", 1.5F);
  io.RemoveAttribute("names");
  EXPECT_EQ(attribute_types(io), told_by_adios2(io));
  EXPECT_EQ(attribute_types(io).at("title"), "float");
  io.RemoveAllAttributes();
  EXPECT_FALSE(has_attributes(io));
}

}  // namespace
}  // namespace forebay::engine
