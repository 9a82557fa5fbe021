// SPDX-License-Identifier: Apache-2.0
#include "writers/space_grants.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "base/return_error.h"
#include "base/size_text.h"
#include "space/reservation_space.h"
#include "writers/remote_window.h"
#include "writers/writer_session.h"

namespace forebay::server {

std::uint64_t SpaceGrants::bytes_max() const {
  const std::uint64_t message_bytes = protocol::descriptors_max * space_.segments().record().segment_bytes / 2;
  return std::max(message_bytes, space_unit_bytes);
}

void SpaceGrants::describe(WriterSession& session, const std::vector<Extent>& extents,
                           std::vector<wire::Extent>& wire_extents, std::vector<std::uint32_t>& segments,
                           std::vector<Descriptor>& descriptors) {
  const bool remote = session.connection().is_remote();
  open_window(incarnation_.ranks()[session.rank], space_.segments(), extents);
  for (const Extent& extent : extents) {
    const std::uint16_t member = space_.segments().layout().member_of(extent.segment).value();
    wire_extents.emplace_back(extent.segment, member, 0, extent.offset, extent.length);
    if (remote || session.connection().segments_sent.contains(extent.segment) ||
        descriptors.size() == protocol::descriptors_max)
      continue;
    auto descriptor = space_.open_to_write(extent.segment, session.connection().peer().uid);
    if (!descriptor) {
      space_.segments().lines.error("{}", descriptor.error().message());
      continue;  // the client asks for it when it needs it (SegmentsGet)
    }
    session.connection().segments_sent.insert(extent.segment);
    segments.push_back(extent.segment);
    descriptors.push_back(std::move(*descriptor));
  }
}

Result<void> SpaceGrants::check(std::uint64_t step, std::uint64_t bytes) const {
  RETURN_IF_ERROR(space_.segments().check_stays());
  if (step != state_.next_step || bytes == 0) {
    return fail(ErrorCode::protocol,
                fmt::format("space asked for step {}, but step {} is next", step, state_.next_step),
                "stream " + stream_.path());
  }
  if (bytes > space_.map().total_bytes()) {
    // Said at once: what is granted piece by piece would drop steps for a step that never fits.
    return fail(ErrorCode::no_space,
                fmt::format("{} are requested, but reservation {} has {} in all; create a larger one", size_text(bytes),
                            space_.reservation(), size_text(space_.map().total_bytes())),
                "stream " + stream_.path());
  }
  return {};
}

void SpaceGrants::request(WriterSession& session, std::uint32_t request, std::uint64_t bytes,
                          std::uint64_t ahead_bytes) {
  if (!step_order_) step_order_ = space_.queue().next_order();
  const Owner owner = incarnation_.owner(session.rank);
  const WhenFull when_full = incarnation_.when_full();
  const std::uint64_t wanted = std::min(bytes, bytes_max());
  if (space_.queue().is_next(*step_order_)) {
    const std::uint64_t welcome = std::min(ahead_bytes, bytes_max() - wanted);
    if (auto extents = space_.allocate_ahead(stream_, owner, wanted + welcome); !extents.empty()) {
      answer(owner, request, std::move(extents));
      return;
    }
    if (auto extents = space_.allocate(stream_, owner, wanted, when_full)) {
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
  describe(asker, *space, granted.extents, granted.segments, descriptors);
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
      const auto extents =
          space_.allocate_ahead(stream_, incarnation_.owner(session.rank), std::min(next_bytes - held, bytes_max()));
      rank.granted.add(extents);
      describe(session, extents, committed.extents, committed.segments, descriptors);
    }
  }
  session.connection().answer(protocol::MessageType::committed, request, committed, std::move(descriptors));
}

void SpaceGrants::give_back(WriterRank& rank) {
  for (const Extent& extent : rank.granted.take_all()) space_.release(extent);
  follow_grants(rank);
}

}  // namespace forebay::server
