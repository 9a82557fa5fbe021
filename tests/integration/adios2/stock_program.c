/* SPDX-License-Identifier: Apache-2.0
 * A program in C that knows nothing of Forebay: writes three steps to the file that is named, or reads it and prints
 * what it finds. It links ADIOS2's C interface alone. Run by test_adios2_run.py. */
#include <adios2_c.h>
#include <stdio.h>
#include <string.h>

static int write_steps(adios2_io* io, const char* name) {
  adios2_variable* number =
      adios2_define_variable(io, "number", adios2_type_int32_t, 0, NULL, NULL, NULL, adios2_constant_dims_true);
  adios2_engine* engine = adios2_open(io, name, adios2_mode_write);
  if (engine == NULL) return 1;
  for (int step = 0; step < 3; ++step) {
    adios2_step_status status;
    const int value = 10 + step;
    if (adios2_begin_step(engine, adios2_step_mode_append, -1.0f, &status) != adios2_error_none) return 1;
    if (adios2_put(engine, number, &value, adios2_mode_sync) != adios2_error_none) return 1;
    if (adios2_end_step(engine) != adios2_error_none) return 1;
  }
  return adios2_close(engine) != adios2_error_none;
}

static int read_steps(adios2_io* io, const char* name) {
  adios2_engine* engine = adios2_open(io, name, adios2_mode_read);
  if (engine == NULL) return 1;
  for (;;) {
    adios2_step_status status;
    int value = 0;
    if (adios2_begin_step(engine, adios2_step_mode_read, -1.0f, &status) != adios2_error_none) return 1;
    if (status != adios2_step_status_ok) break;
    if (adios2_get(engine, adios2_inquire_variable(io, "number"), &value, adios2_mode_sync) != adios2_error_none)
      return 1;
    printf("%d\n", value);
    if (adios2_end_step(engine) != adios2_error_none) return 1;
  }
  return adios2_close(engine) != adios2_error_none;
}

int main(int argument_count, char** arguments) {
  if (argument_count != 3) return 2;
  adios2_adios* adios = adios2_init_serial();
  adios2_io* io = adios2_declare_io(adios, "numbers");
  adios2_set_engine(io, "BP5");
  const int status = strcmp(arguments[1], "write") == 0 ? write_steps(io, arguments[2]) : read_steps(io, arguments[2]);
  adios2_finalize(adios);
  return status;
}
