// SPDX-License-Identifier: Apache-2.0
// Encrypts a connection's messages: each message becomes a record, records keep their order, and anything else is
// refused. Sealing and opening may be done by two threads.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <forebay/result.h>

namespace forebay {

class RecordCipher {
 public:
  /// What a record may have more bytes than what it seals.
  static constexpr std::size_t overhead_bytes_max = 64;

  virtual ~RecordCipher() = default;
  RecordCipher(const RecordCipher&) = delete;
  RecordCipher& operator=(const RecordCipher&) = delete;

  /// Appends the record of both parts, one behind the other, to `out`.
  virtual void seal(std::span<const std::byte> first, std::span<const std::byte> second,
                    std::vector<std::byte>& out) = 0;
  /// What was sealed. protocol unless it is the record that the peer sealed next.
  virtual Result<std::vector<std::byte>> open(std::span<const std::byte> record) = 0;

 protected:
  RecordCipher() = default;
};

}  // namespace forebay
