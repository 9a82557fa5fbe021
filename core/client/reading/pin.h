// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include <forebay/result.h>

#include "client/reading/carried_step.h"
#include "client/segments/segment_cache.h"

namespace forebay::client {

class ReaderLink;

/// This reader's hold on one step. Deliveries of the same step share it; it is released when the last handle is gone.
class Pin {
 public:
  Pin(std::shared_ptr<ReaderLink> link, std::uint64_t step, std::uint32_t epoch, bool pinned) noexcept
      : link_(std::move(link)), step_(step), epoch_(epoch), pinned_(pinned) {}
  ~Pin();
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;

  bool pinned() const noexcept { return pinned_; }
  /// step_gone once a server that was restarted could not keep the pin. A remote step is asked for after each read.
  Result<void> check() const;
  /// The same of a remote step that is mapped on this node all the same.
  Result<void> check_held() const;
  /// step_gone unless what was read up to now is the step's: asks the server where the step is not pinned, or remote
  /// and not carried as a whole, or lies on several servers.
  Result<void> check_after_read() const;
  /// step_gone unless the server still keeps the step.
  Result<void> check_kept() const;
  /// The server holds nothing under this name: it is not told when the handle goes.
  void disown() noexcept { lost_ = true; }
  /// A segment that the step lies in. step_gone where the stream has left it since.
  Result<std::shared_ptr<Segment>> segment(std::uint32_t number) const;
  /// A delivery brought bytes of the step along.
  void carry(std::shared_ptr<const CarriedStep> bytes);
  /// Those bytes; null if none did.
  std::shared_ptr<const CarriedStep> carried() const;
  ReaderLink& link() const noexcept { return *link_; }
  std::uint64_t step() const noexcept { return step_; }
  std::uint32_t epoch() const noexcept { return epoch_; }

 private:
  friend class ReaderLink;

  const std::shared_ptr<ReaderLink> link_;
  const std::uint64_t step_;
  const std::uint32_t epoch_;
  const bool pinned_;
  std::atomic<bool> lost_ = false;
  mutable std::atomic<bool> reads_member_ = false;  ///< something of the step lies on another member
  mutable std::mutex carried_mutex_;
  std::shared_ptr<const CarriedStep> carried_;  // guarded by carried_mutex_
  // Guarded by the link's mutex:
  std::uint64_t generation_ = 0;  ///< of the connection that knows of it
  std::uint32_t deliveries_ = 0;  ///< releases that the server expects
};

}  // namespace forebay::client
