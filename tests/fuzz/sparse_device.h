// SPDX-License-Identifier: Apache-2.0
// The real file system without what makes it slow: space is promised rather than taken, and nothing is synced. What a
// power loss takes is other tests' matter.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/device.h"
#include "base/system_error.h"

namespace forebay::fuzz {

class SparseDevice final : public Device {
 public:
  SparseDevice() = default;

  Result<std::unique_ptr<forebay::File>> open(const std::string& path, OpenMode mode) override {
    auto file = posix_device().open(path, mode);
    if (!file) return fail(std::move(file.error()));
    return std::make_unique<File>(std::move(*file));
  }
  std::unique_ptr<forebay::File> adopt(Descriptor descriptor) override {
    return std::make_unique<File>(posix_device().adopt(std::move(descriptor)));
  }
  Result<void> rename(const std::string& from, const std::string& to) override {
    return posix_device().rename(from, to);
  }
  Result<void> remove(const std::string& path) override { return posix_device().remove(path); }
  Result<void> make_directory(const std::string& path, unsigned mode) override {
    return posix_device().make_directory(path, mode);
  }
  Result<std::vector<std::string>> list(const std::string& path) const override { return posix_device().list(path); }
  Result<void> sync_directory(const std::string&) override { return {}; }

 private:
  class File final : public forebay::File {
   public:
    explicit File(std::unique_ptr<forebay::File> file) : file_(std::move(file)) {}
    Result<void> read_at(std::uint64_t offset, std::span<std::byte> bytes) const override {
      return file_->read_at(offset, bytes);
    }
    Result<void> write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
      return file_->write_at(offset, bytes);
    }
    Result<void> allocate(std::uint64_t size) override {
      const auto now = file_->size();
      if (!now) return fail(now.error());
      if (*now < size && ::ftruncate(file_->descriptor(), static_cast<off_t>(size)) != 0)
        return system_error(errno, "cannot lengthen");
      return {};
    }
    Result<void> free_space(std::uint64_t offset, std::uint64_t length) override {
      return file_->free_space(offset, length);
    }
    Result<void> sync() override { return {}; }
    Result<std::uint64_t> size() const override { return file_->size(); }
    int descriptor() const noexcept override { return file_->descriptor(); }

   private:
    std::unique_ptr<forebay::File> file_;
  };
};

}  // namespace forebay::fuzz
