// SPDX-License-Identifier: Apache-2.0
#include "base/device.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/return_error.h"
#include "base/system_error.h"

namespace forebay {
namespace {

class PosixFile final : public File {
 public:
  explicit PosixFile(Descriptor descriptor) noexcept : descriptor_(std::move(descriptor)) {}

  Result<void> read_at(std::uint64_t offset, std::span<std::byte> bytes) const override {
    while (!bytes.empty()) {
      const ssize_t count = ::pread(descriptor_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (count < 0) {
        if (errno == EINTR) continue;
        return system_error(errno, "read failed", "offset " + std::to_string(offset));
      }
      if (count == 0)
        return fail(ErrorCode::corrupt, "the file ends before the data that it should hold",
                    "offset " + std::to_string(offset));
      bytes = bytes.subspan(static_cast<std::size_t>(count));
      offset += static_cast<std::uint64_t>(count);
    }
    return {};
  }

  Result<void> write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t count = ::pwrite(descriptor_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (count < 0) {
        if (errno == EINTR) continue;
        return system_error(errno, "write failed", "offset " + std::to_string(offset));
      }
      bytes = bytes.subspan(static_cast<std::size_t>(count));
      offset += static_cast<std::uint64_t>(count);
    }
    return {};
  }

  Result<void> allocate(std::uint64_t size) override {
    const int error = ::posix_fallocate(descriptor_.get(), 0, static_cast<off_t>(size));
    if (error != 0) return system_error(error, "cannot allocate " + std::to_string(size) + " bytes");
    return {};
  }

  Result<void> free_space(std::uint64_t offset, std::uint64_t length) override {
    // The size stays: who has the file mapped sees zeros then, and is not killed.
    if (::fallocate(descriptor_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                    static_cast<off_t>(length)) == 0)
      return {};
    if (errno == EOPNOTSUPP || errno == ENOSYS)
      return fail(ErrorCode::unsupported, "this file system cannot punch holes into files");
    return system_error(errno, "cannot punch a hole");
  }

  Result<void> sync() override {
    if (::fdatasync(descriptor_.get()) != 0) return system_error(errno, "sync failed");
    return {};
  }

  Result<std::uint64_t> size() const override {
    struct stat status{};
    if (::fstat(descriptor_.get(), &status) != 0) return system_error(errno, "cannot read the file's size");
    return static_cast<std::uint64_t>(status.st_size);
  }

  int descriptor() const noexcept override { return descriptor_.get(); }

 private:
  Descriptor descriptor_;
};

class PosixDevice final : public Device {
 public:
  Result<std::unique_ptr<File>> open(const std::string& path, OpenMode mode) override {
    int flags = O_CLOEXEC;
    if (mode == OpenMode::read) flags |= O_RDONLY;
    if (mode == OpenMode::read_write) flags |= O_RDWR;
    if (mode == OpenMode::create_new) flags |= O_RDWR | O_CREAT | O_EXCL;
    Descriptor descriptor(::open(path.c_str(), flags, 0600));
    if (!descriptor.valid()) return system_error(errno, "cannot open", path);
    return std::make_unique<PosixFile>(std::move(descriptor));
  }

  std::unique_ptr<File> adopt(Descriptor descriptor) override {
    return std::make_unique<PosixFile>(std::move(descriptor));
  }

  Result<void> rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) return system_error(errno, "cannot rename to " + to, from);
    return {};
  }

  Result<void> remove(const std::string& path) override {
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) return system_error(errno, "cannot remove", path);
    return {};
  }

  Result<void> make_directory(const std::string& path, unsigned mode) override {
    if (::mkdir(path.c_str(), static_cast<mode_t>(mode)) != 0 && errno != EEXIST)
      return system_error(errno, "cannot make directory", path);
    return {};
  }

  Result<std::vector<std::string>> list(const std::string& path) const override {
    const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(path.c_str()), ::closedir);
    if (!directory) return system_error(errno, "cannot list directory", path);
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = ::readdir(directory.get())) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names.push_back(name);
    }
    if (errno != 0) return system_error(errno, "cannot list directory", path);
    std::ranges::sort(names);
    return names;
  }

  Result<void> sync_directory(const std::string& path) override {
    const Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!descriptor.valid()) return system_error(errno, "cannot open directory", path);
    if (::fsync(descriptor.get()) != 0) return system_error(errno, "cannot sync directory", path);
    return {};
  }
};

}  // namespace

Device& posix_device() {
  static PosixDevice device;
  return device;
}

Result<std::vector<std::byte>> read_whole(Device& device, const std::string& path, std::uint64_t bytes_max) {
  ASSIGN_OR_RETURN(auto file, device.open(path, OpenMode::read));
  ASSIGN_OR_RETURN(auto size, file->size());
  if (size > bytes_max) return fail(ErrorCode::corrupt, "the file is larger than any valid one", path);
  std::vector<std::byte> bytes(size);
  RETURN_IF_ERROR(file->read_at(0, bytes));
  return bytes;
}

Result<void> write_whole(Device& device, const std::string& directory, const std::string& name,
                         std::span<const std::byte> bytes, FileFor whom) {
  const std::string temporary = directory + "/." + name + ".new";
  RETURN_IF_ERROR(device.remove(temporary));
  ASSIGN_OR_RETURN(auto file, device.open(temporary, OpenMode::create_new));
  if (whom == FileFor::all_to_read && file->descriptor() >= 0 && ::fchmod(file->descriptor(), 0644) != 0)
    return system_error(errno, "cannot let others read", temporary);
  RETURN_IF_ERROR(file->write_at(0, bytes));
  RETURN_IF_ERROR(file->sync());
  RETURN_IF_ERROR(device.rename(temporary, directory + "/" + name));
  return device.sync_directory(directory);
}

}  // namespace forebay
