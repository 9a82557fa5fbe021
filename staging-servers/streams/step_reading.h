// SPDX-License-Identifier: Apache-2.0
// Reads many steps, one after another, in a worker, and compares them with their checksums. What of them lies on other
// members is compared there: their servers compute the checksums, the bytes stay where they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <forebay/result.h>

#include "base/device.h"
#include "base/segment_layout.h"
#include "loop/event_loop.h"
#include "loop/worker.h"
#include "space/other_members.h"
#include "storage/stream_state.h"
#include "streams/step_check.h"

namespace forebay::server {

class Segments;

/// A step whose blocks are to be read in a worker, detached from the server's state.
struct StepToRead {
  std::string reservation;
  std::string stream;
  std::uint32_t epoch = 0;
  std::uint64_t step = 0;
  SegmentLayout layout;
  std::uint64_t segment_bytes = 0;
  std::shared_ptr<const std::vector<std::string>> segment_paths;  ///< by segment number
  std::vector<std::uint8_t> record;                               ///< StepCommitted

  StepToRead(const Segments& segments, std::shared_ptr<const std::vector<std::string>> paths, std::string stream,
             const storage::StepState& step);
};

/// The paths of all segments of a reservation, for its steps.
std::shared_ptr<const std::vector<std::string>> paths_of(const Segments& segments);

/// What was found of a step.
struct StepRead {
  Result<StepCheck> check;                         ///< corrupt: the first thing that is not what it was
  std::size_t without_checksum = 0;                ///< blocks with a part elsewhere that cannot be compared
  std::map<std::uint16_t, std::string> not_asked;  ///< members that could not compare what they have, and why
};

class StepReading : public std::enable_shared_from_this<StepReading> {
 public:
  struct Services {
    EventLoop& loop;
    Device& device;
    Worker& worker;
  };
  /// All are called in the loop.
  struct Asker {
    /// The other members of the step's reservation; null if it is gone.
    std::function<OtherMembers*(const StepToRead&)> others;
    std::function<void(const StepToRead&, const StepRead&)> told;  ///< in order
    std::function<void()> done;                                    ///< once all were told
  };
  /// Blocks that have no part on `member`, where one is named, are not read. Ends without a word once `wanted` has
  /// expired.
  static void begin(const Services& services, std::vector<StepToRead> steps, std::optional<std::uint16_t> member,
                    std::weak_ptr<const bool> wanted, Asker asker);

 private:
  struct Batch;
  StepReading(const Services& services, std::vector<StepToRead> steps, std::optional<std::uint16_t> member,
              std::weak_ptr<const bool> wanted, Asker asker)
      : services_(services),
        steps_(std::move(steps)),
        member_(member),
        wanted_(std::move(wanted)),
        asker_(std::move(asker)) {}

  void read_some();
  /// In the worker.
  void read(Batch& batch);
  Result<StepCheck> read(const StepToRead& step);
  void ask(const std::shared_ptr<Batch>& batch);
  void tell(Batch& batch);
  /// Compares what lies elsewhere.
  static void compare(StepRead& found);

  const Services services_;
  const std::vector<StepToRead> steps_;
  const std::optional<std::uint16_t> member_;
  const std::weak_ptr<const bool> wanted_;
  const Asker asker_;
  std::size_t next_ = 0;
  std::map<std::pair<std::string, std::string>, CheckedSets> checked_sets_;  ///< by reservation and stream
};

}  // namespace forebay::server
