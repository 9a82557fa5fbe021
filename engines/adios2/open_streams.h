// SPDX-License-Identifier: Apache-2.0
// Which streams the engines of this process have open. Mistakes inside one program then get errors that say so: two
// writers of one stream, and an IO that would read its own output.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace forebay::engine {

/// An engine's entry, as long as it lives. A process that exits while writers have entries says that they were not
/// closed.
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

  /// The step that a writer has open; none: it has none.
  void note_step(std::optional<std::uint64_t> step);
  /// Says on standard error that a writer ends without Close, and which step is lost.
  void tell_not_closed() const;

 private:
  std::uint64_t entry_ = 0;
};

}  // namespace forebay::engine
