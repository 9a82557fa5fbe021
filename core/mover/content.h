// SPDX-License-Identifier: Apache-2.0
// Bytes of files: copied with their checksum in one pass, read back, compared.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <string>

#include <forebay/result.h>

namespace forebay::mover {

/// Part of a file.
struct Range {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

/// Told how many bytes more are done; an error ends the work.
using Advance = std::function<Result<void>(std::uint64_t)>;

/// Copies a range and returns its CRC-32C. With `sparse`, holes of the source are not written, nor are blocks of zeros:
/// there the target must be a hole. io_error if the source ends within the range: it changed.
Result<std::uint32_t> copy_range(int source, int target, Range range, bool sparse, const Advance& advance,
                                 const std::string& source_name, const std::string& target_name);

/// CRC-32C of a range; holes are not read. io_error if the file ends within it.
Result<std::uint32_t> checksum_of_range(int file, Range range, const Advance& advance, const std::string& name);

/// After a sync: lets the kernel drop the pages, so that what is read comes from the device.
void forget_pages(int file, Range range) noexcept;

/// True if the file has fewer blocks than its size needs.
bool is_sparse(const struct stat& status) noexcept;

/// The error for a file that changed under the copy.
tl::unexpected<Error> changed(const std::string& name);

}  // namespace forebay::mover
