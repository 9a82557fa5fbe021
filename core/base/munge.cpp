// SPDX-License-Identifier: Apache-2.0
#include "base/munge.h"

#include <dlfcn.h>

#include <cstdlib>
#include <memory>

#include "base/return_error.h"

namespace forebay {
namespace {

constexpr const char* soname = "libmunge.so.2";

// As munge.h of MUNGE 0.5 has them; the library's version is in its name.
using Context = void*;
constexpr int option_socket = 8;
constexpr int option_uid_restriction = 9;
constexpr int success = 0;
constexpr int no_socket = 6;
constexpr int too_slow = 7;

struct Library {
  Context (*ctx_create)() = nullptr;
  void (*ctx_destroy)(Context) = nullptr;
  int (*ctx_set)(Context, int, ...) = nullptr;
  int (*encode)(char**, Context, const void*, int) = nullptr;
  int (*decode)(const char*, Context, void**, int*, uid_t*, gid_t*) = nullptr;
  const char* (*strerror)(int) = nullptr;
  bool complete = false;
};

const Library& library() {
  static const Library loaded = [] {
    Library library;
    void* const handle = ::dlopen(soname, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return library;
    const auto find = [handle](const char* name, auto& function) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, name));
      return function != nullptr;
    };
    library.complete = find("munge_ctx_create", library.ctx_create) && find("munge_ctx_destroy", library.ctx_destroy) &&
                       find("munge_ctx_set", library.ctx_set) && find("munge_encode", library.encode) &&
                       find("munge_decode", library.decode) && find("munge_strerror", library.strerror);
    return library;
  }();
  return loaded;
}

Error error_of(const Library& library, int code, const char* doing) {
  const bool away = code == no_socket || code == too_slow;
  return {away ? ErrorCode::disconnected : ErrorCode::permission_denied,
          std::string(doing) + ": " + library.strerror(code) + (away ? "; see whether munged runs on this node" : ""),
          {}};
}

using OwnContext = std::unique_ptr<void, void (*)(Context)>;

Result<OwnContext> make_context() {
  const Library& used = library();
  if (!used.complete) return fail(ErrorCode::unsupported, std::string("MUNGE is not installed: there is no ") + soname);
  OwnContext context(used.ctx_create(), used.ctx_destroy);
  // For a munged that listens elsewhere.
  if (const char* socket = std::getenv("FOREBAY_MUNGE_SOCKET"); socket != nullptr && *socket != '\0')
    used.ctx_set(context.get(), option_socket, socket);
  return context;
}

}  // namespace

bool has_munge() {
  return library().complete;
}

Result<std::string> munge(std::span<const std::byte> payload, uid_t reader) {
  ASSIGN_OR_RETURN(const auto context, make_context());
  const Library& used = library();
  if (const int code = used.ctx_set(context.get(), option_uid_restriction, reader); code != success)
    return fail(error_of(used, code, "MUNGE does not say who this is"));
  char* text = nullptr;
  const int code = used.encode(&text, context.get(), payload.data(), static_cast<int>(payload.size()));
  const std::unique_ptr<char, void (*)(void*)> credential(text, std::free);
  if (code != success) return fail(error_of(used, code, "MUNGE does not say who this is"));
  return std::string(credential.get());
}

Result<Unmunged> unmunge(const std::string& credential) {
  ASSIGN_OR_RETURN(const auto context, make_context());
  const Library& used = library();
  Unmunged told;
  void* bytes = nullptr;
  int length = 0;
  const int code = used.decode(credential.c_str(), context.get(), &bytes, &length, &told.uid, &told.gid);
  const std::unique_ptr<void, void (*)(void*)> payload(bytes, std::free);
  if (code != success) return fail(error_of(used, code, "MUNGE does not vouch for the client"));
  const auto* const begin = static_cast<const std::byte*>(payload.get());
  if (length > 0) told.payload.assign(begin, begin + length);
  return told;
}

}  // namespace forebay
