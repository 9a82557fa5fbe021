// SPDX-License-Identifier: Apache-2.0
// A program in C++ that knows nothing of Forebay: reads twice what its configuration file names, and prints for each
// step the first of `numbers`, and what ADIOS2 says of its range. Run by test_adios2_versions.py.
#include <cstdint>
#include <iostream>
#include <vector>

#include <adios2.h>

int main(int argument_count, char** arguments) {
  if (argument_count != 2) return 2;
  adios2::ADIOS adios(arguments[1]);
  adios2::IO io = adios.DeclareIO("numbers");
  for (int time = 0; time < 2; ++time) {
    adios2::Engine engine = io.Open("numbers", adios2::Mode::Read);
    while (engine.BeginStep() == adios2::StepStatus::OK) {
      auto numbers = io.InquireVariable<std::int64_t>("numbers");
      std::vector<std::int64_t> values;
      engine.Get(numbers, values, adios2::Mode::Sync);
      const auto blocks = engine.BlocksInfo(numbers, engine.CurrentStep());
      std::cout << values.at(0) << ": " << numbers.Min() << " " << numbers.Max() << ", " << blocks.at(0).Min << " "
                << blocks.at(0).Max << std::endl;
      engine.EndStep();
    }
    engine.Close();
  }
  return 0;
}
