// SPDX-License-Identifier: Apache-2.0
// What lies on other members: it is synced, counted, and compared with its checksums.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/fail_point.h"
#include "base/joined_checksum.h"
#include "base/log.h"
#include "members/home_members.h"
#include "members/member_share.h"
#include "members/sync_counters.h"

namespace forebay::server {

using protocol::MessageType;

namespace {

constexpr std::int64_t sync_timeout_ms = 120'000;
constexpr std::int64_t checksum_timeout_ms = 120'000;

bool is_lost(const Error& error) {
  return error.code == ErrorCode::disconnected || error.code == ErrorCode::timeout ||
         error.code == ErrorCode::cancelled;
}

}  // namespace

struct HomeMembers::SyncRound {
  std::size_t left = 0;
  std::map<std::uint16_t, std::uint64_t> incarnations;
  std::optional<Error> error;
  Synced done;
};

void HomeMembers::sync(const std::set<std::uint32_t>& segments, Synced done) {
  std::map<std::uint16_t, wire::MemberSyncT> messages;
  for (const std::uint32_t segment : segments) {
    const std::uint16_t number = member_of(segment);
    if (const std::string* away = absence(number)) {
      done(fail(ErrorCode::unavailable, fmt::format("member {} cannot be used: {}", number, *away)));
      return;
    }
    messages[number].segments.push_back(segment);
  }
  auto round = std::make_shared<SyncRound>();
  round->left = messages.size();
  round->done = std::move(done);
  for (auto& [number, message] : messages) ask_sync(number, std::move(message), round);
}

void HomeMembers::ask_sync(std::uint16_t number, wire::MemberSyncT message, const std::shared_ptr<SyncRound>& round) {
  Member& member = members_.at(number);
  message.reservation = segments_.record().id;
  message.server_run = member.server_run;
  member.syncs->ask(MessageType::member_sync, message, MessageType::member_synced, sync_timeout_ms, alive_,
                    [this, number, round](const Result<protocol::Message>& answer) {
                      took_sync(number, answer, *round);
                      if (--round->left == 0) store_syncs(round);
                    });
}

void HomeMembers::took_sync(std::uint16_t number, const Result<protocol::Message>& answer, SyncRound& round) {
  const auto body = answer ? protocol::body_of<wire::MemberSynced>(*answer) : fail(answer.error());
  if (body) {
    round.incarnations[number] = (*body)->storage_incarnation();
    Member& member = members_.at(number);
    member.counter = std::max(member.counter, (*body)->syncs());
    return;
  }
  Error error = body.error();
  const bool lost = is_lost(error);
  if (lost) set_absent(number, error.message());
  // Only what the member's disk has said is final.
  const bool final = error.code == ErrorCode::io_error || error.code == ErrorCode::no_space;
  if (!final) error.code = lost ? ErrorCode::unavailable : ErrorCode::busy;
  round.error = std::move(error);
}

void HomeMembers::store_syncs(const std::shared_ptr<SyncRound>& round) {
  if (round->error) {
    round->done(fail(std::move(*round->error)));
    return;
  }
  std::vector<std::uint64_t> counters = counters_to_store();
  services_.sync_worker.add([this, round, counters = std::move(counters), folder = folder_, &device = services_.device,
                             &loop = loop_, alive = std::weak_ptr<const bool>(alive_)] {
    fail_point("server.home.before_counters");
    auto stored = store_sync_counters(device, folder, counters);
    fail_point("server.home.counted");
    loop.post([this, round, counters, alive, stored = std::move(stored)] {
      if (alive.expired()) return;
      if (!stored) {
        round->done(fail(stored.error()));
        return;
      }
      for (auto& [number, member] : members_) member.stored_counter = std::max(member.stored_counter, counters[number]);
      round->done(std::move(round->incarnations));
    });
  });
}

std::vector<std::uint64_t> HomeMembers::counters_to_store() const {
  std::vector<std::uint64_t> counters(segments_.record().members.size());
  for (const auto& [number, member] : members_) counters[number] = member.counter;
  counters[segments_.own_member()] = numbers_below_;
  return counters;
}

void HomeMembers::keep_numbers() {
  numbers_below_ = next_number_ + numbers_kept;
  services_.sync_worker.add([counters = counters_to_store(), folder = folder_, &device = services_.device] {
    if (auto stored = store_sync_counters(device, folder, counters); !stored)
      log::error("{}", stored.error().message());
  });
}

void HomeMembers::take_for_current(std::uint16_t number) {
  Member& member = members_.at(number);
  if (!member.old || std::exchange(member.becomes_current, true)) return;
  wire::MemberSyncT message;
  // Whoever has put the copy there need not have synced it.
  const auto [first, end] = segments_.layout().segments_of(number);
  for (std::uint32_t segment = first; segment < end; ++segment)
    if (!segments_.has_failed(segment) && segments_.damage_of(segment) == nullptr) message.segments.push_back(segment);
  message.syncs_before = member.counter;
  auto round = std::make_shared<SyncRound>();
  round->left = 1;
  round->done = [this, number](const Result<std::map<std::uint16_t, std::uint64_t>>& synced) {
    members_.at(number).becomes_current = false;
    // The next look finds it current; or old still, and says so again.
    if (!synced)
      lines_.warning("reservation {}: member {} cannot be taken for current yet: {}", segments_.reservation(), number,
                     synced.error().message());
  };
  ask_sync(number, std::move(message), round);
}

/// What is asked in several messages, one after another: extents in pieces that each fit into one.
struct HomeMembers::ChecksumRound {
  struct Piece {
    std::size_t extent = 0;
    Extent place;
  };
  std::vector<Piece> pieces;
  std::size_t asked = 0;  ///< pieces of which the answers are there
  std::vector<std::optional<std::uint32_t>> checksums;
  Checksummed done;
};

void HomeMembers::checksum(std::uint16_t number, std::vector<Extent> extents, Checksummed done) {
  auto round = std::make_shared<ChecksumRound>();
  for (std::size_t i = 0; i < extents.size(); ++i) {
    for (Extent rest = extents[i]; rest.length > 0;) {
      const std::uint64_t length = std::min(rest.length, MemberShare::checksum_bytes_max);
      round->pieces.push_back({i, {rest.segment, rest.offset, length}});
      rest.offset += length;
      rest.length -= length;
    }
  }
  round->checksums.assign(extents.size(), 0);
  round->done = std::move(done);
  ask_checksums(number, round);
}

void HomeMembers::ask_checksums(std::uint16_t number, const std::shared_ptr<ChecksumRound>& round) {
  const Member& member = members_.at(number);
  if (round->asked == round->pieces.size()) {
    round->done(std::move(round->checksums));
    return;
  }
  if (!member.answers) {
    round->done(fail(ErrorCode::unavailable, member.absence.value_or("it does not answer")));
    return;
  }
  wire::MemberChecksumT message;
  message.reservation = segments_.record().id;
  std::uint64_t bytes = 0;
  for (std::size_t i = round->asked; i < round->pieces.size() && message.extents.size() < MemberShare::extents_max;
       ++i) {
    const Extent& place = round->pieces[i].place;
    if ((bytes += place.length) > MemberShare::checksum_bytes_max) break;
    message.extents.emplace_back(place.segment, number, 0, place.offset, place.length);
  }
  links_.to(segments_.record().members[number]->server, MemberLinks::Use::checks)
      .ask(MessageType::member_checksum, message, MessageType::member_checksummed, checksum_timeout_ms, alive_,
           [this, number, round, count = message.extents.size()](const Result<protocol::Message>& answer) {
             const auto body = answer ? protocol::body_of<wire::MemberChecksummed>(*answer) : fail(answer.error());
             if (!body) {
               const bool lost = is_lost(body.error());
               round->done(fail(lost ? ErrorCode::unavailable : body.error().code, body.error().what));
               return;
             }
             const auto checksums = protocol::numbers_of((*body)->checksums());
             if (checksums.size() != count) {
               round->done(
                   fail(ErrorCode::protocol, "a member has answered with other checksums than it was asked for"));
               return;
             }
             std::set<std::uint32_t> unreadable;
             for (const std::uint32_t index : protocol::numbers_of((*body)->unreadable())) unreadable.insert(index);
             for (std::uint32_t i = 0; i < count; ++i) {
               const auto& piece = round->pieces[round->asked + i];
               auto& known = round->checksums[piece.extent];
               known = known && !unreadable.contains(i)
                           ? std::optional(joined_checksum(*known, checksums[i], piece.place.length))
                           : std::nullopt;
             }
             round->asked += count;
             ask_checksums(number, round);
           });
}

}  // namespace forebay::server
