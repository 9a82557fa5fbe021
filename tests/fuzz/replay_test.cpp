// SPDX-License-Identifier: Apache-2.0
// Sends the committed inputs of one fuzzer through it, with any compiler: what a fuzzer once found stays found.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace forebay::fuzz {
namespace {

std::vector<std::string> inputs;

TEST(Corpus, what_a_fuzzer_once_found_stays_found) {
  ASSERT_FALSE(inputs.empty()) << "no inputs: where is the corpus?";
  std::size_t past_first_check = 0;
  for (const std::string& input : inputs) {
    // If the process ends, the last name tells at which.
    std::cerr << input << std::endl;
    std::ifstream file(input, std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    was_understood = false;
    EXPECT_EQ(LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()), 0);
    if (was_understood) ++past_first_check;
  }
  std::cout << past_first_check << " of " << inputs.size() << " inputs get past the first check\n";
  // What an input means may change: then all are refused. Of texts and tables many are, for each has its own mistake.
  if (inputs.size() == 1) return;
  EXPECT_GE(20 * past_first_check, inputs.size()) << "make the corpus anew: scripts/merge-fuzz-corpus";
}

}  // namespace
}  // namespace forebay::fuzz

/// Arguments: inputs, or folders of them.
int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  std::set<std::string> sorted;
  for (int i = 1; i < argc; ++i) {
    if (!std::filesystem::is_directory(argv[i])) {
      sorted.insert(argv[i]);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) sorted.insert(entry.path().string());
  }
  forebay::fuzz::inputs.assign(sorted.begin(), sorted.end());
  return RUN_ALL_TESTS();
}
