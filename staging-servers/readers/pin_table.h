// SPDX-License-Identifier: Apache-2.0
// Readers' pins in a file that is mapped into memory. A server that was killed and started again still knows which
// steps earlier processes have mapped, and does not write over them until these return or end.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <forebay/result.h>

#include "space/reader_presence.h"

namespace forebay::server {

class PinTable {
 public:
  /// A reader of before the restart that still exists.
  struct Absent {
    std::uint64_t session = 0;
    pid_t pid = 0;  ///< 0: it is on another node
    std::string stream_uuid;
    std::vector<std::pair<std::uint32_t, std::uint64_t>> keys;  ///< epoch, step
  };

  /// Maps ROOT/pins, making it if need be. What it held goes to `absent`, less those that are gone; after a boot nobody
  /// is left.
  static Result<std::unique_ptr<PinTable>> open(const std::string& path, bool after_boot,
                                                const ReaderPresence& presence, std::vector<Absent>& absent);
  ~PinTable();
  PinTable(const PinTable&) = delete;
  PinTable& operator=(const PinTable&) = delete;

  /// Whose reader it is.
  struct Holder {
    pid_t pid = 0;                 ///< 0: it is on another node
    std::optional<uid_t> sharing;  ///< the user, who leaves as many slots to others as they have; none: need not
    bool maps = false;             ///< of one on another node: it has a file there that says whether it is gone
  };

  /// False if the table is full, or its user has as many slots as are free: the reader then gets no pin.
  bool add(std::uint64_t session, const Holder& holder, const std::string& stream_uuid, std::uint32_t epoch,
           std::uint64_t step);
  void remove(std::uint64_t session, std::uint32_t epoch, std::uint64_t step);
  /// A connection of this process ended: its pid may come to mean another process.
  void forget_process(pid_t pid);
  /// A slot says that the session holds the step.
  bool holds(std::uint64_t session, std::uint32_t epoch, std::uint64_t step) const;

  /// Ends the process if an invariant is broken; how many things were looked at.
  std::size_t check() const;

 private:
  friend struct InvariantBreaker;  // of a test
  struct Slot;
  struct Used {
    std::uint32_t index = 0;
    std::optional<uid_t> user;  ///< in whose number it counts; nobody's: of before a restart, until its reader is back
  };
  PinTable(Slot* slots, std::size_t slot_count);

  Slot* slots_;
  std::size_t slot_count_;
  std::vector<std::uint32_t> free_;
  std::map<std::tuple<std::uint64_t, std::uint32_t, std::uint64_t>, Used> used_;
  std::map<uid_t, std::size_t> slots_of_;   ///< of users who share the table
  std::map<pid_t, std::uint64_t> started_;  ///< start times of the processes that are connected
};

}  // namespace forebay::server
