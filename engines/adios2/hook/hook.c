/* SPDX-License-Identifier: Apache-2.0
 * Preloaded by `forebay run` into programs that know nothing of Forebay: stands in front of adios2::core::IO::Open and
 * has the plugin serve the Opens that the user asked for, with the name, mode and communicator that ADIOS2's plugin
 * interface withholds. All other Opens pass untouched.
 *
 * It is loaded into launchers and shells too. So it links nothing but the C library, does nothing before an Open is
 * called, and changes nothing but this one function. It is C, because a C++ library of the wrong age in a preloaded
 * object would keep the program's own from being loaded; exceptions pass through its frames (-fexceptions). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../known_versions.h"
#include "open_call.h"

#define OPEN_SYMBOL \
  "_ZN6adios24core2IO4OpenERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEENS_4ModeENS_6helper4CommEPKcm"
#define VISIBLE __attribute__((visibility("default")))

/* The beginning of libstdc++'s std::string, since its ABI of 2011. */
struct string_head {
  const char* data;
  size_t bytes;
};

VISIBLE void* forebay_hooked_open(void* io, const struct string_head* name, int mode, void* communicator,
                                  const char* metadata, size_t metadata_bytes) __asm__(OPEN_SYMBOL);
VISIBLE const struct forebay_open_call* forebay_adios2_current_open(void);

static __thread const struct forebay_open_call* current_open;

const struct forebay_open_call* forebay_adios2_current_open(void) {
  return current_open;
}

/* Throws std::runtime_error, whose parts are looked up in the C++ library of the program. */
static void fail(const char* format, ...) {
  char text[2048];
  va_list values;
  va_start(values, format);
  vsnprintf(text, sizeof text, format, values);
  va_end(values);
  /* Not every program shows what it catches. */
  fprintf(stderr, "%s\n", text);
  void* library = dlopen("libstdc++.so.6", RTLD_NOLOAD | RTLD_LAZY);
  if (library != NULL) {
    void* (*allocate)(size_t) = (void* (*)(size_t))dlsym(library, "__cxa_allocate_exception");
    void (*construct)(void*, const char*) = (void (*)(void*, const char*))dlsym(library, "_ZNSt13runtime_errorC1EPKc");
    void (*destroy)(void*) = (void (*)(void*))dlsym(library, "_ZNSt13runtime_errorD1Ev");
    void (*throw_it)(void*, void*, void (*)(void*)) =
        (void (*)(void*, void*, void (*)(void*)))dlsym(library, "__cxa_throw");
    void* type = dlsym(library, "_ZTISt13runtime_error");
    if (allocate != NULL && construct != NULL && destroy != NULL && throw_it != NULL && type != NULL) {
      void* exception = allocate(2 * sizeof(void*));
      construct(exception, text);
      throw_it(exception, type, destroy);
    }
  }
  abort();
}

/* Tells `forebay run` what happened: one line for each kind of event. */
static void report(const char* event) {
  const char* path = getenv("FOREBAY_RUN_REPORT");
  if (path == NULL) return;
  const int file = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
  if (file < 0) return;
  char line[32];
  const int bytes = snprintf(line, sizeof line, "%s\n", event);
  const ssize_t written = write(file, line, (size_t)bytes);
  (void)written;
  close(file);
}

/* Which of the patterns, one a line in the variable, is the first that fits; -1: none. */
static int matching_pattern(const char* variable, const char* name, const char* other_name) {
  const char* patterns = getenv(variable);
  char pattern[PATH_MAX];
  for (int index = 0; patterns != NULL && *patterns != '\0'; ++index) {
    const size_t length = strcspn(patterns, "\n");
    if (length > 0 && length < sizeof pattern) {
      memcpy(pattern, patterns, length);
      pattern[length] = '\0';
      if (fnmatch(pattern, name, 0) == 0 || (other_name != NULL && fnmatch(pattern, other_name, 0) == 0)) return index;
    }
    patterns += length + (patterns[length] == '\n');
  }
  return -1;
}

/* The last folder or file of a path, without slashes behind it. */
static void base_name(const char* path, char* base, size_t room) {
  size_t end = strlen(path);
  while (end > 0 && path[end - 1] == '/') --end;
  size_t begin = end;
  while (begin > 0 && path[begin - 1] != '/') --begin;
  snprintf(base, room, "%.*s", (int)(end - begin), path + begin);
}

/* The object that an address lies in, without loading it anew; null if it cannot be had. */
static void* object_of(const void* address, Dl_info* info) {
  if (dladdr(address, info) == 0 || info->dli_fname == NULL) return NULL;
  return dlopen(info->dli_fname, RTLD_NOLOAD | RTLD_LAZY);
}

/* The Open that would have been called: the one that the caller's own libraries have. Python loads ADIOS2 where the
 * next symbol (RTLD_NEXT) is not looked for, so the caller is asked first. */
static forebay_real_open find_real(const void* caller) {
  Dl_info info;
  void* object = object_of(caller, &info);
  void* found = object == NULL ? NULL : dlsym(object, OPEN_SYMBOL);
  if (object != NULL) dlclose(object);
  if (found == NULL || found == (void*)forebay_hooked_open) found = dlsym(RTLD_NEXT, OPEN_SYMBOL);
  return found == (void*)forebay_hooked_open ? NULL : (forebay_real_open)found;
}

/* A program in C has loaded the core alone; the plugin needs the C++ face, which lies beside it. */
static void load_cxx_beside(const char* core_path) {
  char folder[PATH_MAX], path[PATH_MAX + 64];
  const char* suffix = strstr(core_path, ".so");
  if (suffix == NULL || strlen(core_path) >= sizeof folder) return;
  char version[32] = ".so.2.12";
  /* libadios2_core.so.2.12.1 and libadios2_core.so.2.12 both mean libadios2_cxx.so.2.12. */
  unsigned major = 0, minor = 0;
  if (sscanf(suffix, ".so.%u.%u", &major, &minor) == 2) snprintf(version, sizeof version, ".so.%u.%u", major, minor);
  strcpy(folder, core_path);
  snprintf(path, sizeof path, "%s/libadios2_cxx%s", dirname(folder), version);
  /* Whether this was needed, loading the plugin tells. */
  (void)dlopen(path, RTLD_NOW | RTLD_GLOBAL);
}

static void* plugin_symbol(const char* core_path, const char* symbol, const char* name) {
  const char* path = getenv("FOREBAY_RUN_PLUGIN");
  if (path == NULL || *path == '\0')
    fail("Forebay: %s cannot become a stream: FOREBAY_RUN_PLUGIN names no plugin; start the program with `forebay run`", name);
  void* plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (plugin == NULL) {
    load_cxx_beside(core_path);
    plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  }
  if (plugin == NULL) {
    fail(
        "Forebay: %s cannot become a stream: the plugin cannot be loaded: %s. It must be built for this ADIOS2; set "
        "FOREBAY_ADIOS2_LIBRARY to such a build",
        name, dlerror());
  }
  void* function = dlsym(plugin, symbol);
  if (function == NULL)
    fail("Forebay: %s cannot become a stream: the plugin %s and `forebay run` come from different versions of Forebay",
         name, path);
  return function;
}

/* Stops with the reason where the ADIOS2 that was found is not one that this was tried with. */
static void check_version(forebay_real_open real, const char* name, Dl_info* core) {
  void* object = object_of((const void*)real, core);
  const char* version = object == NULL ? NULL : (const char*)dlsym(object, "adios2_version_str");
  if (object != NULL) dlclose(object);
  if (version != NULL && forebay_knows_adios2(version)) return;
  fail(
      "Forebay: %s cannot become a stream: forebay run does not know this ADIOS2 (%s, version %s). Use ADIOS2 2.12.1, or "
      "set the engine in XML (docs/adios2.md)",
      name, core->dli_fname == NULL ? "unknown" : core->dli_fname, version == NULL ? "unknown" : version);
}

/* Whether this Open was asked for, by its name or by that of its IO. */
static int is_asked_for(forebay_real_open real, void* io, const char* name) {
  char base[NAME_MAX + 1], event[32];
  base_name(name, base, sizeof base);
  int index = matching_pattern("FOREBAY_RUN_ENGINE_FOR", name, base);
  if (index >= 0) {
    snprintf(event, sizeof event, "name %d", index);
    report(event);
    return 1;
  }
  const char* patterns = getenv("FOREBAY_RUN_ENGINE_FOR_IO");
  if (patterns == NULL || *patterns == '\0') return 0;
  Dl_info core;
  check_version(real, name, &core);
  char io_name[1024];
  ((forebay_io_name)plugin_symbol(core.dli_fname, FOREBAY_IO_NAME, name))(io, io_name, sizeof io_name);
  index = matching_pattern("FOREBAY_RUN_ENGINE_FOR_IO", io_name, NULL);
  if (index < 0) return 0;
  snprintf(event, sizeof event, "io %d", index);
  report(event);
  return 1;
}

void* forebay_hooked_open(void* io, const struct string_head* name, int mode, void* communicator, const char* metadata,
                          size_t metadata_bytes) {
  const forebay_real_open real = find_real(__builtin_return_address(0));
  if (real == NULL) fail("Forebay: the library that forebay run preloads cannot find the IO::Open of this ADIOS2");
  report("open");
  const struct forebay_open_call call = {FOREBAY_OPEN_CALL_VERSION, name->data, name->bytes, mode};
  const struct forebay_open_call* const outer = current_open;
  void* engine = NULL;
  /* Where an exception leaves this frame, the pointer stays; it is looked at inside an Open only, which sets it. */
  if (is_asked_for(real, io, name->data)) {
    Dl_info core;
    check_version(real, name->data, &core);
    const forebay_serve_open serve = (forebay_serve_open)plugin_symbol(core.dli_fname, FOREBAY_SERVE_OPEN, name->data);
    current_open = &call;
    engine = serve(&call, real, io, name, communicator, metadata, metadata_bytes);
  } else {
    current_open = &call;
    engine = real(io, name, mode, communicator, metadata, metadata_bytes);
  }
  current_open = outer;
  return engine;
}
