// SPDX-License-Identifier: Apache-2.0
// Tokens that were made void before their time: ROOT/revoked-tokens. One is forgotten when its time is over, as it is
// void then anyway. docs/formats/remote.md has the file.
#pragma once

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

  bool contains(std::uint64_t serial) const { return expiries_.contains(serial); }
  /// On disk when this returns. Idempotent. busy if there are too many.
  Result<void> add(std::uint64_t serial, std::int64_t expires_ns, std::int64_t now_ns);

 private:
  RevokedTokens(Device& device, std::string root) : device_(&device), root_(std::move(root)) {}
  Result<void> write() const;

  Device* device_;
  std::string root_;
  std::map<std::uint64_t, std::int64_t> expiries_;  ///< nanoseconds since 1970, by serial number
};

}  // namespace forebay::server
