// SPDX-License-Identifier: Apache-2.0
#if __has_include(<rdma/fabric.h>)

#include "fabric/libfabric_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <optional>
#include <vector>

#include "base/return_error.h"
#include "fabric/libfabric.h"

namespace forebay::fabric {
namespace {

constexpr const char* soname = "libfabric.so.1";

/// Where the Python package `mpich` of the environment that Forebay is installed in, or that is active, has it.
std::vector<std::string> wheel_paths() {
  std::vector<std::string> paths;
  const auto add = [&paths](const std::filesystem::path& environment) {
    const auto path = environment / "lib" / "mpich" / soname;
    std::error_code error;
    if (std::filesystem::exists(path, error)) paths.push_back(path.string());
  };
  Dl_info own{};
  if (::dladdr(reinterpret_cast<const void*>(&wheel_paths), &own) != 0 && own.dli_fname != nullptr) {
    std::error_code error;
    for (auto folder = std::filesystem::absolute(own.dli_fname, error).parent_path();
         !error && folder.has_relative_path(); folder = folder.parent_path()) {
      add(folder);
    }
  }
  if (const char* active = std::getenv("VIRTUAL_ENV"); active != nullptr && *active != '\0') add(active);
  return paths;
}

template <class Function>
bool find(void* handle, const char* name, const char* version, Function& function) {
  function = reinterpret_cast<Function>(::dlvsym(handle, name, version));
  return function != nullptr;
}

Result<LibfabricLibrary> functions_of(void* handle, const std::string& path) {
  LibfabricLibrary library;
  decltype(&::fi_version) version = nullptr;
  const bool complete = find(handle, "fi_getinfo", "FABRIC_1.3", library.getinfo) &&
                        find(handle, "fi_freeinfo", "FABRIC_1.3", library.freeinfo) &&
                        find(handle, "fi_dupinfo", "FABRIC_1.3", library.dupinfo) &&
                        find(handle, "fi_fabric", "FABRIC_1.1", library.fabric) &&
                        find(handle, "fi_strerror", "FABRIC_1.0", library.strerror) &&
                        find(handle, "fi_version", "FABRIC_1.0", version);
  if (!complete || version() < FI_VERSION(1, 14))
    return fail(ErrorCode::unsupported, "libfabric is older than 1.14, or no libfabric", path);
  library.version = version();
  library.path = path;
  return library;
}

std::string reason() {
  const char* text = ::dlerror();
  return text == nullptr ? "unknown" : text;
}

Result<LibfabricLibrary> load_any() {
  constexpr int mode = RTLD_NOW | RTLD_LOCAL;
  // A second copy beside that of an MPI would have its own connections, and maybe no right to the device.
  if (void* handle = ::dlopen(soname, mode | RTLD_NOLOAD); handle != nullptr)
    return functions_of(handle, "the process's libfabric");
  if (const char* named = std::getenv("FOREBAY_LIBFABRIC"); named != nullptr && *named != '\0') {
    if (void* handle = ::dlopen(named, mode); handle != nullptr) return functions_of(handle, named);
    return fail(ErrorCode::unsupported, "FOREBAY_LIBFABRIC names no library that can be loaded: " + reason());
  }
  if (void* handle = ::dlopen(soname, mode); handle != nullptr) return functions_of(handle, soname);
  std::string tried = reason();
  for (const std::string& path : wheel_paths()) {
    if (void* handle = ::dlopen(path.c_str(), mode); handle != nullptr) return functions_of(handle, path);
    tried = reason();
  }
  return fail(ErrorCode::unsupported,
              "there is no libfabric, which FOREBAY_TRANSPORT=fabric needs; install it (Debian: libfabric1; or pip "
              "install mpich), or name the library with FOREBAY_LIBFABRIC: " +
                  tried);
}

}  // namespace

Result<const LibfabricLibrary*> LibfabricLibrary::load() {
  static std::mutex mutex;
  static std::optional<LibfabricLibrary> loaded;  // guarded by mutex
  const std::lock_guard lock(mutex);
  if (!loaded) {
    ASSIGN_OR_RETURN(loaded, load_any());
  }
  return &*loaded;
}

}  // namespace forebay::fabric

#endif
