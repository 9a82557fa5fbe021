// SPDX-License-Identifier: Apache-2.0
// A Device over the real file system that is as slow as it is told, so that a disk is what limits a server or a writer
// and not the processors that all processes of a benchmark share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/device.h"
#include "timeline.h"

namespace bench {

struct DiskSpeed {
  std::uint64_t write_bytes_per_second = 0;  ///< of all files together; 0: as fast as the page cache
  std::uint64_t cache_bytes = 0;             ///< a write returns while so many bytes are still on their way
  std::int64_t sync_ms = 0;                  ///< how long each sync of a file takes; 0: as long as the real one
};

class SlowDevice final : public forebay::Device {
 public:
  explicit SlowDevice(DiskSpeed speed) : speed_(speed) {}

  forebay::Result<std::unique_ptr<forebay::File>> open(const std::string& path, forebay::OpenMode mode) override {
    auto file = device_.open(path, mode);
    if (!file) return forebay::fail(std::move(file.error()));
    return std::make_unique<SlowFile>(*this, std::move(*file));
  }
  std::unique_ptr<forebay::File> adopt(forebay::Descriptor descriptor) override {
    return std::make_unique<SlowFile>(*this, device_.adopt(std::move(descriptor)));
  }
  forebay::Result<void> rename(const std::string& from, const std::string& to) override {
    return device_.rename(from, to);
  }
  forebay::Result<void> remove(const std::string& path) override { return device_.remove(path); }
  forebay::Result<void> make_directory(const std::string& path, unsigned mode) override {
    return device_.make_directory(path, mode);
  }
  forebay::Result<std::vector<std::string>> list(const std::string& path) const override { return device_.list(path); }
  forebay::Result<void> sync_directory(const std::string& path) override { return device_.sync_directory(path); }

 private:
  class SlowFile final : public forebay::File {
   public:
    SlowFile(SlowDevice& disk, std::unique_ptr<forebay::File> file) : disk_(disk), file_(std::move(file)) {}

    forebay::Result<void> read_at(std::uint64_t offset, std::span<std::byte> bytes) const override {
      return file_->read_at(offset, bytes);
    }
    forebay::Result<void> write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
      const std::int64_t end = disk_.begin_write(bytes.size());
      auto written = file_->write_at(offset, bytes);
      wait_until_ns(end);
      return written;
    }
    forebay::Result<void> allocate(std::uint64_t size) override { return file_->allocate(size); }
    forebay::Result<void> free_space(std::uint64_t offset, std::uint64_t length) override {
      return file_->free_space(offset, length);
    }
    forebay::Result<void> sync() override {
      if (disk_.speed_.sync_ms == 0) return file_->sync();
      // In place of the real one, whose time depends on what else is written to this machine's disk.
      wait_until_ns(now_ns() + disk_.speed_.sync_ms * 1'000'000);
      return {};
    }
    forebay::Result<std::uint64_t> size() const override { return file_->size(); }
    int descriptor() const noexcept override { return file_->descriptor(); }
    std::unique_ptr<forebay::MappedRange> mapped_range(std::uint64_t offset, std::uint64_t length) override {
      return file_->mapped_range(offset, length);
    }

   private:
    SlowDevice& disk_;
    std::unique_ptr<forebay::File> file_;
  };

  /// When a write that begins now may return: the disk takes one after another, whichever threads and files they are
  /// of.
  std::int64_t begin_write(std::uint64_t bytes) {
    if (speed_.write_bytes_per_second == 0) return 0;
    const std::lock_guard lock(mutex_);
    idle_at_ = std::max(idle_at_, now_ns()) + time_of(bytes);
    return idle_at_ - time_of(speed_.cache_bytes);
  }

  std::int64_t time_of(std::uint64_t bytes) const {
    return static_cast<std::int64_t>(1e9 * static_cast<double>(bytes) /
                                     static_cast<double>(speed_.write_bytes_per_second));
  }

  const DiskSpeed speed_;
  forebay::Device& device_ = forebay::posix_device();
  std::mutex mutex_;
  std::int64_t idle_at_ = 0;  // when all writes that have begun are done; guarded by mutex_
};

}  // namespace bench
