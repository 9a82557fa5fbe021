// SPDX-License-Identifier: Apache-2.0
// Particles as VPIC-IO writes them, eight arrays a step. Each step is written twice, to one shared HDF5 file with
// collective calls and to a stream; the order alternates, so that both meet the same load of the machine:
// mpiexec -n 2 particles RES/STREAM FOLDER STEPS PARTICLES_OF_A_RANK
#include <hdf5.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <forebay/writer.h>

template <class T>
T checked(forebay::Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

hid_t checked_id(hid_t id, const std::string& what) {
  if (id < 0) throw std::runtime_error("HDF5: " + what + " failed");
  return id;
}

// Six arrays of floating-point numbers and two of integers, each of four bytes.
constexpr std::array<const char*, 6> float_names = {"x", "y", "z", "px", "py", "pz"};
constexpr std::array<const char*, 2> integer_names = {"id1", "id2"};
constexpr std::size_t bytes_of_a_particle = 4 * (float_names.size() + integer_names.size());

struct Particles {
  std::array<std::vector<float>, float_names.size()> floats;
  std::array<std::vector<std::int32_t>, integer_names.size()> integers;

  void move(std::uint64_t first, std::size_t count, int step) {
    for (std::size_t array = 0; array < floats.size(); ++array) {
      floats[array].resize(count);
      for (std::size_t place = 0; place < count; ++place) {
        floats[array][place] = static_cast<float>((first + place) % 1000) + 1000.0F * static_cast<float>(array) +
                               0.125F * static_cast<float>(step);
      }
    }
    for (std::size_t array = 0; array < integers.size(); ++array) {
      integers[array].resize(count);
      for (std::size_t place = 0; place < count; ++place) {
        integers[array][place] = static_cast<std::int32_t>((first + place) * (array + 1)) + step;
      }
    }
  }
};

struct Extent {
  std::uint64_t all = 0, first = 0, count = 0;
};

void write_stream(forebay::Writer& writer, const Particles& particles, const Extent& extent) {
  forebay::BlockSpec block;
  block.shape = {&extent.all, 1};
  block.start = {&extent.first, 1};
  block.count = {&extent.count, 1};
  checked(writer.begin_step());
  for (std::size_t array = 0; array < float_names.size(); ++array) {
    block.name = float_names[array];
    block.type = forebay::DataType::float32;
    checked(writer.put(block, particles.floats[array].data()));
  }
  for (std::size_t array = 0; array < integer_names.size(); ++array) {
    block.name = integer_names[array];
    block.type = forebay::DataType::int32;
    checked(writer.put(block, particles.integers[array].data()));
  }
  checked(writer.end_step());
}

void write_array(hid_t file, const char* name, hid_t type, const void* data, const Extent& extent) {
  const hsize_t all = extent.all, first = extent.first, count = extent.count;
  const hid_t space = checked_id(H5Screate_simple(1, &all, nullptr), "H5Screate_simple");
  const hid_t memory = checked_id(H5Screate_simple(1, &count, nullptr), "H5Screate_simple");
  const hid_t set =
      checked_id(H5Dcreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), "H5Dcreate2");
  const hid_t transfer = checked_id(H5Pcreate(H5P_DATASET_XFER), "H5Pcreate");
  checked_id(H5Pset_dxpl_mpio(transfer, H5FD_MPIO_COLLECTIVE), "H5Pset_dxpl_mpio");
  checked_id(H5Sselect_hyperslab(space, H5S_SELECT_SET, &first, nullptr, &count, nullptr), "H5Sselect_hyperslab");
  checked_id(H5Dwrite(set, type, memory, space, transfer, data), "H5Dwrite");
  checked_id(H5Pclose(transfer), "H5Pclose");
  checked_id(H5Dclose(set), "H5Dclose");
  checked_id(H5Sclose(memory), "H5Sclose");
  checked_id(H5Sclose(space), "H5Sclose");
}

// The file gets its name when it is whole: who follows the folder never sees half of one.
void write_file(const std::string& path, const Particles& particles, const Extent& extent, int rank) {
  const std::string temporary = path + ".temp";
  const hid_t access = checked_id(H5Pcreate(H5P_FILE_ACCESS), "H5Pcreate");
  checked_id(H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL), "H5Pset_fapl_mpio");
  const hid_t file =
      checked_id(H5Fcreate(temporary.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access), "H5Fcreate of " + temporary);
  for (std::size_t array = 0; array < float_names.size(); ++array) {
    write_array(file, float_names[array], H5T_NATIVE_FLOAT, particles.floats[array].data(), extent);
  }
  for (std::size_t array = 0; array < integer_names.size(); ++array) {
    write_array(file, integer_names[array], H5T_NATIVE_INT32, particles.integers[array].data(), extent);
  }
  checked_id(H5Fclose(file), "H5Fclose");
  checked_id(H5Pclose(access), "H5Pclose");
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0 && std::rename(temporary.c_str(), path.c_str()) != 0) {
    throw std::runtime_error(temporary + " cannot be renamed");
  }
}

// Seconds until the last rank is done.
template <class Write>
double timed(const Write& write) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double began = MPI_Wtime();
  write();
  MPI_Barrier(MPI_COMM_WORLD);
  return MPI_Wtime() - began;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

void run(char** arguments, int rank, int ranks) {
  const std::string folder = arguments[2];
  const int steps = std::stoi(arguments[3]);
  Extent extent;
  extent.count = std::stoull(arguments[4]);
  extent.first = static_cast<std::uint64_t>(rank) * extent.count;
  extent.all = static_cast<std::uint64_t>(ranks) * extent.count;

  forebay::WriterOptions options;
  options.rank = static_cast<std::uint32_t>(rank);
  options.ranks = static_cast<std::uint32_t>(ranks);
  options.ranks_source = "MPI";
  options.group = forebay::launcher_group();
  const auto writer = checked(forebay::Writer::open(checked(forebay::parse_address(arguments[1])), options));

  Particles particles;
  std::vector<double> stream_seconds, file_seconds;
  const double megabytes = static_cast<double>(extent.all * bytes_of_a_particle) / 1e6;
  for (int step = 0; step < steps; ++step) {
    particles.move(extent.first, extent.count, step);
    char name[32];
    std::snprintf(name, sizeof name, "/particles.%05d.h5", step);
    const auto to_stream = [&] { stream_seconds.push_back(timed([&] { write_stream(*writer, particles, extent); })); };
    if (step % 2 == 0) to_stream();
    file_seconds.push_back(timed([&] { write_file(folder + name, particles, extent, rank); }));
    if (step % 2 != 0) to_stream();
    if (rank == 0) {
      std::printf("step %d: %.0f MB; stream %.0f MB/s, shared HDF5 %.0f MB/s\n", step, megabytes,
                  megabytes / stream_seconds.back(), megabytes / file_seconds.back());
      std::fflush(stdout);
    }
  }
  checked(writer->close());
  if (rank == 0) {
    std::printf("median: stream %.0f MB/s, shared HDF5 %.0f MB/s; the stream is %.2f times as fast\n",
                megabytes / median(stream_seconds), megabytes / median(file_seconds),
                median(file_seconds) / median(stream_seconds));
  }
}

int main(int argument_count, char** arguments) {
  MPI_Init(&argument_count, &arguments);
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  try {
    if (argument_count != 5) throw std::runtime_error("particles RES/STREAM FOLDER STEPS PARTICLES_OF_A_RANK");
    run(arguments, rank, ranks);
  } catch (const std::exception& failure) {
    std::cerr << "particles: rank " << rank << ": " << failure.what() << '\n';
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return 0;
}
