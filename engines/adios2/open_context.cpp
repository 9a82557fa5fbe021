// SPDX-License-Identifier: Apache-2.0
// The plugin's side of hook/hook.c. Serves one Open: the IO's engine and parameters are ours while ADIOS2's own Open
// runs, and the program's again afterwards.
#include "open_context.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "core_engine.h"
#include "hook/open_call.h"
#include "member_access.h"

// Exported by ADIOS2's core, but declared in headers only that it does not install. `this` is the communicator.
extern "C" {
int forebay_comm_rank(const void* communicator) __asm__("_ZNK6adios26helper4Comm4RankEv");
int forebay_comm_size(const void* communicator) __asm__("_ZNK6adios26helper4Comm4SizeEv");
bool forebay_comm_is_mpi(const void* communicator) __asm__("_ZNK6adios26helper4Comm5IsMPIEv");
}

// The template's own name and scope give the symbol that the core exports for std::string.
namespace adios2::helper {
class Comm {
 public:
  template <class T>
  T BroadcastValue(const T& value, int root = 0) const;
};
}  // namespace adios2::helper

namespace forebay::engine {
namespace {

struct CoreIo {
  using Type = adios2::core::IO* adios2::IO::*;
  friend Type member_pointer(CoreIo);
};
template struct MemberAccess<CoreIo, &adios2::IO::m_IO>;

adios2::IO public_io(void* core) {
  adios2::IO io;
  io.*member_pointer(CoreIo{}) = static_cast<adios2::core::IO*>(core);
  return io;
}

thread_local const OpenContext* served_open = nullptr;

// How ADIOS2 finds this library again. It puts each folder of ADIOS2_PLUGIN_PATH, if that is set, before the name.
std::string plugin_library_parameter() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&current_open), &info) == 0 || info.dli_fname == nullptr)
    throw std::runtime_error("Forebay: the plugin cannot find its own library");
  const std::filesystem::path library = std::filesystem::absolute(info.dli_fname);
  const char* folders = std::getenv("ADIOS2_PLUGIN_PATH");
  if (folders == nullptr || *folders == '\0') return library.string();
  for (std::string_view left = folders; !left.empty();) {
    const std::string_view folder = left.substr(0, left.find(':'));
    left.remove_prefix(std::min(folder.size() + 1, left.size()));
    std::error_code ignored;
    if (std::filesystem::equivalent(folder, library.parent_path(), ignored)) return library.filename().string();
  }
  throw std::runtime_error("Forebay: ADIOS2_PLUGIN_PATH=" + std::string(folders) +
                           " does not contain the plugin's folder " + library.parent_path().string() +
                           "; start the program with `forebay run`");
}

// Makes the IO ours, and the program's again when the scope ends, however it does.
class BorrowedIo {
 public:
  explicit BorrowedIo(adios2::IO io) : io_(io), engine_type_(io.EngineType()), parameters_(io.Parameters()) {
    const std::string library = plugin_library_parameter();
    try {
      io_.SetEngine("Plugin");
      io_.SetParameter("PluginName", "forebay");
      io_.SetParameter("PluginLibrary", library);
    } catch (...) {
      restore();
      throw;
    }
  }
  ~BorrowedIo() { restore(); }
  BorrowedIo(const BorrowedIo&) = delete;
  BorrowedIo& operator=(const BorrowedIo&) = delete;

 private:
  // The engine first: choosing some types sets parameters.
  void restore() {
    io_.SetEngine(engine_type_);
    io_.ClearParameters();
    io_.SetParameters(parameters_);
  }

  adios2::IO io_;
  const std::string engine_type_;
  const adios2::Params parameters_;
};

class ServedOpen {
 public:
  explicit ServedOpen(const OpenContext& open) : outer_(std::exchange(served_open, &open)) {}
  ~ServedOpen() { served_open = outer_; }
  ServedOpen(const ServedOpen&) = delete;
  ServedOpen& operator=(const ServedOpen&) = delete;

 private:
  const OpenContext* outer_;
};

bool is_writing(adios2::Mode mode) {
  return mode == adios2::Mode::Write || mode == adios2::Mode::Append;
}

// Before ADIOS2's own Open takes the communicator away. All its ranks are here: Open is collective.
std::optional<LauncherRank> rank_in(const void* communicator, adios2::Mode mode) {
  if (communicator == nullptr || !forebay_comm_is_mpi(communicator)) return std::nullopt;
  LauncherRank found;
  found.rank = static_cast<std::uint32_t>(forebay_comm_rank(communicator));
  found.ranks = static_cast<std::uint32_t>(forebay_comm_size(communicator));
  found.source = "the program's MPI communicator";
  // A rank that reads alone needs none.
  if (is_writing(mode) || found.ranks > 1) {
    std::random_device random;
    const std::string id = "mpi-" + std::to_string(random()) + "-" + std::to_string(random());
    const auto* comm = static_cast<const adios2::helper::Comm*>(communicator);
    found.group = comm->BroadcastValue(id, 0);
  }
  return found;
}

}  // namespace

std::optional<OpenContext> current_open() {
  if (served_open != nullptr) return *served_open;
  // An IO that is configured for the plugin by itself, in a program with the hook.
  static const auto hook = reinterpret_cast<forebay_current_open>(dlsym(RTLD_DEFAULT, FOREBAY_CURRENT_OPEN));
  const forebay_open_call* call = hook == nullptr ? nullptr : hook();
  if (call == nullptr || call->version != FOREBAY_OPEN_CALL_VERSION) return std::nullopt;
  return OpenContext{{call->name, call->name_bytes}, static_cast<adios2::Mode>(call->mode), std::nullopt, {}};
}

}  // namespace forebay::engine

extern "C" __attribute__((visibility("default"))) void forebay_adios2_io_name(void* io, char* text, std::size_t room) {
  const std::string name = forebay::engine::public_io(io).Name();
  const std::size_t bytes = std::min(name.size(), room - 1);
  std::memcpy(text, name.data(), bytes);
  text[bytes] = '\0';
}

extern "C" __attribute__((visibility("default"))) void* forebay_adios2_serve_open(const forebay_open_call* call,
                                                                                  forebay_real_open real, void* io,
                                                                                  const void* name, void* communicator,
                                                                                  const char* metadata,
                                                                                  std::size_t metadata_bytes) {
  using namespace forebay::engine;
  if (call->version != FOREBAY_OPEN_CALL_VERSION) {
    throw std::runtime_error(
        "Forebay: the plugin and `forebay run` come from different versions of Forebay; use both of the same one");
  }
  OpenContext open{{call->name, call->name_bytes}, static_cast<adios2::Mode>(call->mode), std::nullopt, {}};
  if (metadata != nullptr) {
    throw std::invalid_argument("Forebay: " + open.name +
                                " cannot become a stream: the program opens a file's metadata in memory");
  }
  open.communicator = rank_in(communicator, open.mode);
  open.engine = public_io(io).EngineType();
  const BorrowedIo ours(public_io(io));
  const ServedOpen context(open);
  void* const engine = real(io, name, call->mode, communicator, metadata, metadata_bytes);
  attach_to_core(engine);
  return engine;
}
