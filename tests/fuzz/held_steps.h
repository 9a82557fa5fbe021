// SPDX-License-Identifier: Apache-2.0
// The steps that one reader holds, as far as it can be sure: what it was given pinned and has not released, what a
// writer had pinned for it, and after a restart of the server what it still has its presence for. Where the order in
// which the server deals with messages is open, the step counts as let go.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "protocol/message.h"
#include "staging-servers/space/space_map.h"
#include "tests/fuzz/input.h"

namespace forebay::fuzz {

class HeldSteps {
 public:
  using Key = std::pair<std::uint32_t, std::uint64_t>;  ///< epoch, step
  struct Step {
    std::uint32_t count = 0;  ///< how often it must be released
    std::string reservation;  ///< its id; empty: where the step lies is not known yet
    std::vector<server::Extent> extents;
  };

  /// Nothing is held, and nothing is followed until the next connection.
  void lose_track() {
    forget();
    tracks_ = false;
  }
  void forget() {
    steps_.clear();
    for_writers_.clear();
  }
  void connected() {
    tracks_ = true;
    early_.clear();
  }
  void given(const Key& key) {
    if (tracks_ && !early_.contains(key)) ++steps_[key].count;
  }
  /// A writer's part named this reader, and its step has committed. However many parts did, it is one hold.
  void given_for_writer(const Key& key) {
    if (tracks_ && !early_.contains(key) && for_writers_.insert(key).second) ++steps_[key].count;
  }
  void released(const Key& key) {
    const auto found = steps_.find(key);
    if (found == steps_.end()) {
      // It may be on its way.
      early_.insert(key);
    } else if (--found->second.count == 0) {
      steps_.erase(found);
    }
  }
  /// It asks to go on with these: the server lets go of all others, each of them is held as often as it is named.
  void asked_to_keep(const std::vector<wire::StepKey>& keys) {
    for (auto& [key, step] : steps_) {
      step.count = static_cast<std::uint32_t>(std::ranges::count_if(
          keys, [&](const wire::StepKey& kept) { return kept.epoch() == key.first && kept.step() == key.second; }));
    }
    std::erase_if(steps_, [](const auto& entry) { return entry.second.count == 0; });
  }
  bool contains(const Key& key) const { return steps_.contains(key); }
  std::map<Key, Step>& steps() noexcept { return steps_; }

  /// Is this space part of what is held?
  bool overlap(const std::string& reservation, const server::Extent& extent) const {
    return std::ranges::any_of(steps_, [&](const auto& entry) {
      return entry.second.reservation == reservation &&
             std::ranges::any_of(entry.second.extents, [&](const server::Extent& held) {
               return held.segment == extent.segment && held.offset < extent.offset + extent.length &&
                      extent.offset < held.offset + held.length;
             });
    });
  }

 private:
  bool tracks_ = true;
  std::map<Key, Step> steps_;
  std::set<Key> early_;        ///< released before they came
  std::set<Key> for_writers_;  ///< pinned once because a part said so
};

}  // namespace forebay::fuzz
