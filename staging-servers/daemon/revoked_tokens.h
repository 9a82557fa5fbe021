// SPDX-License-Identifier: Apache-2.0
// Tokens that were made void before their time: ROOT/revoked-tokens. One is forgotten when its time is over, as it is
// void then anyway. docs/formats/remote.md has the file.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>

#include <forebay/result.h>

#include "base/device.h"

namespace forebay::server {

class RevokedTokens {
 public:
  /// Reads the file; there need not be one. corrupt if it is no such file.
  static Result<RevokedTokens> load(Device& device, std::string root);

  bool contains(std::uint64_t serial) const { return tokens_.contains(serial); }
  struct Token {
    uid_t user = 0;               ///< for whom it was made
    std::int64_t expires_ns = 0;  ///< since 1970
  };
  /// On disk when this returns. Idempotent. busy if there are too many, or too many of this user's; of root's there may
  /// be as many as there is room for.
  Result<void> add(std::uint64_t serial, const Token& token, std::int64_t now_ns);

 private:
  RevokedTokens(Device& device, std::string root) : device_(&device), root_(std::move(root)) {}
  Result<void> write() const;

  Device* device_;
  std::string root_;
  std::map<std::uint64_t, Token> tokens_;  ///< by serial number
};

}  // namespace forebay::server
