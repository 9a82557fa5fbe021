// SPDX-License-Identifier: Apache-2.0
// A program that writes a variable of struct type, and sees nothing of Forebay but the plugin's name.
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <iostream>

#include <adios2.h>

int main() {
  struct Particle {
    float position[3];
    int id;
  };
  adios2::ADIOS adios;
  adios2::IO io = adios.DeclareIO("particles");
  io.SetEngine("Plugin");
  io.SetParameters({{"PluginName", "forebay"}, {"PluginLibrary", std::getenv("FOREBAY_ADIOS2_LIBRARY")}});
  adios2::StructDefinition particle = io.DefineStruct("particle", sizeof(Particle));
  particle.AddField("position", offsetof(Particle, position), adios2::DataType::Float, 3);
  particle.AddField("id", offsetof(Particle, id), adios2::DataType::Int32);
  particle.Freeze();
  adios2::VariableNT variable = io.DefineStructVariable("particles", particle, {2}, {0}, {2});
  const Particle data[2] = {{{1, 2, 3}, 1}, {{4, 5, 6}, 2}};
  try {
    adios2::Engine engine = io.Open("particles", adios2::Mode::Write);
    engine.BeginStep();
    engine.Put(variable, data, adios2::Mode::Sync);
    engine.EndStep();
    engine.Close();
  } catch (const std::exception& error) {
    std::cout << error.what() << '\n';
    return 1;
  }
  return 0;
}
