// SPDX-License-Identifier: Apache-2.0
// How a step begins, gets its space, and is published after its last block.
#include <algorithm>
#include <utility>

#include "base/bounds.h"
#include "base/checksum.h"
#include "base/fail_point.h"
#include "base/return_error.h"
#include "client/writing/writer_rejoin.h"
#include "protocol/step_metadata.h"

namespace forebay {

using client::Extent;
using protocol::MessageType;
using protocol::page_bytes;

namespace {

// A step that grows asks for as much again, so that not each block is a question of its own. The server gives it only
// where nobody else needs it.
constexpr std::uint64_t ahead_bytes_least = std::uint64_t{64} << 10;
constexpr std::uint64_t ahead_bytes_most = std::uint64_t{4} << 20;
// Metadata up to this size goes with the small blocks, larger ones into pages of their own.
constexpr std::uint64_t small_metadata_bytes_max = std::uint64_t{32} << 10;

}  // namespace

Result<void> Writer::Impl::wait_for_readers() {
  if (options.lag_limit.value_or(0) == 0) return {};
  wire::StepBeginT request;
  request.step = step;
  request.lag_limit = *options.lag_limit;
  request.timeout_ms = options.block_timeout_ms;
  RETURN_IF_ERROR(ask(begin_request, MessageType::step_begin, request, MessageType::done, nullptr));
  return {};
}

Result<void> Writer::Impl::take_space(std::uint64_t bytes, bool whole_pages, bool at_home) {
  while (true) {
    pieces.clear();
    const client::SpaceKind kind = kind_of_space(at_home);
    if (whole_pages) {
      if (space.take_pages(bytes, pieces, kind)) return {};
    } else if (auto piece = space.take_small(bytes, kind)) {
      pieces.push_back(*piece);
      return {};
    }
    const auto needed = checked_add(bytes, page_bytes);
    if (!needed)
      return fail(ErrorCode::invalid_argument,
                  "a block of " + std::to_string(bytes) + " bytes is larger than any reservation", where());
    // Small pieces of several pages may not fit although there is room in all: then there must be more.
    const std::uint64_t least = whole_pages ? bytes : std::max(bytes, space.free_bytes(kind) + page_bytes);
    const std::uint64_t ahead = std::clamp(space.used_bytes(), ahead_bytes_least, ahead_bytes_most);
    RETURN_IF_ERROR(request_space(round_up(least, page_bytes), ahead, at_home));
  }
}

Result<void> Writer::Impl::request_space(std::uint64_t bytes, std::uint64_t ahead, bool at_home) {
  if (auto taken = take_grant(true); !taken) return failed(std::move(taken.error()));
  allocated.reuse_released();
  while (space.free_bytes(kind_of_space(at_home)) < bytes) {
    wire::SpaceRequestT request;
    request.step = step;
    request.bytes = bytes - space.free_bytes(kind_of_space(at_home));
    request.ahead_bytes = ahead;
    request.whole_bytes = bytes;
    request.at_home = at_home && ways;
    ASSIGN_OR_RETURN(auto answer,
                     ask(space_request, MessageType::space_request, request, MessageType::space_granted, nullptr));
    auto body = protocol::body_of<wire::SpaceGranted>(*answer);
    if (!body) return failed(std::move(body.error()));
    if ((*body)->extents() == nullptr || (*body)->extents()->size() == 0) {
      return failed({ErrorCode::protocol, "the server granted nothing", {}});
    }
    // Where the others are full or away, or this is the home's node.
    if (ways && !at_home) {
      for (const wire::Extent* extent : *(*body)->extents()) blocks_at_home = blocks_at_home || extent->member() == 0;
    }
    grant = Grant{std::move(*answer), (*body)->extents(), (*body)->segments(), (*body)->permits()};
    if (auto taken = take_grant(true); !taken) return failed(std::move(taken.error()));
  }
  return {};
}

Result<void> Writer::Impl::take_grant(bool may_ask) {
  if (!grant) return {};
  // Not where a rejoin would end it, for what is asked meanwhile may bring one.
  Grant taking = std::move(*grant);
  grant.reset();
  const std::uint64_t before = rejoins;
  auto taken = take(taking, may_ask);
  if (rejoins == before && !(taken && *taken)) grant = std::move(taking);
  if (!taken) return fail(std::move(taken.error()));
  return {};
}

wire::SegmentsGetT Writer::Impl::missing_segments(const Grant& granted) const {
  wire::SegmentsGetT missing;
  for (const wire::Extent* extent : *granted.extents) {
    const std::uint32_t segment = extent->segment();
    if (granted.at_home_only && extent->member() != 0) continue;
    if (!segments.find(segment) && (missing.segments.empty() || missing.segments.back() != segment))
      missing.segments.push_back(segment);
  }
  return missing;
}

Result<bool> Writer::Impl::take(Grant& granted, bool may_ask) {
  // Once: a grant that lacks some is looked at again.
  if (auto added =
          segments.add(std::exchange(granted.segments, nullptr), std::exchange(granted.message.descriptors, {}));
      !added) {
    return fail(std::move(added.error()));
  }
  if (granted.extents == nullptr) return true;
  if (granted.permits != nullptr && !granted.at_home_only) {
    if (!may_ask) return false;
    const std::uint64_t before = rejoins;
    auto shown = show_permits(granted.permits);
    // The server was restarted meanwhile, and knows nothing of a grant that this rank did not say it held.
    if (rejoins != before) return true;
    RETURN_IF_ERROR(shown);
    granted.permits = nullptr;
  }
  // An answer brings a message's worth of them. What the server does not give is told below.
  wire::SegmentsGetT missing = missing_segments(granted);
  for (std::size_t before = missing.segments.size() + 1;
       !missing.segments.empty() && missing.segments.size() < before;) {
    if (!may_ask) return false;
    before = missing.segments.size();
    ASSIGN_OR_RETURN(auto fetched, fetch_segments(missing));
    // As above.
    if (!fetched) return true;
    missing = missing_segments(granted);
  }
  std::vector<Extent> added;
  for (const wire::Extent* extent : *granted.extents) {
    if (granted.at_home_only && extent->member() != 0) continue;
    const auto segment = segments.find(extent->segment());
    const bool whole = extent->length() > 0 && extent->offset() % page_bytes == 0 && extent->length() % page_bytes == 0;
    if (!segment || !whole || !segment->check(extent->member(), extent->offset(), extent->length())) {
      return fail(ErrorCode::protocol, "the server granted impossible space",
                  "segment " + std::to_string(extent->segment()) + " @ " + std::to_string(extent->offset()) + " + " +
                      std::to_string(extent->length()));
    }
    added.push_back({extent->segment(), extent->member(), extent->offset(), extent->length()});
  }
  allocated.grant(added);
  return true;
}

Result<bool> Writer::Impl::fetch_segments(const wire::SegmentsGetT& missing) {
  std::uint32_t request = 0;
  const auto is_settled = [](const Impl&) { return true; };
  auto answer = ask(request, MessageType::segments_get, missing, MessageType::segments_answer, is_settled);
  if (!answer) {
    if (request != 0) connection->forget(request);
    return fail(std::move(answer.error()));
  }
  if (!*answer) return false;
  ASSIGN_OR_RETURN(auto body, protocol::body_of<wire::SegmentsAnswer>(**answer));
  RETURN_IF_ERROR(segments.add(body->segments(), std::move((*answer)->descriptors)));
  RETURN_IF_ERROR(show_permits(body->permits()));
  return true;
}

Result<void> Writer::Impl::complete_attributes() {
  if (!attributes_changed) return {};
  // One that an attempt to end this step has written is not to stay.
  forget_new_attributes();
  std::vector<std::uint8_t> encoded = protocol::encode_attributes(attributes);
  if (encoded.size() < protocol::attribute_set_bytes_min) {
    encoded_attributes = std::move(encoded);
    attribute_set.reset();
    attributes_changed = false;
    return {};
  }
  wire::AttributeSetT set;
  set.step = number;
  set.bytes = encoded.size();
  set.crc = crc32c(std::as_bytes(std::span(encoded)));
  // A page that is written whole need not be read before.
  encoded.resize(round_up(encoded.size(), page_bytes));
  pieces.clear();
  while (!space.take_apart(encoded.size(), pieces, kind_of_space(true))) {
    RETURN_IF_ERROR(request_space(encoded.size(), 0, true));
  }
  if (auto written = blocks.write_apart(std::as_bytes(std::span(encoded)), pieces); !written) {
    step_error = written.error();
    return written;
  }
  for (const Extent& extent : space.apart())
    set.extents.emplace_back(extent.segment, extent.member, 0, extent.offset, extent.length);
  attribute_set = std::move(set);
  encoded_attributes.clear();
  attributes_changed = false;
  return {};
}

void Writer::Impl::forget_new_attributes() {
  space.return_apart();
  if (!attribute_set || attribute_set->step != number) return;
  attribute_set.reset();
  attributes_changed = true;
}

Result<void> Writer::Impl::complete_part() {
  RETURN_IF_ERROR(allocated.complete(blocks, metadata));
  if (auto sent = allocated.write_private(blocks); !sent) {
    step_error = sent.error();
    return sent;
  }
  RETURN_IF_ERROR(complete_attributes());
  const std::span<const std::byte> encoded = metadata.encode(encoded_attributes);
  RETURN_IF_ERROR(take_space(encoded.size(), encoded.size() > small_metadata_bytes_max, true));
  Result<void> written = blocks.write_bytes(encoded, pieces);
  if (written) written = blocks.flush();
  part = {};
  if (written) written = finish_members();
  if (written && remote) written = remote->finish(part);
  if (!written) {
    step_error = written.error();
    return written;
  }
  space.trim();

  part.step = step;
  if (number != step) part.number = number;
  part.metadata_bytes = encoded.size();
  part.metadata_crc = crc32c(encoded);
  for (const format::Piece& piece : pieces)
    part.metadata.emplace_back(piece.segment(), piece.member(), 0, piece.offset(), piece.length());
  for (const Extent& extent : space.used())
    part.extents.emplace_back(extent.segment, extent.member, 0, extent.offset, extent.length);
  part.next_bytes = ways && !blocks_at_home ? space.used_bytes_elsewhere() : space.used_bytes();
  if (attribute_set) part.attributes = std::make_unique<wire::AttributeSetT>(*attribute_set);
  if (options.ranks > 1) part.definitions = metadata.definitions();
  return pin_if_held();
}

Result<void> Writer::Impl::publish() {
  // A commit record makes the step visible, but says nothing of durability: only a new answer does.
  const auto is_settled = [](const Impl& impl) {
    return impl.server_next_step > impl.step && impl.options.durability == Durability::committed;
  };
  fail_point("client.part.before_send");
  auto answer = ask(part_request, MessageType::part, part, MessageType::committed, is_settled);
  if (!answer) {
    // Unless the server is away or the wait was interrupted, the step is known not to exist: it may be given up.
    if (ended_by) {
      state = State::between_steps;
    } else if (part_request == 0 && !connection->is_broken()) {
      state = State::in_step;
    }
    if (state == State::in_step && part_pin) {
      part_pin->disown();
      part_pin.reset();
    } else if (ended_by) {
      // Whether the step is there is not known to all of these errors. The server passes over a pin that it does not
      // hold.
      allocated.release(part_pin);
      part_pin.reset();
    }
    return fail(std::move(answer.error()));
  }
  if (!*answer) {
    step_committed();
    return {};
  }
  auto body = protocol::body_of<wire::Committed>(**answer);
  if (!body) return failed(std::move(body.error()));
  if ((*body)->step() != number)
    return failed(
        {ErrorCode::protocol, "the server committed step " + std::to_string((*body)->step()) + " instead", {}});
  step_committed();
  // The step is committed whatever becomes of the space for the next one: what cannot be taken now is taken, or the
  // reason told, when space is needed.
  grant = Grant{std::move(**answer), (*body)->extents(), (*body)->segments(), (*body)->permits()};
  (void)take_grant(false);
  return {};
}

void Writer::Impl::step_committed() {
  // A step must not wait, fail or make others go for space that only a larger one needed.
  const std::uint64_t bytes = ways && !blocks_at_home ? space.used_bytes_elsewhere() : space.used_bytes();
  expected_bytes = std::min(bytes, std::exchange(last_bytes, bytes));
  space.end_step();
  // Where the holder has come back on another connection meanwhile, the server has taken the pin anew.
  if (part_pin && !part_pin->check()) pin_part();
  allocated.release(part_pin);
  part_pin.reset();
  state = State::between_steps;
  step = number + 1;
}

}  // namespace forebay
