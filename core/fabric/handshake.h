// SPDX-License-Identifier: Apache-2.0
// How client and server prove to each other that they know a token's secret, and the keys that follow from it. The
// secret does not travel. docs/design/remote.md has the order of messages.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/record_cipher.h"
#include "fabric/token.h"

namespace forebay::fabric {

using Nonce = std::array<std::uint8_t, 32>;
using Proof = std::array<std::uint8_t, 32>;

/// Random, and never the same again.
Nonce draw_nonce();
/// In a time that does not depend on where they differ. False if the sizes differ.
bool is_same(const Proof& proof, std::span<const std::uint8_t> given) noexcept;

/// Whether messages are encrypted after the proofs. The server decides.
enum class ControlEncryption : std::uint8_t { on, off };

/// What both ends know once the nonces are exchanged. The proofs cover the encryption, too: ends that were told
/// different things refuse each other's, so nobody between them can switch it off.
class Agreement {
 public:
  Agreement(const Secret& secret, std::span<const std::byte> claims, const Nonce& client, const Nonce& server,
            ControlEncryption encryption);

  Proof client_proof() const;
  Proof server_proof() const;
  /// Null if messages are not encrypted.
  std::unique_ptr<RecordCipher> client_cipher() const;
  std::unique_ptr<RecordCipher> server_cipher() const;

 private:
  std::array<std::uint8_t, 32> derived(const char* label) const;

  const Secret secret_;
  const ControlEncryption encryption_;
  std::vector<std::uint8_t> transcript_;
};

}  // namespace forebay::fabric
