// SPDX-License-Identifier: Apache-2.0
#include "writers/incarnation.h"

#include <algorithm>
#include <iterator>

#include "base/invariant.h"
#include "writers/writer_session.h"

namespace forebay::server {
namespace {

std::string list(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : ", ") + item;
  return text;
}

}  // namespace

std::vector<journal::Extent> PendingPart::extents() const {
  std::vector<journal::Extent> all = part.extents;
  if (part.attributes && part.attributes->step == step)
    all.insert(all.end(), part.attributes->extents.begin(), part.attributes->extents.end());
  return all;
}

std::uint64_t WriterRank::granted_bytes() const {
  std::uint64_t bytes = granted.total();
  if (part) {
    for (const auto& extent : part->extents()) bytes += extent.length();
  }
  return bytes;
}

bool WriterRank::holds_space_in(std::uint32_t segment) const {
  if (granted.any_in(segment)) return true;
  if (!part) return false;
  const auto extents = part->extents();
  return std::ranges::any_of(extents, [segment](const auto& extent) { return extent.segment() == segment; });
}

void Incarnation::begin(const journal::GroupFormedT& group) {
  invariant(granted_bytes() == 0, "a writer group begins before the space of the one before it is given back");
  number_ = group.incarnation;
  active_ = true;
  when_full_ = static_cast<WhenFull>(group.when_full);
  durability_ = static_cast<Durability>(group.durability);
  block_timeout_ms_ = group.block_timeout_ms;
  grace_ms_ = group.grace_ms;
  ranks_.clear();
  ranks_.resize(group.ranks);
}

bool Incarnation::owns(const Owner& owner) const noexcept {
  return active_ && owner.stream == stream_ && owner.incarnation == number_;
}

bool Incarnation::is_member(const WriterSession& session) const noexcept {
  return session.rank < ranks_.size() && ranks_[session.rank].session == &session;
}

bool Incarnation::is_complete() const {
  return std::ranges::none_of(ranks_, &WriterRank::is_missing);
}

bool Incarnation::all_closed() const {
  return std::ranges::all_of(ranks_, &WriterRank::closed);
}

std::optional<std::uint32_t> Incarnation::first_closed() const {
  const auto found = std::ranges::find(ranks_, true, &WriterRank::closed);
  if (found == ranks_.end()) return std::nullopt;
  return static_cast<std::uint32_t>(found - ranks_.begin());
}

bool Incarnation::has_all_parts() const {
  return std::ranges::all_of(ranks_, [](const WriterRank& rank) { return rank.part.has_value(); });
}

bool Incarnation::has_any_part() const {
  return std::ranges::any_of(ranks_, [](const WriterRank& rank) { return rank.part.has_value(); });
}

std::uint64_t Incarnation::granted_bytes() const {
  std::uint64_t bytes = 0;
  for (const WriterRank& rank : ranks_) bytes += rank.granted_bytes();
  return bytes;
}

void Incarnation::list_granted(std::vector<Extent>& extents) const {
  for (const WriterRank& rank : ranks_) {
    std::ranges::copy(rank.granted.all(), std::back_inserter(extents));
    if (!rank.part) continue;
    for (const journal::Extent& extent : rank.part->extents())
      extents.push_back({extent.segment(), extent.offset(), extent.length()});
  }
}

bool Incarnation::holds_space_in(std::uint32_t segment) const {
  return std::ranges::any_of(ranks_, [segment](const WriterRank& rank) { return rank.holds_space_in(segment); });
}

std::set<uid_t> Incarnation::users() const {
  std::set<uid_t> users;
  for (const WriterRank& rank : ranks_) {
    if (rank.session != nullptr) users.insert(rank.session->connection().peer().uid);
  }
  return users;
}

std::string Incarnation::describe_processes() const {
  std::vector<std::string> processes;
  for (const WriterRank& rank : ranks_) {
    if (rank.session != nullptr) processes.push_back(std::to_string(rank.session->connection().peer().pid));
  }
  return list(processes);
}

std::string Incarnation::describe_missing() const {
  std::vector<std::string> missing;
  for (std::size_t number = 0; number < ranks_.size(); ++number) {
    if (ranks_[number].is_missing()) missing.push_back(std::to_string(number));
  }
  return list(missing);
}

std::string Incarnation::describe_late() const {
  constexpr std::size_t listed_max = 16;
  std::vector<std::string> late;
  std::size_t more = 0;
  for (std::size_t number = 0; number < ranks_.size(); ++number) {
    if (ranks_[number].part) continue;
    if (late.size() < listed_max) {
      late.push_back(std::to_string(number));
    } else {
      ++more;
    }
  }
  return list(late) + (more > 0 ? " and " + std::to_string(more) + " more" : "");
}

}  // namespace forebay::server
