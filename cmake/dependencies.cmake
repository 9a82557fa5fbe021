# SPDX-License-Identifier: Apache-2.0
# Finds the third-party libraries. Everything is header-only or static, except ISA-L, which is bundled, and ADIOS2, which
# the process that loads the plugin has already loaded.
find_package(Threads REQUIRED)
find_package(tl-expected REQUIRED)
find_package(fmt REQUIRED)
find_package(FlatBuffers REQUIRED)
find_package(CLI11 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(ISAL REQUIRED IMPORTED_TARGET libisal)

find_path(TOMLPLUSPLUS_INCLUDE_DIR toml++/toml.h REQUIRED)
add_library(forebay_tomlplusplus INTERFACE)
target_include_directories(forebay_tomlplusplus SYSTEM INTERFACE "${TOMLPLUSPLUS_INCLUDE_DIR}")

# Static, so that neither the wheel nor a program that loads the plugin needs the shared library.
find_path(SODIUM_INCLUDE_DIR sodium.h REQUIRED)
find_library(SODIUM_LIBRARY libsodium.a REQUIRED)
add_library(forebay_sodium INTERFACE)
target_include_directories(forebay_sodium SYSTEM INTERFACE "${SODIUM_INCLUDE_DIR}")
target_link_libraries(forebay_sodium INTERFACE "${SODIUM_LIBRARY}")
# Its symbols are nobody else's: a program may have another copy. Without this it does not link into a shared object.
target_link_options(forebay_sodium INTERFACE LINKER:--exclude-libs,libsodium.a)

# Of libfabric only the headers: the library is loaded at run time. Without them there is no data path by libfabric.
find_path(LIBFABRIC_INCLUDE_DIR rdma/fi_rma.h)
add_library(forebay_libfabric_headers INTERFACE)
if(LIBFABRIC_INCLUDE_DIR)
  target_include_directories(forebay_libfabric_headers SYSTEM INTERFACE "${LIBFABRIC_INCLUDE_DIR}")
else()
  message(STATUS "libfabric's headers were not found (Debian: libfabric-dev): FOREBAY_TRANSPORT=fabric will be refused")
endif()

# Distributions' spdlog targets pull in the shared libfmt; ours stays header-only.
find_path(SPDLOG_INCLUDE_DIR spdlog/spdlog.h REQUIRED)
add_library(forebay_spdlog INTERFACE)
target_include_directories(forebay_spdlog SYSTEM INTERFACE "${SPDLOG_INCLUDE_DIR}")
target_compile_definitions(forebay_spdlog INTERFACE SPDLOG_FMT_EXTERNAL)
target_link_libraries(forebay_spdlog INTERFACE fmt::fmt-header-only Threads::Threads)

# Where ADIOS2 is named, only the Python module needs a Python.
set(find_adios2_wheel OFF)
if((FOREBAY_BUILD_ADIOS2 OR FOREBAY_BUILD_EXAMPLES) AND NOT ADIOS2_DIR AND NOT DEFINED ENV{ADIOS2_DIR})
  set(find_adios2_wheel ON)
endif()
if(FOREBAY_BUILD_PYTHON OR find_adios2_wheel)
  # The project's own environment, unless another Python is active or named.
  if(NOT DEFINED Python_EXECUTABLE AND NOT DEFINED ENV{VIRTUAL_ENV} AND EXISTS "${PROJECT_SOURCE_DIR}/.venv/bin/python")
    set(Python_EXECUTABLE "${PROJECT_SOURCE_DIR}/.venv/bin/python")
  endif()
  set(Python_FIND_VIRTUALENV FIRST)
  if(FOREBAY_BUILD_PYTHON)
    find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)
  else()
    find_package(Python 3.11 REQUIRED COMPONENTS Interpreter)
  endif()
endif()

if(FOREBAY_BUILD_PYTHON)
  execute_process(COMMAND "${Python_EXECUTABLE}" -m nanobind --cmake_dir
    OUTPUT_VARIABLE nanobind_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "nanobind is not installed for ${Python_EXECUTABLE}. Run ./run build once (it makes .venv), "
      "or pip install nanobind, or configure with -DFOREBAY_BUILD_PYTHON=OFF.")
  endif()
  find_package(nanobind CONFIG REQUIRED)
endif()

if(FOREBAY_BUILD_ADIOS2 OR FOREBAY_BUILD_EXAMPLES)
  if(find_adios2_wheel)
    # The adios2 wheel carries its own CMake package; importlib finds it without loading the library.
    execute_process(COMMAND "${Python_EXECUTABLE}" -c
      "import importlib.util as u, pathlib as p; print(p.Path(u.find_spec('adios2').origin).parent / 'cmake' / 'adios2')"
      OUTPUT_VARIABLE wheel_dir OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(wheel_dir AND EXISTS "${wheel_dir}")
      set(ADIOS2_DIR "${wheel_dir}" CACHE PATH "Where ADIOS2's CMake package lies" FORCE)
    endif()
  endif()
  # Without COMPONENTS an MPI build of ADIOS2 would ask for MPI as well.
  find_package(ADIOS2 2.12 COMPONENTS C CXX)
  if(NOT ADIOS2_FOUND)
    message(FATAL_ERROR "ADIOS2 2.12 was not found (ADIOS2_DIR: '${ADIOS2_DIR}', Python: '${Python_EXECUTABLE}'). Run ./run build once (it makes .venv), or "
      "pip install 'adios2>=2.12.1,<2.13', or set ADIOS2_DIR, or configure with -DFOREBAY_BUILD_ADIOS2=OFF "
      "-DFOREBAY_BUILD_EXAMPLES=OFF.")
  endif()
  # The wheel's libraries need others that lie in adios2.libs; the linker looks for them when it makes an executable.
  get_filename_component(bundled_dir "${ADIOS2_DIR}/../../../adios2.libs" ABSOLUTE)
  if(IS_DIRECTORY "${bundled_dir}")
    target_link_options(adios2::cxx INTERFACE "LINKER:-rpath-link,${bundled_dir}")
    target_link_options(adios2::c INTERFACE "LINKER:-rpath-link,${bundled_dir}")
  endif()
endif()
