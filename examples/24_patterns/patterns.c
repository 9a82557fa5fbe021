/* SPDX-License-Identifier: Apache-2.0 */
/* The pattern of BT-IO and of tiled matrices: each rank has a block of columns of one array, whose rows lie one after
 * the other in the file. Written by one of four methods, with the number and the size of the system's writes.
 *
 *     mpiexec.mpich -n 4 ./patterns METHOD FOLDER STEPS ROWS COLUMNS [CB_NODES]
 *
 * METHOD is file-per-process, independent, sieving or collective. Rank 0 prints one line:
 *     seconds writes bytes-written reads
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static long long writes, written_bytes, reads;

/* MPI-IO's calls come here: a program's own definition goes before that of the C library. */
ssize_t pwrite64(int file, const void* data, size_t size, off64_t offset) {
  const ssize_t done = syscall(SYS_pwrite64, file, data, size, offset);
  ++writes;
  written_bytes += done > 0 ? done : 0;
  return done;
}

ssize_t pwrite(int file, const void* data, size_t size, off_t offset) {
  return pwrite64(file, data, size, offset);
}

ssize_t pread64(int file, void* data, size_t size, off64_t offset) {
  ++reads;
  return syscall(SYS_pread64, file, data, size, offset);
}

ssize_t pread(int file, void* data, size_t size, off_t offset) {
  return pread64(file, data, size, offset);
}

static void check(int status, const char* what) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(status, text, &length);
  fprintf(stderr, "%s: %s\n", what, text);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static long positive(const char* text) {
  char* end = NULL;
  const long number = strtol(text, &end, 10);
  if (*text == '\0' || *end != '\0' || number < 1 || number > 1 << 20) {
    fprintf(stderr, "%s is no whole number from 1 to %d\n", text, 1 << 20);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  return number;
}

int main(int count, char** words) {
  MPI_Init(&count, &words);
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (count < 6) {
    if (rank == 0) fprintf(stderr, "usage: %s METHOD FOLDER STEPS ROWS COLUMNS [CB_NODES]\n", words[0]);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  const char* method = words[1];
  const int alone = strcmp(method, "file-per-process") == 0;
  const int collective = strcmp(method, "collective") == 0;
  const int sieving = strcmp(method, "sieving") == 0;
  const int steps = (int)positive(words[3]);
  const int rows = (int)positive(words[4]);
  const int columns = (int)positive(words[5]);
  if (columns % ranks != 0 || !(alone || collective || sieving || strcmp(method, "independent") == 0)) {
    if (rank == 0) fprintf(stderr, "%s: no such method, or the ranks do not divide %d columns\n", method, columns);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  const int width = columns / ranks;
  double* mine = malloc(sizeof(double) * (size_t)rows * (size_t)width);
  if (mine == NULL) MPI_Abort(MPI_COMM_WORLD, 1);

  MPI_Info hints;
  MPI_Info_create(&hints);
  MPI_Info_set(hints, "romio_cb_write", collective ? "enable" : "disable");
  MPI_Info_set(hints, "romio_ds_write", sieving ? "enable" : "disable");
  if (count > 6) MPI_Info_set(hints, "cb_nodes", words[6]);
  /* Else each host has one aggregator at most. */
  MPI_Info_set(hints, "cb_config_list", "*:*");
  MPI_Datatype tile;
  const int whole[2] = {rows, columns};
  const int part[2] = {rows, width};
  const int start[2] = {0, rank * width};
  MPI_Type_create_subarray(2, whole, part, start, MPI_ORDER_C, MPI_DOUBLE, &tile);
  MPI_Type_commit(&tile);

  double seconds = 0.0;
  for (int step = 0; step < steps; ++step) {
    for (int row = 0; row < rows; ++row)
      for (int column = 0; column < width; ++column)
        mine[(size_t)row * width + column] = step + (double)row * columns + rank * width + column;
    char name[4096];
    if (alone)
      snprintf(name, sizeof name, "%s/step.%03d.rank.%03d", words[2], step, rank);
    else
      snprintf(name, sizeof name, "%s/step.%03d", words[2], step);
    MPI_Barrier(MPI_COMM_WORLD);
    const double began = MPI_Wtime();
    MPI_File file;
    check(MPI_File_open(alone ? MPI_COMM_SELF : MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, hints, &file),
          name);
    if (!alone) check(MPI_File_set_view(file, 0, MPI_DOUBLE, tile, "native", hints), name);
    if (collective)
      check(MPI_File_write_all(file, mine, rows * width, MPI_DOUBLE, MPI_STATUS_IGNORE), name);
    else
      check(MPI_File_write(file, mine, rows * width, MPI_DOUBLE, MPI_STATUS_IGNORE), name);
    check(MPI_File_close(&file), name);
    MPI_Barrier(MPI_COMM_WORLD);
    seconds += MPI_Wtime() - began;
  }

  long long mine_of[3] = {writes, written_bytes, reads};
  long long all[3] = {0, 0, 0};
  MPI_Reduce(mine_of, all, 3, MPI_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("%.6f %lld %lld %lld\n", seconds, all[0], all[1], all[2]);
  MPI_Type_free(&tile);
  MPI_Info_free(&hints);
  free(mine);
  MPI_Finalize();
  return 0;
}
