// SPDX-License-Identifier: Apache-2.0
#include "client/server_place.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include <forebay/address.h>

namespace forebay::client {

Result<ServerPlace> ServerPlace::find(std::string_view socket_path) {
  if (!socket_path.empty()) return ServerPlace{std::string(socket_path), {}};
  auto found = server_socket();
  if (!found) return fail(std::move(found.error()));
  ServerPlace place{std::move(*found), {}};
  if (const char* named = std::getenv("FOREBAY_SOCKET"); named != nullptr && *named != '\0') return place;
  // The program may go to another directory meanwhile.
  std::error_code error;
  if (const auto root = std::filesystem::absolute(instance_root(), error); !error) place.root = root.string();
  return place;
}

ServerPlace ServerPlace::now() const {
  if (root.empty()) return *this;
  auto listens = server_socket(root);
  // Where that cannot be read, it is most likely where it was.
  return {listens ? std::move(*listens) : socket_path, root};
}

}  // namespace forebay::client
