// SPDX-License-Identifier: Apache-2.0
// A writer and the other members of its reservation: permits, what is written there, and what was met.
#include <utility>

#include "base/return_error.h"
#include "client/writing/writer_rejoin.h"
#include "fabric/permit.h"

namespace forebay {

using protocol::MessageType;

void Writer::Impl::reach_members() {
  if (segments.has_others() && !ways) {
    // The home lets in no other member's client before the group has formed, so it is asked on its own connection.
    ways = std::make_unique<client::Members>(
        [this](const wire::MemberQueryT& query) -> Result<protocol::Message> {
          std::uint32_t request = 0;
          const auto is_settled = [](const Impl&) { return false; };
          ASSIGN_OR_RETURN(auto answer,
                           ask(request, MessageType::member_query, query, MessageType::member_answer, is_settled));
          return std::move(*answer);
        },
        options.interrupt);
  }
  if (!ways && !remote) return;
  segments.set_remote([this](std::uint32_t segment, std::uint16_t member) { return remote_file(segment, member); });
}

std::unique_ptr<File> Writer::Impl::remote_file(std::uint32_t segment, std::uint16_t member) const {
  if (member == 0) return remote ? std::make_unique<client::RemoteSpaceFile>(remote, segment, member) : nullptr;
  const auto found = members.find(member);
  if (found == members.end() || !found->second.space || !found->second.permitted.contains(segment)) return nullptr;
  return std::make_unique<client::RemoteSpaceFile>(found->second.space, segment, member);
}

client::SpaceKind Writer::Impl::kind_of_space(bool at_home) const {
  if (!ways) return client::SpaceKind::anywhere;
  if (at_home) return client::SpaceKind::at_home;
  return blocks_at_home ? client::SpaceKind::anywhere : client::SpaceKind::elsewhere;
}

Result<void> Writer::Impl::show_permits(const flatbuffers::Vector<flatbuffers::Offset<wire::MemberPermit>>* permits) {
  if (permits == nullptr) return {};
  for (const wire::MemberPermit* permit : *permits) {
    if (!ways || permit->member() == 0 || permit->permit() == nullptr)
      return fail(ErrorCode::protocol, "the server sent a permit for a member that there is not");
    auto shown = ways->show(permit->member(), std::span(permit->permit()->data(), permit->permit()->size()));
    if (!shown) {
      members_lost.insert(permit->member());
      return fail(std::move(shown.error()));
    }
    Member& member = members[permit->member()];
    member.storage_incarnation = shown->at.storage_incarnation;
    if (!shown->at.connection->is_remote()) {
      ASSIGN_OR_RETURN(const auto opened, protocol::body_of<wire::MemberOpened>(shown->opened));
      RETURN_IF_ERROR(segments.add(opened->segments(), std::move(shown->opened.descriptors)));
      continue;
    }
    if (!member.space) member.space = std::make_shared<client::RemoteSpace>(false);
    if (member.generation != shown->at.generation) {
      // What another connection was let in to write counts on that one alone.
      member.generation = shown->at.generation;
      member.space->use(shown->at.connection);
    }
    if (const auto numbers = fabric::segments_in(std::span(permit->permit()->data(), permit->permit()->size())))
      member.permitted.insert(numbers->begin(), numbers->end());
  }
  return {};
}

Result<void> Writer::Impl::request_expected_space() {
  if (space.free_bytes(kind_of_space(false)) >= expected_bytes) return {};
  auto requested = request_space(expected_bytes, 0, false);
  if (requested || requested.error().code != ErrorCode::unavailable) return requested;
  wire::StepAbortT request;
  request.step = step;
  request.members_lost = lost_members();
  RETURN_IF_ERROR(order(MessageType::step_abort, request));
  members_lost.clear();
  give_up_members();
  return {};
}

std::vector<std::uint16_t> Writer::Impl::lost_members() const {
  std::set<std::uint16_t> lost = members_lost;
  for (const auto& [number, member] : members)
    if (member.space && member.space->has_lost()) lost.insert(number);
  return {lost.begin(), lost.end()};
}

Result<void> Writer::Impl::finish_members() {
  std::set<std::uint16_t> used;
  for (const client::Extent& extent : space.used())
    if (extent.member != 0) used.insert(extent.member);
  for (const std::uint16_t number : used) {
    Member& member = members[number];
    if (member.space) RETURN_IF_ERROR(member.space->finish(part));
    part.members.emplace_back(member.storage_incarnation, number, 0, 0);
  }
  return {};
}

void Writer::Impl::give_up_members() {
  if (!ways) return;
  // What is on its way there is not to meet what others write: a member ends with the connection all that it let in.
  ways->drop_connections();
  for (auto& [number, member] : members) member.permitted.clear();
  space.drop_elsewhere();
  if (grant) grant->at_home_only = true;
  blocks_at_home = false;
}

}  // namespace forebay
