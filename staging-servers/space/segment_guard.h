// SPDX-License-Identifier: Apache-2.0
// Looks at the files of segments, which their writers can change in every way: what lies beyond the granted size is cut
// off, and a segment that lacks any of it is closed until nothing lies in it any more. docs/design/limits.md.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "loop/event_loop.h"
#include "space/segments.h"

namespace forebay::server {

class SegmentGuard {
 public:
  /// Runs what may take long beside the loop.
  using InBackground = std::function<void(std::function<void()>)>;

  /// All of these outlive it.
  SegmentGuard(EventLoop& loop, Segments& segments) : loop_(loop), segments_(segments) {}
  /// Without it everything is done at once.
  void work_in(InBackground background) { background_ = std::move(background); }

  /// At a start: looks at all segments.
  void begin();
  /// Takes what the segment's file takes on the device now for what it should take, if nobody can write to it.
  void note_taken(std::uint32_t segment);
  /// What is wrong with a segment's file, in words that go on from "segment 3"; nothing if it is as it was granted, or
  /// if this was said before. What can be done about it is begun.
  std::optional<std::string> look(std::uint32_t segment);
  /// Gives damaged segments in which nothing lies any more their size and space again, where nobody can write in them;
  /// true if there were any.
  bool mend();

 private:
  struct Size {
    std::uint64_t bytes = 0;
    std::uint64_t taken_bytes = 0;  ///< on the device
  };
  static Result<Size> size_of(const std::string& path);
  /// How much more, or less, than its bytes a sound segment may take on the device: the file system's own blocks.
  std::uint64_t tolerance_bytes() const noexcept;
  std::string damaged(std::uint32_t segment, std::string what);
  void cut(std::uint32_t segment);
  void cut_done(std::uint32_t segment, const Result<void>& done);

  EventLoop& loop_;
  Segments& segments_;
  InBackground background_;
  std::set<std::uint32_t> being_cut_;
  /// What segments took on the device when nobody could write to them. Less than their size where the file system, or
  /// what a backup restored, has no space for zeros.
  std::map<std::uint32_t, std::uint64_t> taken_;
  std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
};

}  // namespace forebay::server
