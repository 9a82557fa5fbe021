// SPDX-License-Identifier: Apache-2.0
// What the home does about a member that was restored from an old copy: everything that lies there is compared with its
// checksums, steps that are not what they were are lost, and only then does the member count as there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "readers/followed_stream.h"
#include "streams/step_reading.h"

namespace forebay::server {

class Reservation;
struct StreamServices;

class OldCopies {
 public:
  /// Both outlive it.
  OldCopies(Reservation& reservation, const StreamServices& services)
      : reservation_(reservation), services_(services) {}

  /// Goes on with the member's check, which it begins if there is none of this run of its server. Said again and again
  /// while the copy counts as old.
  void check(std::uint16_t member, std::uint64_t server_run);

 private:
  struct Check {
    std::uint64_t server_run = 0;
    bool reads = false;     ///< what lies there is being read
    bool has_read = false;  ///< all of it, and what follows is to be lost
    std::size_t steps = 0;
    std::map<std::string, std::map<StepKey, std::string>> lost;  ///< by stream; with the reason
    std::string waits_for;                                       ///< why it could not read all; empty: it has
    std::set<std::uint16_t> absent;                              ///< members without which it cannot
    std::string told;                                            ///< the last of what the log was told
  };

  std::vector<StepToRead> steps_on(std::uint16_t member);
  void read(std::uint16_t member, Check& check);
  void take(Check& check, const StepToRead& step, const StepRead& found);
  void all_read(std::uint16_t member, Check& check);
  /// False while a journal does not take it down.
  bool lose(std::uint16_t member, Check& check);
  void wait(std::uint16_t member, Check& check, const std::string& why);

  Reservation& reservation_;
  const StreamServices& services_;
  std::map<std::uint16_t, Check> checks_;
  std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
};

}  // namespace forebay::server
