// SPDX-License-Identifier: Apache-2.0
// What the fuzzers share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <string_view>

namespace forebay::fuzz {

/// A copy of its own size, aligned as the files' and messages' bytes are: reading beyond its end is seen.
class AlignedBytes {
 public:
  explicit AlignedBytes(std::span<const std::uint8_t> bytes)
      : bytes_(static_cast<std::byte*>(::operator new(bytes.size(), std::align_val_t(8)))), size_(bytes.size()) {
    if (size_ > 0) std::memcpy(bytes_.get(), bytes.data(), size_);
  }
  std::span<const std::byte> get() const noexcept { return {bytes_.get(), size_}; }

 private:
  struct Delete {
    void operator()(std::byte* bytes) const noexcept { ::operator delete(bytes, std::align_val_t(8)); }
  };
  std::unique_ptr<std::byte, Delete> bytes_;
  std::size_t size_;
};

/// Whether an input got past the first check of what it was sent to. The corpus is worth what does: see
/// replay_test.cpp.
inline bool was_understood = false;
inline void understood() noexcept {
  was_understood = true;
}

/// Ends the process, which the fuzzer takes for a finding.
inline void require(bool holds, std::string_view why = {},
                    const std::source_location& where = std::source_location::current()) {
  if (holds) return;
  std::fprintf(stderr, "%s:%u: what must hold does not: %s\n", where.file_name(), static_cast<unsigned>(where.line()),
               std::string(why).c_str());
  std::abort();
}

}  // namespace forebay::fuzz
