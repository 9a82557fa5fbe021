// SPDX-License-Identifier: Apache-2.0
// A rank's place in a reader group: by what the group is found, and what the rank knows of its last turn. The server
// keeps none of this over a restart (docs/design/reader-groups.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <forebay/address.h>
#include <forebay/reader.h>

#include "protocol/message.h"

namespace forebay::client {

/// How many groups of one name this process has opened: the first Open of each rank meets the first of the others.
class GroupOrdinal {
 public:
  explicit GroupOrdinal(std::string name);
  ~GroupOrdinal();
  GroupOrdinal(const GroupOrdinal&) = delete;
  GroupOrdinal& operator=(const GroupOrdinal&) = delete;

  std::uint64_t number() const noexcept { return number_; }
  /// The Open has succeeded. Without this the next one is this one again.
  void keep() noexcept { kept_ = true; }

 private:
  const std::string name_;
  std::uint64_t number_ = 0;
  bool kept_ = false;
};

/// Not safe for several threads.
class GroupPlace {
 public:
  /// `options` outlives it.
  GroupPlace(const Address& address, const ReaderOptions& options);

  /// The number of the last turn that it has the answer to.
  std::uint64_t turn() const noexcept { return turn_.number; }
  /// What the server is told at an Open; with `resume`, also what this rank knows.
  void tell(wire::ReaderOpenT& request) const;
  void opened(const wire::ReaderOpened& opened);
  /// The next turn has been answered.
  void answered(const wire::StepEvent& event);
  /// With an error.
  void failed(const Error& error);

 private:
  const ReaderOptions& options_;
  GroupOrdinal ordinal_;
  std::uint64_t group_number_ = 0;
  wire::TurnT turn_;
  std::vector<std::uint32_t> gone_;
};

}  // namespace forebay::client
