# SPDX-License-Identifier: Apache-2.0
# Compiler settings shared by every target: language level, optimisation, warnings, visibility, sanitizers.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# Every layer ends up in a shared object as well (the Python module, the ADIOS2 plugin). Only what those two export on
# purpose is visible, so that both can be loaded into one process with their own copies of the client.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
add_link_options(LINKER:--as-needed)

set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")
# The developer build keeps assertions: CMake's default for RelWithDebInfo would switch them off. -g1 knows functions and
# lines, and compiles in two thirds of the time of -g, with which a debugger shows variables too.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")

add_compile_options(-Wall -Wextra)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  # The sources are free of GCC 12's warnings; what a newer compiler adds stops nobody's build.
  set(CMAKE_COMPILE_WARNING_AS_ERROR OFF)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 reports overlapping copies inside std::string where there are none (GCC bug 105651).
  add_compile_options(-Wno-restrict)
endif()

if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # A unity build includes the sources, and GCC takes their unnamed namespaces for those of headers. In large sources it
  # loses track of what std::optional guards (GCC bug 105562).
  add_compile_options(-Wno-subobject-linkage -Wno-maybe-uninitialized)
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # std::stable_sort of libstdc++ 12 uses what libstdc++ itself calls deprecated.
  add_compile_options(-Wno-deprecated-declarations)
endif()

if(FOREBAY_SANITIZE)
  # The check of dynamic types needs two free descriptors to find out whether memory can be read. Where tests take all
  # descriptors away it calls sound objects invalid.
  add_compile_options(-fsanitize=${FOREBAY_SANITIZE} -fno-sanitize=vptr -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${FOREBAY_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # With a sanitizer GCC loses track of what std::optional guards (GCC bug 105562).
    add_compile_options(-Wno-maybe-uninitialized)
  endif()
endif()

if(NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(CCACHE_PROGRAM ccache)
  if(CCACHE_PROGRAM)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${CCACHE_PROGRAM}")
  endif()
endif()
