// SPDX-License-Identifier: Apache-2.0
#include "writers/space_grants.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/return_error.h"
#include "base/size_text.h"
#include "space/reservation_space.h"
#include "writers/remote_window.h"
#include "writers/writer_session.h"

namespace forebay::server {

namespace {

SpacePlace place_for(WriterSession& session, bool at_home) {
  SpacePlace place{at_home, session.near, {}};
  std::erase_if(session.avoids, [now = monotonic_ns()](const auto& entry) { return entry.second <= now; });
  for (const auto& [member, until_ns] : session.avoids) place.avoid.insert(member);
  return place;
}

}  // namespace

std::uint64_t SpaceGrants::bytes_max() const {
  const std::uint64_t message_bytes = protocol::descriptors_max * space_.segments().record().segment_bytes / 2;
  return std::max(message_bytes, space_unit_bytes);
}

template <class Answer>
void SpaceGrants::describe(WriterSession& session, const std::vector<Extent>& extents, Answer& answer,
                           std::vector<Descriptor>& descriptors) {
  const bool remote = session.connection().is_remote();
  const Segments& segments = space_.segments();
  open_window(incarnation_.ranks()[session.rank], segments, extents);
  std::set<std::uint32_t> elsewhere;
  for (const Extent& extent : extents) {
    const std::uint16_t member = segments.layout().member_of(extent.segment).value();
    answer.extents.emplace_back(extent.segment, member, 0, extent.offset, extent.length);
    if (!segments.is_own(extent.segment)) {
      if (!session.is_permitted(extent.segment, segments.others()->server_run(member)))
        elsewhere.insert(extent.segment);
      continue;
    }
    if (remote || session.connection().segments_sent.contains(extent.segment) ||
        descriptors.size() == protocol::descriptors_max)
      continue;
    auto descriptor = space_.open_to_write(extent.segment, session.connection().peer().uid);
    if (!descriptor) {
      space_.segments().lines.error("{}", descriptor.error().message());
      continue;  // the client asks for it when it needs it (SegmentsGet)
    }
    session.connection().segments_sent.insert(extent.segment);
    answer.segments.push_back(extent.segment);
    descriptors.push_back(std::move(*descriptor));
  }
  permit(session, elsewhere, answer.permits);
}

void SpaceGrants::permit(WriterSession& session, const std::set<std::uint32_t>& segments,
                         std::vector<std::unique_ptr<wire::MemberPermitT>>& permits) {
  std::map<std::uint16_t, std::vector<std::uint32_t>> wanted;
  for (const std::uint32_t segment : segments)
    wanted[space_.segments().layout().member_of(segment).value()].push_back(segment);
  OtherMembers* const others = space_.segments().others();
  const PermitHolder holder{session.connection().peer().uid, session.access_generation(), state_.uuid,
                            incarnation_.number(), session.rank};
  for (auto& [member, numbers] : wanted) {
    if (others == nullptr || others->absence(member) != nullptr) continue;
    // Descriptors of as many go with one answer of the member.
    while (!numbers.empty()) {
      const auto rest =
          numbers.begin() + static_cast<std::ptrdiff_t>(std::min(numbers.size(), protocol::descriptors_max));
      std::vector<std::uint32_t> some(numbers.begin(), rest);
      numbers.erase(numbers.begin(), rest);
      for (const std::uint32_t segment : some) session.permitted[segment] = others->server_run(member);
      auto told = std::make_unique<wire::MemberPermitT>();
      told->member = member;
      told->permit = others->permit(member, holder, std::move(some));
      permits.push_back(std::move(told));
    }
  }
}

Result<void> SpaceGrants::check(const wire::SpaceRequestT& asked) const {
  RETURN_IF_ERROR(space_.segments().check_stays());
  if (asked.step != state_.next_step || asked.bytes == 0) {
    return fail(ErrorCode::protocol,
                fmt::format("space asked for step {}, but step {} is next", asked.step, state_.next_step),
                "stream " + stream_.path());
  }
  const auto& layout = space_.segments().layout();
  const std::uint64_t bytes = std::max(asked.bytes, asked.whole_bytes);
  const std::uint64_t most = asked.at_home && layout.has_others()
                                 ? layout.member_segments().front() * space_.segments().record().segment_bytes
                                 : space_.map().total_bytes();
  if (bytes > most) {
    // Said at once: what is granted piece by piece would drop steps for a step that never fits.
    return fail(ErrorCode::no_space,
                fmt::format("{} are requested, but reservation {} has {} {}; create a larger one", size_text(bytes),
                            space_.reservation(), size_text(most),
                            most < space_.map().total_bytes() ? "on its home" : "in all"),
                "stream " + stream_.path());
  }
  return {};
}

void SpaceGrants::request(WriterSession& session, std::uint32_t request, const wire::SpaceRequestT& asked) {
  if (!step_order_) step_order_ = space_.queue().next_order();
  const Owner owner = incarnation_.owner(session.rank);
  const WhenFull when_full = incarnation_.when_full();
  const std::uint64_t wanted = std::min(asked.bytes, bytes_max());
  const SpacePlace place = place_for(session, asked.at_home);
  if (space_.queue().is_next(*step_order_)) {
    const std::uint64_t welcome = std::min(asked.ahead_bytes, bytes_max() - wanted);
    if (auto extents = space_.allocate_ahead(stream_, owner, wanted + welcome, place); !extents.empty()) {
      answer(owner, request, std::move(extents));
      return;
    }
    if (auto extents = space_.allocate(stream_, owner, wanted, when_full, place)) {
      answer(owner, request, std::move(*extents));
      return;
    }
  }
  if (state_.status == StreamStatus::failed) {
    // Before, or just now when the grant was to be written down. What is missing is not space.
    answer(owner, request,
           fail(ErrorCode::failed, "the stream has failed and gets no more space: " + state_.status_text,
                "stream " + stream_.path()));
    return;
  }
  SpaceWaiter waiter;
  waiter.order = *step_order_;
  waiter.bytes = wanted;
  waiter.when_full = when_full;
  waiter.place = place;
  waiter.user = &stream_;
  waiter.owner = owner;
  waiter.answer = [this, owner, request](Result<std::vector<Extent>> space) {
    answer(owner, request, std::move(space));
  };
  space_.queue().wait(std::move(waiter), incarnation_.block_timeout_ms());
}

void SpaceGrants::answer(const Owner& owner, std::uint32_t request, Result<std::vector<Extent>> space) {
  auto& ranks = incarnation_.ranks();
  if (owner.incarnation != incarnation_.number() || owner.rank >= ranks.size() ||
      ranks[owner.rank].session == nullptr || ranks[owner.rank].closed) {
    if (space) {
      for (const Extent& extent : *space) space_.release(extent);
    }
    return;
  }
  WriterSession& asker = *ranks[owner.rank].session;
  if (!space) {
    asker.connection().answer_failure(request, space.error());
    return;
  }
  ranks[owner.rank].granted.add(*space);
  wire::SpaceGrantedT granted;
  std::vector<Descriptor> descriptors;
  describe(asker, *space, granted, descriptors);
  asker.connection().answer(protocol::MessageType::space_granted, request, granted, std::move(descriptors));
}

void SpaceGrants::answer_committed(WriterSession& session, std::uint32_t request, std::uint64_t step,
                                   std::uint64_t next_bytes, bool ahead) {
  wire::CommittedT committed;
  committed.step = step;
  std::vector<Descriptor> descriptors;
  if (ahead && incarnation_.is_member(session)) {
    WriterRank& rank = incarnation_.ranks()[session.rank];
    const std::uint64_t held = rank.granted.total();
    if (next_bytes > held) {
      const auto extents = space_.allocate_ahead(stream_, incarnation_.owner(session.rank),
                                                 std::min(next_bytes - held, bytes_max()), place_for(session, false));
      rank.granted.add(extents);
      describe(session, extents, committed, descriptors);
    }
  }
  session.connection().answer(protocol::MessageType::committed, request, committed, std::move(descriptors));
}

void SpaceGrants::give_back(WriterRank& rank) {
  give_back_elsewhere(rank);
  for (const Extent& extent : rank.granted.take_all()) space_.release(extent);
  follow_grants(rank);
}

void SpaceGrants::give_back_elsewhere(WriterRank& rank) {
  OtherMembers* const others = space_.segments().others();
  if (others == nullptr) return;
  const auto number = static_cast<std::uint32_t>(&rank - incarnation_.ranks().data());
  const bool has_permits = rank.session == nullptr || !rank.session->permitted.empty();
  if (rank.session != nullptr) rank.session->permitted.clear();
  const auto extents =
      rank.granted.take_if([this](std::uint32_t segment) { return !space_.segments().is_own(segment); });
  // Whoever has nothing, and was let in nowhere since the last fence, can write nowhere.
  if (!extents.empty() || has_permits) others->fence(state_.uuid, incarnation_.number(), number, extents);
}

}  // namespace forebay::server
