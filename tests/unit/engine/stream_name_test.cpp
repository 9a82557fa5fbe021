// SPDX-License-Identifier: Apache-2.0
#include "stream_name.h"

#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include <forebay/address.h>

#include "tests/support/randomness.h"

namespace forebay::engine {
namespace {

TEST(StreamName, table_of_the_docs_holds) {
  const std::map<std::string, std::pair<std::string, std::string>> table{
      {"gs.bp", {"gs", "gs"}},
      {"out/run 1/gs.bp", {"gs", "out__run_1__gs"}},
      {"/scratch/gs.bp/", {"gs", "scratch__gs"}},
      {"./gs.sst", {"gs", "gs"}},
      {"../gs.h5", {"gs", "s..__gs"}},
      {"gs.bp.h5", {"gs.bp", "gs.bp"}},
      {"gs.BP", {"gs.BP", "gs.BP"}},
      {"2024-run.bp4", {"s2024-run", "s2024-run"}},
      {"_tmp.bp5", {"s_tmp", "s_tmp"}},
      {"files", {"files_", "files_"}},
      {"files.bp", {"files_", "files_"}},
      {".bp", {"s.bp", "s.bp"}},
      {"Größe", {"Gr____e", "Gr____e"}},
      {"", {"s", "s"}},
      {"/", {"s", "s"}},
  };
  for (const auto& [opened, expected] : table) {
    EXPECT_EQ(stream_name_of(opened), expected.first) << opened;
    EXPECT_EQ(stream_path_of(opened), expected.second) << opened;
  }
}

TEST(StreamName, long_names_are_cut_and_stay_different) {
  const std::string stem(100, 'x');
  const std::string first = stream_name_of(stem + "1.bp"), second = stream_name_of(stem + "2.bp");
  EXPECT_EQ(first.size(), 64U);
  EXPECT_NE(first, second);
  EXPECT_EQ(first.substr(0, 56), std::string(55, 'x') + "_");
  EXPECT_EQ(first.find_first_not_of("0123456789abcdef", 56), std::string::npos);
  EXPECT_EQ(stream_name_of(std::string(64, 'x')), std::string(64, 'x'));
}

TEST(StreamName, of_anything_is_a_valid_name_and_always_the_same) {
  std::mt19937_64 random(forebay::testing::test_seed());
  constexpr std::string_view pieces[] = {"/", "//", ".bp", ".bp5", "files", ".",  "..",  "a",
                                         "Z", "9",  "_",   "-",    " ",     "\n", "\xff"};
  for (int round = 0; round < 20'000; ++round) {
    std::string opened;
    for (std::uint64_t length = random() % 40; length > 0; --length) {
      const std::uint64_t drawn = random();
      if ((drawn & 1U) == 0) {
        const std::size_t piece = random() % std::size(pieces);
        opened += pieces[piece];
      } else {
        opened += static_cast<char>(random() % 256);
      }
    }
    for (const std::string& name : {stream_name_of(opened), stream_path_of(opened)}) {
      EXPECT_TRUE(is_valid_name(name)) << opened << " -> " << name;
      EXPECT_NE(name, "files") << opened;
    }
    EXPECT_EQ(stream_name_of(opened), stream_name_of(std::string(opened)));
    // Folders and slashes behind it make no difference to the name.
    if (opened.find_first_not_of("./") != std::string::npos) {
      EXPECT_EQ(stream_name_of("some/folder/" + opened + "/"), stream_name_of(opened)) << opened;
    }
    // Told to write what it made, it makes the same again.
    EXPECT_EQ(stream_name_of(stream_name_of(opened) + ".bp"), stream_name_of(opened)) << opened;
    EXPECT_TRUE(parse_address(fill_placeholders("run1/{name}", opened))) << opened;
  }
}

TEST(StreamName, placeholders_are_filled_in_wherever_they_stand) {
  EXPECT_EQ(fill_placeholders("run1/a-{name}@17", "x/gs.bp"), "run1/a-gs@17");
  EXPECT_EQ(fill_placeholders("run1/{path}-{name}", "x/gs.bp"), "run1/x__gs-gs");
  EXPECT_EQ(fill_placeholders("run1/{name}", "{name}"), "run1/s_name_");
  EXPECT_FALSE(has_placeholder("run1/flow"));
}

}  // namespace
}  // namespace forebay::engine
