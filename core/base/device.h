// SPDX-License-Identifier: Apache-2.0
// The seam to the file system: servers and clients touch reservations through a Device only, so that tests can record,
// lose, tear and fail what they write. Implementations are thread-safe; one File may be used by several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <forebay/result.h>

#include "base/descriptor.h"

namespace forebay {

/// Part of a file that a program has mapped: what it stores there is written without a call of write_at().
class MappedRange {
 public:
  virtual ~MappedRange() = default;
  MappedRange(const MappedRange&) = delete;
  MappedRange& operator=(const MappedRange&) = delete;

  /// Say true before the program may store there, false when it cannot any more; the end of the object says so, too.
  virtual void set_writable(bool writable) = 0;

 protected:
  MappedRange() = default;
};

class File {
 public:
  virtual ~File() = default;
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  /// Reads exactly bytes.size() bytes; corrupt if the file ends before.
  virtual Result<void> read_at(std::uint64_t offset, std::span<std::byte> bytes) const = 0;
  /// Writes all of `bytes`.
  virtual Result<void> write_at(std::uint64_t offset, std::span<const std::byte> bytes) = 0;
  /// Makes sure that [0, size) has space on the device and is the file's size. no_space leaves the file as it was.
  virtual Result<void> allocate(std::uint64_t size) = 0;
  /// Gives the space of [offset, offset + length) back to the device: the file's size stays, and it reads as zeros
  /// there. unsupported where the file system cannot.
  virtual Result<void> free_space(std::uint64_t offset, std::uint64_t length) = 0;
  /// Data, and metadata that is needed to read it, are on stable storage when it returns. After a failure the state of
  /// unsynced data is unknown: never retry and take the second answer for the first.
  virtual Result<void> sync() = 0;
  virtual Result<std::uint64_t> size() const = 0;
  /// For mapping and passing on; -1 if the implementation has none.
  virtual int descriptor() const noexcept = 0;
  /// Whom to tell when [offset, offset + length) is mapped for writing. It may outlive the file. Null: nobody asks.
  virtual std::unique_ptr<MappedRange> mapped_range([[maybe_unused]] std::uint64_t offset,
                                                    [[maybe_unused]] std::uint64_t length) {
    return nullptr;
  }

 protected:
  File() = default;
};

enum class OpenMode : std::uint8_t { read, read_write, create_new };

class Device {
 public:
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  virtual Result<std::unique_ptr<File>> open(const std::string& path, OpenMode mode) = 0;
  /// Takes over a descriptor that came from a server.
  virtual std::unique_ptr<File> adopt(Descriptor descriptor) = 0;
  virtual Result<void> rename(const std::string& from, const std::string& to) = 0;
  /// Succeeds if there is no such file.
  virtual Result<void> remove(const std::string& path) = 0;
  /// Succeeds if it exists. Not recursive.
  virtual Result<void> make_directory(const std::string& path, unsigned mode) = 0;
  /// Names in a directory, without "." and "..", sorted.
  virtual Result<std::vector<std::string>> list(const std::string& path) const = 0;
  virtual Result<void> sync_directory(const std::string& path) = 0;

 protected:
  Device() = default;
};

/// The real file system.
Device& posix_device();

/// Reads a whole file of at most `bytes_max` bytes.
Result<std::vector<std::byte>> read_whole(Device& device, const std::string& path, std::uint64_t bytes_max);

/// Who may open a file that write_whole() writes.
enum class FileFor : std::uint8_t { owner, all_to_read };

/// Writes a file so that after a crash it is the old or the new one: temporary name, sync, rename, sync of the
/// directory.
Result<void> write_whole(Device& device, const std::string& directory, const std::string& name,
                         std::span<const std::byte> bytes, FileFor whom = FileFor::owner);

}  // namespace forebay
