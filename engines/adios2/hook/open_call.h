/* SPDX-License-Identifier: Apache-2.0
 * What the preloaded hook and the plugin say to each other about one call of adios2::core::IO::Open. C, because the
 * hook is loaded into programs of every kind and links neither ADIOS2 nor the C++ library. */
#pragma once

#include <stddef.h>

/* Grows with every change of what follows: hook and plugin of different builds refuse each other. */
#define FOREBAY_OPEN_CALL_VERSION 1

/* The five-argument Open as it is called: `this`, the name (std::string), the mode, the communicator (a class that is
 * passed by its address), and a file's metadata in memory. */
typedef void* (*forebay_real_open)(void* io, const void* name, int mode, void* communicator, const char* metadata,
                                   size_t metadata_bytes);

struct forebay_open_call {
  unsigned version;
  const char* name;
  size_t name_bytes;
  int mode;
};

#define FOREBAY_CURRENT_OPEN "forebay_adios2_current_open"
#define FOREBAY_SERVE_OPEN "forebay_adios2_serve_open"
#define FOREBAY_IO_NAME "forebay_adios2_io_name"

/* Of the hook: the call that this thread is in, or null. */
typedef const struct forebay_open_call* (*forebay_current_open)(void);

/* Of the plugin: makes the IO's engine Forebay's for this one call of `real`. May throw, as `real` may. */
typedef void* (*forebay_serve_open)(const struct forebay_open_call* call, forebay_real_open real, void* io,
                                    const void* name, void* communicator, const char* metadata, size_t metadata_bytes);

/* Of the plugin: copies the IO's name, cut to `room` bytes with the final zero. */
typedef void (*forebay_io_name)(void* io, char* text, size_t room);
