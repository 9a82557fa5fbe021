/* SPDX-License-Identifier: Apache-2.0
 * A program in C that knows nothing of Forebay: the engine comes from adios2.xml. It loads ADIOS2 without its C++ library. */
#include <adios2_c.h>
#include <stdio.h>

int main(void) {
  const size_t shape = 4, start = 0, count = 4;
  adios2_adios* adios = adios2_init_config_serial("adios2.xml");
  adios2_io* io = adios2_declare_io(adios, "simulation");
  adios2_variable* variable =
      adios2_define_variable(io, "T", adios2_type_double, 1, &shape, &start, &count, adios2_constant_dims_true);
  adios2_engine* engine = adios2_open(io, "flow.bp", adios2_mode_write);
  if (engine == NULL) {
    fprintf(stderr, "flow.bp cannot be written\n");
    return 1;
  }
  for (int step = 0; step < 5; ++step) {
    const double values[4] = {step, step, step, step};
    adios2_step_status status;
    if (adios2_begin_step(engine, adios2_step_mode_append, -1.0f, &status) != adios2_error_none ||
        adios2_put(engine, variable, values, adios2_mode_sync) != adios2_error_none ||
        adios2_end_step(engine) != adios2_error_none) {
      return 1;
    }
  }
  return adios2_close(engine) == adios2_error_none && adios2_finalize(adios) == adios2_error_none ? 0 : 1;
}
