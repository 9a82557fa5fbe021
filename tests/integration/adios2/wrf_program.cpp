// SPDX-License-Identifier: Apache-2.0
// The calls of WRF's own ADIOS2 layer (external/io_adios2, io_form_history=14), with what it gives as names, types and
// attributes: an IO in Fortran's order, a text `Times`, and `VAR/Dims` with the fastest dimension first and `Time`
// last.
#include <cstddef>
#include <numeric>
#include <string>
#include <vector>

#include <adios2.h>

namespace {

using adios2::Dims;
using adios2::Mode;

struct Field {
  std::string name;
  std::vector<std::string> dims;
  Dims shape;
  std::string units;
};

}  // namespace

int main() {
  adios2::ADIOS adios;
  adios2::IO io = adios.DeclareIO("wrfout_d01_2026-11-01_00:00:00", adios2::ArrayOrdering::ColumnMajor);
  io.DefineAttribute<std::string>("TITLE", "OUTPUT FROM WRF V4.6.0 MODEL");
  io.DefineAttribute<int>("_DIM_DateStrLen", 19);
  auto times = io.DefineVariable<std::string>("Times");
  const auto define_texts = [&](const std::string& variable, const std::string& name, std::vector<std::string> texts) {
    io.DefineAttribute<std::string>(name, texts.data(), texts.size(), variable);
  };
  define_texts("Times", "Dims", {"DateStrLen", "Time"});
  const std::vector<Field> fields = {
      {"T", {"west_east", "south_north", "bottom_top"}, {8, 6, 4}, "K"},
      {"U", {"west_east_stag", "south_north", "bottom_top"}, {9, 6, 4}, "m s-1"},
      {"XLAT", {"west_east", "south_north"}, {8, 6}, "degree_north"},
      {"ITIMESTEP", {}, {1}, ""},
  };
  std::vector<adios2::Variable<float>> variables;
  for (const Field& field : fields) {
    variables.push_back(io.DefineVariable<float>(field.name, field.shape, Dims(field.shape.size()), field.shape));
    auto dims = field.dims;
    dims.emplace_back("Time");
    define_texts(field.name, "Dims", dims);
    io.DefineAttribute<int>("FieldType", 104, field.name);
    io.DefineAttribute<std::string>("MemoryOrder", field.dims.size() == 3 ? "XYZ" : "XY", field.name);
    define_texts(field.name, "units", {field.units});
  }
  adios2::Engine engine = io.Open("wrfout_d01_2026-11-01_00:00:00", Mode::Write);
  for (int hour = 0; hour < 3; ++hour) {
    engine.BeginStep();
    engine.Put(times, "2026-11-01_0" + std::to_string(hour) + ":00:00", Mode::Sync);
    for (std::size_t number = 0; number < fields.size(); ++number) {
      // A patch for each half of the last dimension, as from two ranks.
      const Dims& shape = fields[number].shape;
      const std::size_t halves = shape.back() > 1 ? 2 : 1;
      std::size_t of_patch = shape.back() / halves;
      for (std::size_t axis = 0; axis + 1 < shape.size(); ++axis) of_patch *= shape[axis];
      for (std::size_t half = 0; half < halves; ++half) {
        Dims start(shape.size()), count = shape;
        count.back() /= halves;
        start.back() = half * count.back();
        variables[number].SetSelection({start, count});
        std::vector<float> data(of_patch);
        std::iota(data.begin(), data.end(), static_cast<float>(1000 * hour + static_cast<int>(half * of_patch)));
        engine.Put(variables[number], data.data(), Mode::Sync);
      }
    }
    engine.EndStep();
  }
  engine.Close();
  return 0;
}
