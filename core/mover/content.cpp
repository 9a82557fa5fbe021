// SPDX-License-Identifier: Apache-2.0
#include "mover/content.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <span>

#include <forebay/checksum.h>

#include "base/joined_checksum.h"
#include "base/return_error.h"
#include "base/system_error.h"

namespace forebay::mover {
namespace {

constexpr std::size_t chunk_bytes = std::size_t{1} << 20;
constexpr std::size_t zero_block_bytes = 65536;

/// A buffer of each thread, made at its first use.
std::span<std::byte> chunk() {
  thread_local const std::unique_ptr<std::byte[]> buffer(new std::byte[chunk_bytes]);
  return {buffer.get(), chunk_bytes};
}

bool all_zeros(std::span<const std::byte> bytes) {
  return bytes.empty() ||
         (bytes[0] == std::byte{0} && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

/// Where the next data begins at or behind `offset`, but not behind `end`. Where it cannot be told: here.
std::uint64_t next_data(int file, std::uint64_t offset, std::uint64_t end) {
  const off_t found = ::lseek(file, static_cast<off_t>(offset), SEEK_DATA);
  if (found >= 0) return std::min(end, std::max(offset, static_cast<std::uint64_t>(found)));
  return errno == ENXIO ? end : offset;
}

Result<void> write_all(int target, std::span<const std::byte> bytes, std::uint64_t offset, const std::string& name) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(target, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return system_error(count < 0 ? errno : ENOSPC, "cannot write", name);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
  return {};
}

Result<void> write_but_zeros(int target, std::span<const std::byte> bytes, std::uint64_t offset,
                             const std::string& name) {
  while (!bytes.empty()) {
    const auto block = bytes.first(std::min(bytes.size(), zero_block_bytes));
    if (!all_zeros(block)) RETURN_IF_ERROR(write_all(target, block, offset, name));
    bytes = bytes.subspan(block.size());
    offset += block.size();
  }
  return {};
}

/// Reads the range in chunks; `take` gets each with its offset.
template <class Take>
Result<std::uint32_t> read_range(int file, Range range, bool skip_holes, const Advance& advance,
                                 const std::string& name, const Take& take) {
  std::uint32_t checksum = 0;
  std::uint64_t offset = range.offset;
  const std::uint64_t end = range.offset + range.length;
  std::uint64_t data_end = skip_holes ? offset : end;  // up to here nobody need look for holes
  while (offset < end) {
    if (offset == data_end) {
      const std::uint64_t data = next_data(file, offset, end);
      if (data > offset) {
        checksum = checksum_with_zeros(checksum, data - offset);
        RETURN_IF_ERROR(advance(data - offset));
        offset = data_end = data;
        continue;
      }
      const off_t hole = ::lseek(file, static_cast<off_t>(offset), SEEK_HOLE);
      data_end = hole > static_cast<off_t>(offset) ? std::min(end, static_cast<std::uint64_t>(hole)) : end;
    }
    const std::span<std::byte> buffer = chunk();
    const std::size_t wanted = static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), data_end - offset));
    const ssize_t count = ::pread(file, buffer.data(), wanted, static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_error(errno, "cannot read", name);
    if (count == 0) return changed(name);
    const auto bytes = std::span<const std::byte>(buffer).first(static_cast<std::size_t>(count));
    checksum = crc32c(bytes, checksum);
    RETURN_IF_ERROR(take(bytes, offset));
    RETURN_IF_ERROR(advance(bytes.size()));
    offset += bytes.size();
  }
  return checksum;
}

}  // namespace

tl::unexpected<Error> changed(const std::string& name) {
  return fail(ErrorCode::io_error, "the file changed while it was being copied; stage it when nobody writes it", name);
}

Result<std::uint32_t> copy_range(int source, int target, Range range, bool sparse, const Advance& advance,
                                 const std::string& source_name, const std::string& target_name) {
  return read_range(source, range, sparse, advance, source_name,
                    [&](std::span<const std::byte> bytes, std::uint64_t offset) {
                      return sparse ? write_but_zeros(target, bytes, offset, target_name)
                                    : write_all(target, bytes, offset, target_name);
                    });
}

Result<std::uint32_t> checksum_of_range(int file, Range range, const Advance& advance, const std::string& name) {
  return read_range(file, range, true, advance, name,
                    [](std::span<const std::byte>, std::uint64_t) { return Result<void>(); });
}

void forget_pages(int file, Range range) noexcept {
  (void)::posix_fadvise(file, static_cast<off_t>(range.offset), static_cast<off_t>(range.length), POSIX_FADV_DONTNEED);
}

bool is_sparse(const struct stat& status) noexcept {
  return static_cast<std::uint64_t>(status.st_blocks) * 512 < static_cast<std::uint64_t>(status.st_size);
}

}  // namespace forebay::mover
