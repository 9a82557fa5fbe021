/* SPDX-License-Identifier: Apache-2.0
 * mpi_io FOLDER: writes files in four ways of MPI-IO, and one by parallel HDF5, from all ranks; each rank reads what
 * the next one has written. Prints "NAME WRONG of BLOCKS" for each file. Blocks end within pages. */

#include <hdf5.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { block_bytes = 47008, blocks_of_a_rank = 16 };

static int rank, ranks;

static unsigned char value_of(int owner, int block) { return (unsigned char)(1 + owner * blocks_of_a_rank + block); }

/* How many of the next rank's blocks are not as it wrote them; they begin at `first`, and one comes each `step` bytes. */
static int wrong_in(const char *path, MPI_Offset first, MPI_Offset step) {
    static unsigned char read[block_bytes], wanted[block_bytes];
    int owner = (rank + 1) % ranks, wrong = 0;
    MPI_File file;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_open(MPI_COMM_SELF, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &file);
    for (int block = 0; block < blocks_of_a_rank; ++block) {
        memset(wanted, value_of(owner, block), block_bytes);
        memset(read, 0, block_bytes);
        MPI_File_read_at(file, first + step * block, read, block_bytes, MPI_BYTE, MPI_STATUS_IGNORE);
        wrong += memcmp(read, wanted, block_bytes) != 0;
    }
    MPI_File_close(&file);
    return wrong;
}

static void tell(const char *name, int wrong) {
    int all = 0;
    MPI_Reduce(&wrong, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("%s %d of %d\n", name, all, ranks * blocks_of_a_rank);
        fflush(stdout);
    }
}

/* mode 0: each block at its place; 1: at its place, all ranks together; 2: a strided view, all ranks together; 3: a
 * strided view, each rank alone, so that MPI-IO reads, changes and writes what lies between. */
static void by_mpi_io(const char *folder, int mode) {
    static const char *const names[] = {"independent", "collective", "view", "sieving"};
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, names[mode]);
    MPI_Offset step = (MPI_Offset)ranks * block_bytes;
    unsigned char *content = malloc((size_t)blocks_of_a_rank * block_bytes);
    for (int block = 0; block < blocks_of_a_rank; ++block) {
        memset(content + (size_t)block * block_bytes, value_of(rank, block), block_bytes);
    }
    MPI_File file;
    if (MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file) != MPI_SUCCESS) {
        fprintf(stderr, "%s cannot be opened\n", path);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (mode < 2) {
        for (int block = 0; block < blocks_of_a_rank; ++block) {
            MPI_Offset place = step * block + (MPI_Offset)rank * block_bytes;
            unsigned char *begin = content + (size_t)block * block_bytes;
            if (mode == 0) {
                MPI_File_write_at(file, place, begin, block_bytes, MPI_BYTE, MPI_STATUS_IGNORE);
            } else {
                MPI_File_write_at_all(file, place, begin, block_bytes, MPI_BYTE, MPI_STATUS_IGNORE);
            }
        }
    } else {
        MPI_Datatype strided;
        MPI_Type_vector(blocks_of_a_rank, block_bytes, ranks * block_bytes, MPI_BYTE, &strided);
        MPI_Type_commit(&strided);
        MPI_File_set_view(file, (MPI_Offset)rank * block_bytes, MPI_BYTE, strided, "native", MPI_INFO_NULL);
        int count = blocks_of_a_rank * block_bytes;
        if (mode == 2) {
            MPI_File_write_all(file, content, count, MPI_BYTE, MPI_STATUS_IGNORE);
        } else {
            MPI_File_write(file, content, count, MPI_BYTE, MPI_STATUS_IGNORE);
        }
        MPI_Type_free(&strided);
    }
    MPI_File_close(&file);
    free(content);
    tell(names[mode], wrong_in(path, (MPI_Offset)((rank + 1) % ranks) * block_bytes, step));
}

static void by_hdf5(const char *folder) {
    char path[4096];
    snprintf(path, sizeof path, "%s/hdf5", folder);
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL);
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    hsize_t extents[] = {blocks_of_a_rank, (hsize_t)ranks * block_bytes};
    hsize_t start[] = {0, (hsize_t)rank * block_bytes}, count[] = {blocks_of_a_rank, block_bytes};
    hid_t space = H5Screate_simple(2, extents, NULL), memory = H5Screate_simple(2, count, NULL);
    hid_t data = H5Dcreate2(file, "data", H5T_NATIVE_UCHAR, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    unsigned char *content = malloc((size_t)blocks_of_a_rank * block_bytes);
    for (int block = 0; block < blocks_of_a_rank; ++block) {
        memset(content + (size_t)block * block_bytes, value_of(rank, block), block_bytes);
    }
    H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL);
    H5Dwrite(data, H5T_NATIVE_UCHAR, memory, space, H5P_DEFAULT, content);
    H5Dclose(data);
    H5Fclose(file);
    MPI_Barrier(MPI_COMM_WORLD);
    file = H5Fopen(path, H5F_ACC_RDONLY, access);
    data = H5Dopen2(file, "data", H5P_DEFAULT);
    int owner = (rank + 1) % ranks, wrong = 0;
    start[1] = (hsize_t)owner * block_bytes;
    H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL);
    H5Dread(data, H5T_NATIVE_UCHAR, memory, space, H5P_DEFAULT, content);
    for (int block = 0; block < blocks_of_a_rank; ++block) {
        int bad = 0;
        for (int byte = 0; byte < block_bytes; ++byte) {
            bad |= content[(size_t)block * block_bytes + byte] != value_of(owner, block);
        }
        wrong += bad;
    }
    H5Dclose(data);
    H5Fclose(file);
    H5Sclose(space);
    H5Sclose(memory);
    H5Pclose(access);
    free(content);
    tell("hdf5", wrong);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 2) {
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    for (int mode = 0; mode < 4; ++mode) {
        by_mpi_io(argv[1], mode);
    }
    by_hdf5(argv[1]);
    MPI_Finalize();
    return 0;
}
