// SPDX-License-Identifier: Apache-2.0
// Which streams the engines of this process have open. Mistakes inside one program then get errors that say so: two
// writers of one stream, and an IO that would read its own output.
#pragma once

#include <cstdint>
#include <string>

namespace forebay::engine {

/// An engine's entry, as long as it lives.
class OpenStream {
 public:
  enum class Side : std::uint8_t { writes, reads };

  OpenStream() = default;
  /// Throws std::invalid_argument if another engine of this process writes the stream as the same rank, or, unless
  /// `own_output` allows it, if one IO (`io`; null: unknown) would both write and read it.
  OpenStream(std::string path, Side side, std::uint32_t rank, const void* io, bool own_output);
  ~OpenStream();
  OpenStream(OpenStream&& other) noexcept;
  OpenStream& operator=(OpenStream&& other) noexcept;

 private:
  std::uint64_t entry_ = 0;
};

}  // namespace forebay::engine
