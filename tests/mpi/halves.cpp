// SPDX-License-Identifier: Apache-2.0
// Even and odd ranks each open a file of their own with a communicator of their own; then all ranks read both with the
// whole communicator, and print what they find.
#include <mpi.h>

#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

#include <adios2.h>

int main(int argument_count, char** arguments) {
  MPI_Init(&argument_count, &arguments);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  int half_rank = 0, half_ranks = 0;
  MPI_Comm_rank(half, &half_rank);
  MPI_Comm_size(half, &half_ranks);
  {
    adios2::ADIOS adios(MPI_COMM_WORLD);
    adios2::IO out = adios.DeclareIO("out");
    const auto place = static_cast<std::size_t>(half_rank);
    auto field = out.DefineVariable<int>("field", {static_cast<std::size_t>(half_ranks)}, {place}, {1});
    adios2::Engine writer = out.Open(rank % 2 == 0 ? "even.bp" : "odd.bp", adios2::Mode::Write, half);
    for (int step = 0; step < 3; ++step) {
      writer.BeginStep();
      writer.Put(field, 100 * step + rank);
      writer.EndStep();
    }
    writer.Close();
    MPI_Barrier(MPI_COMM_WORLD);
    for (const char* name : {"even.bp", "odd.bp"}) {
      adios2::IO in = adios.DeclareIO(std::string("in ") + name);
      adios2::Engine reader = in.Open(name, adios2::Mode::Read);
      std::string line = name;
      while (reader.BeginStep() == adios2::StepStatus::OK) {
        std::vector<int> values;
        reader.Get(in.InquireVariable<int>("field"), values, adios2::Mode::Sync);
        for (const int value : values) line += " " + std::to_string(value);
        reader.EndStep();
      }
      reader.Close();
      std::printf("%s\n", line.c_str());
    }
  }
  MPI_Comm_free(&half);
  MPI_Finalize();
  return 0;
}
