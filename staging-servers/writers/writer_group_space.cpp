// SPDX-License-Identifier: Apache-2.0
// The space that the ranks of a writer group have been granted and have not written a part to yet.
#include <fmt/format.h>

#include "base/log.h"
#include "space/reservation_space.h"
#include "writers/writer_group.h"
#include "writers/writer_session.h"

namespace forebay::server {

std::uint64_t WriterGroup::granted_bytes() const {
  std::uint64_t bytes = 0;
  for (const Rank& rank : ranks_) {
    bytes += rank.granted.total();
    if (rank.part) {
      for (const auto& extent : rank.part->part.extents) bytes += extent.length();
    }
  }
  return bytes;
}

bool WriterGroup::holds_space_in(std::uint32_t segment) const {
  return std::ranges::any_of(ranks_, [segment](const Rank& rank) {
    if (rank.granted.any_in(segment)) return true;
    return rank.part && std::ranges::any_of(rank.part->part.extents,
                                            [segment](const auto& extent) { return extent.segment() == segment; });
  });
}

std::uint64_t WriterGroup::grant_bytes_max() const {
  const std::uint64_t message_bytes = protocol::descriptors_max * space_.segments().record().segment_bytes / 2;
  return std::max(message_bytes, space_unit_bytes);
}

void WriterGroup::take_back_part(Rank& rank) {
  if (!rank.part) return;
  rank.granted.add(rank.part->part.extents);
  const auto pin = rank.part->pin;
  rank.part.reset();
  unpin(pin);
}

void WriterGroup::unpin(const std::optional<WriterPin>& pin) {
  if (pin) followers_.unpin_for_writer(pin->session, pin->key);
}

void WriterGroup::give_back(Rank& rank) {
  take_back_part(rank);
  for (const Extent& extent : rank.granted.take_all()) space_.release(extent);
}

void WriterGroup::describe_grant(WriterSession& session, const std::vector<Extent>& extents,
                                 std::vector<wire::Extent>& wire_extents, std::vector<std::uint32_t>& segments,
                                 std::vector<Descriptor>& descriptors) {
  for (const Extent& extent : extents) {
    wire_extents.emplace_back(extent.segment, 0, 0, extent.offset, extent.length);
    if (session.connection().segments_sent.contains(extent.segment) || descriptors.size() == protocol::descriptors_max)
      continue;
    auto descriptor = space_.segments().open(extent.segment, true);
    if (!descriptor) {
      log::error("{}", descriptor.error().message());
      continue;  // the client asks for it when it needs it (SegmentsGet)
    }
    session.connection().segments_sent.insert(extent.segment);
    segments.push_back(extent.segment);
    descriptors.push_back(std::move(*descriptor));
  }
}

void WriterGroup::request_space(WriterSession& session, std::uint32_t request, std::uint64_t step, std::uint64_t bytes,
                                std::uint64_t ahead_bytes) {
  Rank* rank = rank_of(session, request);
  if (rank == nullptr) return;
  if (auto stays = space_.segments().check_stays(); !stays) {
    session.connection().answer_failure(request, stays.error());
    return;
  }
  if (step != state_.next_step || bytes == 0) {
    session.connection().answer_failure(
        request,
        {ErrorCode::protocol, fmt::format("space asked for step {}, but step {} is next", step, state_.next_step),
         "stream " + stream_.path()});
    return;
  }
  if (rejoining_) {
    // Free space may be what an absent rank holds.
    deferred_.push_back([this, number = session.rank, request, step, bytes, ahead_bytes] {
      if (ranks_[number].session != nullptr) request_space(*ranks_[number].session, request, step, bytes, ahead_bytes);
    });
    return;
  }
  if (bytes > space_.map().total_bytes()) {
    // Said at once: what is granted piece by piece would drop steps for a step that never fits.
    session.connection().answer_failure(
        request, {ErrorCode::no_space,
                  fmt::format("{} bytes are asked for, but reservation {} has {} in all; make a larger one", bytes,
                              space_.reservation(), space_.map().total_bytes()),
                  "stream " + stream_.path()});
    return;
  }
  if (!step_order_) step_order_ = space_.queue().next_order();
  const auto answer = [this, number = session.rank, incarnation = incarnation_,
                       request](Result<std::vector<Extent>> result) {
    if (incarnation != incarnation_ || number >= ranks_.size() || ranks_[number].session == nullptr ||
        ranks_[number].closed) {
      if (result) {
        for (const Extent& extent : *result) space_.release(extent);
      }
      return;
    }
    WriterSession& asker = *ranks_[number].session;
    if (!result) {
      asker.connection().answer_failure(request, result.error());
      return;
    }
    ranks_[number].granted.add(*result);
    wire::SpaceGrantedT granted;
    std::vector<Descriptor> descriptors;
    describe_grant(asker, *result, granted.extents, granted.segments, descriptors);
    asker.connection().answer(protocol::MessageType::space_granted, request, granted, std::move(descriptors));
  };
  const Owner owner{stream_number_, incarnation_, session.rank};
  const auto when_full = static_cast<WhenFull>(options_.when_full);
  const std::uint64_t wanted = std::min(bytes, grant_bytes_max());
  if (space_.queue().is_next(*step_order_)) {
    const std::uint64_t welcome = std::min(ahead_bytes, grant_bytes_max() - wanted);
    if (auto extents = space_.allocate_ahead(stream_, owner, wanted + welcome); !extents.empty()) {
      answer(std::move(extents));
      return;
    }
    if (auto extents = space_.allocate(stream_, owner, wanted, when_full)) {
      answer(std::move(*extents));
      return;
    }
  }
  if (state_.status == StreamStatus::failed) {
    // Before, or just now when the grant was to be written down. What is missing is not space_.
    answer(fail(ErrorCode::failed, "the stream has failed and gets no more space: " + state_.status_text,
                "stream " + stream_.path()));
    return;
  }
  SpaceWaiter waiter;
  waiter.order = *step_order_;
  waiter.bytes = wanted;
  waiter.when_full = when_full;
  waiter.user = &stream_;
  waiter.owner = owner;
  waiter.answer = answer;
  space_.queue().wait(std::move(waiter), options_.block_timeout_ms);
}

}  // namespace forebay::server
