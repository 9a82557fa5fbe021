// SPDX-License-Identifier: Apache-2.0
// Who has mapped what lies on other members: its space is nobody else's meanwhile.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "base/descriptor.h"
#include "base/log.h"
#include "base/system_error.h"
#include "members/home_members.h"

namespace forebay::server {

namespace {

constexpr std::size_t known_max = 16384;

}  // namespace

std::string HomeMembers::unknown_mappings(std::uint16_t number) const {
  return fmt::format("{}/unknown-mappings-{}", folder_, number);
}

void HomeMembers::begin(bool after_boot) {
  for (auto& [number, member] : members_) {
    const std::string path = unknown_mappings(number);
    member.respects_unknown = after_boot || ::access(path.c_str(), F_OK) == 0;
    if (!after_boot) continue;
    // A later start of this boot is to know it, too.
    const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (file.valid()) continue;
    const Error error =
        system_error(errno, "a restart will not know that readers elsewhere may have mapped something", path).value();
    log::warning("{}", error.message());
  }
}

void HomeMembers::take_presences(std::uint16_t number, const wire::MemberShareState& share) {
  Member& member = members_.at(number);
  member.present.clear();
  if (share.presences() != nullptr) member.present.insert(share.presences()->begin(), share.presences()->end());
  member.present_ns = member.asked_ns;
  if (!member.has_answered) {
    // What is made from now on, this run lets readers make.
    std::ranges::set_difference(member.present, std::exchange(member.known, {}),
                                std::inserter(member.earlier, member.earlier.end()));
  }
  std::erase_if(member.earlier, [&](std::uint64_t earlier) { return !member.present.contains(earlier); });
}

void HomeMembers::earlier_changed(std::uint16_t number) {
  Member& member = members_.at(number);
  if (!member.respects_unknown || !member.has_answered) return;
  if (member.earlier.empty()) {
    member.respects_unknown = false;
    (void)::unlink(unknown_mappings(number).c_str());
  }
  open_or_close(number);
  events_.space_changed();
}

void HomeMembers::open_or_close(std::uint16_t number) {
  const Member& member = members_.at(number);
  // Where the table of pins was kept, it knows what earlier readers have mapped.
  segments_.set_away(number, member.absence || (member.respects_unknown && !member.earlier.empty()));
}

void HomeMembers::know_presence(std::uint16_t number, std::uint64_t presence) {
  const auto found = members_.find(number);
  if (found == members_.end()) return;
  Member& member = found->second;
  // Those that are too many count as unknown.
  if (!member.has_answered && member.known.size() < known_max) member.known.insert(presence);
  if (member.earlier.erase(presence) > 0) earlier_changed(number);
}

bool HomeMembers::is_gone(std::uint16_t number, std::uint64_t presence, std::int64_t since_ns) const {
  const auto found = members_.find(number);
  if (found == members_.end() || links_.pool().was_given_up(found->second.link->uuid())) return true;
  return found->second.present_ns > since_ns && !found->second.present.contains(presence);
}

bool HomeMembers::earlier_are_gone() const {
  return std::ranges::all_of(members_, [this](const auto& entry) {
    const Member& member = entry.second;
    return (member.has_answered && member.earlier.empty()) || links_.pool().was_given_up(member.link->uuid());
  });
}

}  // namespace forebay::server
