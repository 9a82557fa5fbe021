/* SPDX-License-Identifier: Apache-2.0
 * An MPI program in C: each rank writes its part of T, five steps long, as simulations do. It knows nothing of Forebay.
 *   mpiexec -n 2 ./flow_c adios2.xml */
#include <adios2_c.h>
#include <mpi.h>
#include <stdio.h>

#define CELLS 4

int main(int argument_count, char** arguments) {
  int rank, ranks;
  MPI_Init(&argument_count, &arguments);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const size_t shape = (size_t)ranks * CELLS, start = (size_t)rank * CELLS, count = CELLS;
  adios2_adios* adios =
      adios2_init_config_mpi(argument_count > 1 ? arguments[1] : "adios2.xml", MPI_COMM_WORLD);
  adios2_io* io = adios2_declare_io(adios, "simulation");
  adios2_variable* variable =
      adios2_define_variable(io, "T", adios2_type_double, 1, &shape, &start, &count, adios2_constant_dims_true);
  adios2_engine* engine = adios2_open(io, "flow.bp", adios2_mode_write);
  if (engine == NULL) {
    fprintf(stderr, "flow.bp cannot be written\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  for (int step = 0; step < 5; ++step) {
    double values[CELLS];
    for (int cell = 0; cell < CELLS; ++cell) values[cell] = 100.0 * step + (double)start + cell;
    adios2_step_status status;
    if (adios2_begin_step(engine, adios2_step_mode_append, -1.0f, &status) != adios2_error_none ||
        adios2_put(engine, variable, values, adios2_mode_sync) != adios2_error_none ||
        adios2_end_step(engine) != adios2_error_none) {
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
  }
  adios2_close(engine);
  adios2_finalize(adios);
  MPI_Finalize();
  return 0;
}
