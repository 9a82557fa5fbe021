// SPDX-License-Identifier: Apache-2.0
#include "streams/recent_commits.h"

namespace forebay::server {

void RecentCommits::note(const StepKey& key, std::int64_t now_ns) {
  if (!commits_.empty() && commits_.front().first.first != key.first) commits_.clear();
  if (commits_.empty() || now_ns - commits_.back().first_ns >= together_ns) commits_.push_back({key, now_ns});
  while (now_ns - commits_.front().first_ns >= fresh_ns) commits_.pop_front();
  next_step_ = key.second + 1;
}

bool RecentCommits::has(const StepKey& key, std::int64_t now_ns) const {
  for (const Commits& commits : commits_) {
    if (now_ns - commits.first_ns >= fresh_ns) continue;
    return commits.first.first == key.first && key.second >= commits.first.second && key.second < next_step_;
  }
  return false;
}

}  // namespace forebay::server
