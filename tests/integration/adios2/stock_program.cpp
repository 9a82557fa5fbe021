// SPDX-License-Identifier: Apache-2.0
// A program in C++ that knows nothing of Forebay: an Open that throws must leave its IO as it was. Writes steps to a
// second file afterwards. Run by test_adios2_run.py.
#include <exception>
#include <iostream>

#include <adios2.h>

int main(int argument_count, char** arguments) {
  if (argument_count != 3) return 2;
  adios2::ADIOS adios;
  adios2::IO io = adios.DeclareIO("numbers");
  io.SetEngine("BP4");
  io.SetParameters({{"Profile", "Off"}, {"NumAggregators", "1"}});
  const adios2::Params before = io.Parameters();
  auto number = io.DefineVariable<int>("number");
  for (int argument = 1; argument <= 2; ++argument) {
    try {
      adios2::Engine engine = io.Open(arguments[argument], adios2::Mode::Write);
      std::cout << arguments[argument] << " " << engine.Type() << std::endl;
      for (int step = 0; step < 3; ++step) {
        engine.BeginStep();
        engine.Put(number, step);
        engine.EndStep();
      }
      engine.Close();
    } catch (const std::exception& error) {
      std::cout << arguments[argument] << " failed: " << error.what() << std::endl;
    }
    if (io.EngineType() != "BP4" || io.Parameters() != before) {
      std::cout << "the IO was changed: " << io.EngineType() << std::endl;
      return 1;
    }
  }
  return 0;
}
