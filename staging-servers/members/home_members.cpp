// SPDX-License-Identifier: Apache-2.0
#include "members/home_members.h"

#include <algorithm>
#include <ctime>
#include <iterator>
#include <utility>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/return_error.h"
#include "fabric/permit.h"
#include "members/sync_counters.h"

namespace forebay::server {

using protocol::MessageType;

namespace {

/// So many permits may be given before it is stored anew below which number they are.
constexpr std::uint64_t numbers_kept = std::uint64_t{1} << 32;

/// Those in the file, where this run's permits are now noted: the next run's begin above them.
std::vector<std::uint64_t> counters_of(const HomeMembers::Services& services, const Segments& segments,
                                       const std::string& folder) {
  const auto now = static_cast<std::uint64_t>(wall_clock_ns());
  auto counters = load_sync_counters(services.device, folder, segments.record().members.size());
  if (!counters) {
    log::error("reservation {}: {}; all that lies on other members is checked", segments.reservation(),
               counters.error().message());
    // Above all that any of them can have.
    counters = std::vector(segments.record().members.size(), now);
  }
  // The clock may have been ahead in an earlier run.
  std::uint64_t& numbers = counters->at(segments.own_member());
  numbers = std::max(now, numbers) + numbers_kept;
  if (auto stored = store_sync_counters(services.device, folder, *counters); !stored)
    log::error("reservation {}: {}", segments.reservation(), stored.error().message());
  return *counters;
}

constexpr std::int64_t look_pause_ns = 1'000'000'000;
constexpr std::int64_t look_timeout_ms = 10'000;
constexpr std::int64_t fence_timeout_ms = 30'000;
/// To one member. What is asked of it besides does not wait for more than these.
constexpr std::size_t fences_sent_max = 16;

std::string time_text(std::int64_t ns) {
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(static_cast<std::time_t>(ns / 1'000'000'000)));
}

}  // namespace

HomeMembers::HomeMembers(const Services& services, Segments& segments, std::uint64_t access_generation,
                         const std::string& folder, Events events)
    : loop_(services.loop),
      links_(services.links),
      segments_(segments),
      counters_({services.loop, services.device, services.counter_worker}, folder,
                counters_of(services, segments, folder)),
      events_(std::move(events)),
      next_number_(counters_.stored(segments.own_member()) - numbers_kept),
      access_generation_(access_generation),
      folder_(folder) {
  const auto& record = segments_.record();
  for (std::uint16_t number = 0; number < record.members.size(); ++number) {
    if (number == segments_.own_member()) continue;
    Member& member = members_[number];
    member.link = &links_.to(record.members[number]->server, MemberLinks::Use::changes);
    member.looks = &links_.to(record.members[number]->server, MemberLinks::Use::looks);
    member.syncs = &links_.to(record.members[number]->server, MemberLinks::Use::syncs);
    member.away_since_ns = wall_clock_ns();
    member.counter = member.recorded = counters_.stored(number);
    member.absence = fmt::format("server {} has not answered since this home was started", member.link->name());
    segments_.set_away(number, true);
  }
  look();
}

HomeMembers::~HomeMembers() {
  if (timer_) loop_.cancel(*timer_);
}

// Who is there

const std::string* HomeMembers::absence(std::uint16_t number) const {
  const Member& member = members_.at(number);
  return member.absence ? &*member.absence : nullptr;
}

const std::string* HomeMembers::old_copy(std::uint16_t number) const {
  return members_.at(number).old ? absence(number) : nullptr;
}

std::optional<std::uint16_t> HomeMembers::member_of_root(const std::string& uuid) const {
  const auto& members = segments_.record().members;
  const auto found = std::ranges::find_if(members, [&](const auto& member) { return member->server == uuid; });
  if (uuid.empty() || found == members.end()) return std::nullopt;
  return static_cast<std::uint16_t>(found - members.begin());
}

void HomeMembers::look() {
  timer_ = loop_.at(monotonic_ns() + look_pause_ns, [this] { look(); });
  for (auto& [number, member] : members_) {
    if (see_given_up(number) || std::exchange(member.asked, true)) continue;
    wire::MemberLookT message;
    message.reservations.push_back(segments_.record().id);
    message.syncs.push_back(counters_.stored(number));
    member.at_look = std::max(member.recorded, counters_.stored(number));
    member.asked_ns = monotonic_ns();
    member.looks->ask(MessageType::member_look, message, MessageType::member_state, look_timeout_ms, alive_,
                      [this, number = number](Result<protocol::Message> answer) { looked(number, std::move(answer)); });
  }
}

void HomeMembers::looked(std::uint16_t number, Result<protocol::Message> answer) {
  Member& member = members_.at(number);
  member.asked = false;
  if (member.given_up) return;
  const auto taken = answer ? take_state(number, *answer) : fail(std::move(answer.error()));
  if (!taken) {
    set_absent(number, taken.error().message());
    return;
  }
  member.looked_at = true;
  member.answers = true;
  if (member.old) {
    if (!member.becomes_current) events_.is_old(number, member.server_run);
    return;
  }
  if (!trouble_.empty()) return;
  const bool came = std::exchange(member.absence, std::nullopt).has_value();
  if (came) {
    lines_.info("reservation {}: member {} ({}) is there", segments_.reservation(), number, member.link->name());
    open_or_close(number);
    events_.came(number);
    events_.space_changed();
  }
  earlier_changed(number);
  send_fences(number);
  member.wanted.merge(std::exchange(member.to_map, {}));
  send_probe(number);
}

Result<void> HomeMembers::take_state(std::uint16_t number, const protocol::Message& answer) {
  ASSIGN_OR_RETURN(const auto state, protocol::body_of<wire::MemberState>(answer));
  if (state->shares() == nullptr || state->shares()->size() != 1)
    return fail(ErrorCode::protocol, "it says nothing of the reservation");
  const wire::MemberShareState& share = *state->shares()->Get(0);
  if (share.missing()) return fail(ErrorCode::not_found, "it does not have its share of the reservation");
  Member& member = members_.at(number);
  const bool other_storage = member.storage_incarnation != state->storage_incarnation();
  if (other_storage && member.storage_incarnation != 0) {
    // What had windows there is gone; and what was not synced may be.
    lines_.warning("reservation {}: member {} ({}) has lost its power", segments_.reservation(), number,
                   member.link->name());
    member.absence.emplace();
  }
  if (member.server_run != state->server_run())
    for (MemberLink* const link : {member.link, member.syncs}) link->renew();
  member.storage_incarnation = state->storage_incarnation();
  member.server_run = state->server_run();
  next_number_ = std::max(next_number_, share.permit_seen() + 1);
  if (next_number_ >= counters_.stored(segments_.own_member()))
    counters_.raise(segments_.own_member(), next_number_ + numbers_kept);
  compare_syncs(number, share);
  take_presences(number, share);
  if (!std::exchange(member.has_answered, true)) fence_earlier_run(number);
  for (const std::uint32_t segment : protocol::numbers_of(share.damaged())) {
    if (segment < segments_.map().segment_count() && member_of(segment) == number &&
        segments_.damage_of(segment) == nullptr)
      segments_.set_damaged(segment, "is out of use on its server, whose log says why");
  }
  return {};
}

void HomeMembers::compare_syncs(std::uint16_t number, const wire::MemberShareState& share) {
  Member& member = members_.at(number);
  member.looked_at = true;
  const std::uint64_t stored = counters_.stored(number);
  if (share.home_syncs() > stored && trouble_.empty()) {
    trouble_ = fmt::format(
        "it serves nothing: this server, its home, has an older copy of it (server {} knows of {} syncs, the copy of "
        "{}); stop the server and put the newer copy of its root back, or destroy the reservation",
        member.link->name(), share.home_syncs(), stored);
    log::error("reservation {}: {}", segments_.reservation(), trouble_);
    events_.home_is_old();
  }
  if (!trouble_.empty()) {
    const bool is_new = member.absence != trouble_;
    member.absence = trouble_;
    if (is_new) set_away(number);
    return;
  }
  // One that is current has at least what it has answered. Syncs whose answers did not arrive make it more.
  const bool was_old = std::exchange(member.old, share.syncs() < member.at_look);
  if (!member.old || was_old) return;
  member.absence = fmt::format(
      "server {} has an older copy of its segments than it has synced ({} of {} syncs); it is "
      "being checked",
      member.link->name(), share.syncs(), member.at_look);
  lines_.warning("reservation {}: member {}: {}", segments_.reservation(), number, *member.absence);
  set_away(number);
}

void HomeMembers::set_absent(std::uint16_t number, const std::string& why) {
  Member& member = members_.at(number);
  member.answers = false;
  const bool was_old = std::exchange(member.old, false);
  // Since when it is away that was away when this home was started is not known: the start counts.
  const bool was_there = !member.absence;
  if (std::exchange(member.looked_at, true) && !was_there && !was_old) return;
  if (was_there || was_old) member.away_since_ns = wall_clock_ns();
  lines_.warning("reservation {}: member {} ({}) is away: {}", segments_.reservation(), number, member.link->name(),
                 why);
  member.absence = fmt::format("server {} is away since {}", member.link->name(), time_text(member.away_since_ns));
  set_away(number);
}

bool HomeMembers::see_given_up(std::uint16_t number) {
  Member& member = members_.at(number);
  if (member.given_up || !links_.pool().was_given_up(member.link->uuid())) return member.given_up;
  member.given_up = true;
  member.answers = false;
  member.old = false;
  member.looked_at = true;
  member.absence = fmt::format("server {} was given up, and what lay there is lost", member.link->name());
  log::warning("reservation {}: member {}: {}", segments_.reservation(), number, *member.absence);
  set_away(number);
  events_.given_up(number);
  return true;
}

void HomeMembers::set_away(std::uint16_t number) {
  open_or_close(number);
  events_.went(number);
  events_.space_changed();
}

Result<wire::MemberAnswerT> HomeMembers::introduce(std::uint16_t number, uid_t uid, std::uint64_t access_generation,
                                                   bool writes, std::int64_t expires_ns, std::uint64_t presence) {
  const auto found = members_.find(number);
  if (found == members_.end()) return fail(ErrorCode::protocol, "the reservation has no such other member");
  const Member& member = found->second;
  const PoolServer* const place = links_.pool().find_server(member.link->uuid());
  const fabric::TokenKey* const key = links_.pool().key();
  if (member.absence || place == nullptr || key == nullptr) {
    return fail(ErrorCode::unavailable,
                fmt::format("member {} of the reservation cannot be used: {}", number,
                            member.absence ? *member.absence : "the pool does not know its server"),
                "reservation " + segments_.reservation());
  }
  wire::MemberAnswerT answer;
  answer.server = place->server;
  answer.name = place->name;
  const fabric::Token token = links_.pool().segments_introduction(uid, segments_.record().id, expires_ns);
  const auto* begin = reinterpret_cast<const std::uint8_t*>(token.claims.data());
  answer.claims.assign(begin, begin + token.claims.size());
  answer.secret.assign(token.secret.begin(), token.secret.end());
  if (!writes) {
    fabric::Permit permit = permit_of(number, uid, access_generation);
    permit.presence = presence;
    answer.permit = fabric::seal(permit, *key);
  }
  answer.presence = presence;
  answer.storage_incarnation = member.storage_incarnation;
  return answer;
}

// Who may write there

fabric::Permit HomeMembers::permit_of(std::uint16_t number, uid_t uid, std::uint64_t access_generation) {
  fabric::Permit permit;
  permit.key_id = links_.pool().key()->id;
  permit.reservation_id = segments_.record().id;
  permit.access_generation = access_generation;
  permit.uid = uid;
  permit.member = number;
  permit.server_run = members_.at(number).server_run;
  permit.number = next_number_++;
  return permit;
}

std::vector<std::uint8_t> HomeMembers::permit(std::uint16_t number, const PermitHolder& holder,
                                              std::vector<std::uint32_t> segments) {
  fabric::Permit permit = permit_of(number, holder.uid, holder.access_generation);
  permit.stream = holder.stream;
  permit.incarnation = holder.incarnation;
  permit.rank = holder.rank;
  Member& member = members_.at(number);
  for (const std::uint32_t segment : segments) {
    unwritten_.erase(segment);
    segments_.add_holder(segment, holder.uid);
    member.probing.erase(segment);
    member.wanted.erase(segment);
  }
  permit.segments = std::move(segments);
  return fabric::seal(permit, *links_.pool().key());
}

wire::MemberFenceT HomeMembers::fence_below(std::uint64_t number) const {
  wire::MemberFenceT message;
  message.reservation = segments_.record().id;
  message.below = number;
  return message;
}

void HomeMembers::fence(const std::string& stream, std::uint32_t incarnation, std::optional<std::uint32_t> rank,
                        const std::vector<Extent>& extents) {
  for (auto& [number, member] : members_) {
    std::vector<Extent> there;
    for (const Extent& extent : extents)
      if (member_of(extent.segment) == number) there.push_back(extent);
    // A rank that has nothing there may have been granted something all the same, and sent it.
    wire::MemberFenceT message = fence_below(next_number_);
    message.stream = stream;
    message.incarnation = incarnation;
    if (rank) message.rank = *rank;
    add_fence(number, std::move(message), there);
  }
}

void HomeMembers::fence_before(std::uint64_t access_generation) {
  if (access_generation <= access_generation_) return;
  access_generation_ = access_generation;
  // Ranks whose right is gone are lost, and fenced as such: the others write on.
  for (auto& [number, member] : members_) fence_readers(number, std::nullopt);
}

void HomeMembers::fence_reader(uid_t uid) {
  for (auto& [number, member] : members_) fence_readers(number, uid);
}

void HomeMembers::fence_readers(std::uint16_t number, std::optional<uid_t> uid) {
  wire::MemberFenceT message = fence_below(next_number_);
  message.readers = true;
  if (uid) message.reader = *uid;
  add_fence(number, std::move(message), {});
}

void HomeMembers::fence_earlier_run(std::uint16_t number) {
  // Its fences may not have arrived. Ranks that have come back, or may yet, keep what they have.
  wire::MemberFenceT message = fence_below(next_number_);
  message.readers = true;
  add_fence(number, message, {});
  message.readers = false;
  message.but = events_.writing();
  add_fence(number, std::move(message), {});
}

HomeMembers::FenceKind HomeMembers::kind_of(const wire::MemberFenceT& message) {
  const auto& number = message.readers ? message.reader : message.rank;
  return {message.stream, message.readers, number ? std::optional<std::uint32_t>(*number) : std::nullopt};
}

void HomeMembers::add_fence(std::uint16_t number, wire::MemberFenceT message, const std::vector<Extent>& extents) {
  Member& member = members_.at(number);
  const FenceKind kind = kind_of(message);
  auto& waiting = member.fences_waiting;
  const auto [place, is_new] = waiting.try_emplace(kind);
  Fence& fence = place->second;
  const std::uint32_t incarnation = std::max(message.incarnation, fence.message.incarnation);
  if (is_new || message.below >= fence.message.below) fence.message = std::move(message);
  fence.message.incarnation = incarnation;
  fence.extents.insert(fence.extents.end(), extents.begin(), extents.end());
  if (!kind.number && (kind.readers || !kind.stream.empty())) {
    // What a group's says holds for its ranks, and what that of all readers says for each of them.
    const auto follows = [&](const FenceKind& other) {
      return other.stream == kind.stream && other.readers == kind.readers;
    };
    for (auto next = std::next(place); next != waiting.end() && follows(next->first);) {
      const Fence& other = next->second;
      const bool says_more =
          other.message.below > fence.message.below || other.message.incarnation > fence.message.incarnation;
      if (!says_more) fence.extents.insert(fence.extents.end(), other.extents.begin(), other.extents.end());
      next = says_more ? std::next(next) : waiting.erase(next);
    }
  }
  if (waiting.size() > member.fences_waiting_max) fold_fences(number);
  send_fence(number, kind);
}

void HomeMembers::took_fence(std::uint16_t number, const FenceKind& kind) {
  Member& member = members_.at(number);
  if (kind.stream.empty() || kind.number || ++member.groups_fenced < fences_waiting_min) return;
  // The member, too, is to remember no more groups that are gone.
  member.groups_fenced = 0;
  wire::MemberFenceT message = fence_below(next_number_);
  message.but = events_.writing();
  add_fence(number, std::move(message), {});
}

std::size_t HomeMembers::fences_left() const {
  std::size_t left = 0;
  for (const auto& [number, member] : members_) left += member.fences_waiting.size() + member.fences_sent.size();
  return left;
}

void HomeMembers::fold_fences(std::uint16_t number) {
  auto& waiting = members_.at(number).fences_waiting;
  wire::MemberFenceT message = fence_below(next_number_);
  message.but = events_.writing();
  const std::set<std::string> living(message.but.begin(), message.but.end());
  std::vector<Extent> extents;
  bool users = false;
  std::erase_if(waiting, [&](const auto& entry) {
    const auto& [kind, fence] = entry;
    if (kind.readers) {
      users = users || kind.number;
      return kind.number.has_value();
    }
    if (living.contains(kind.stream)) return false;
    extents.insert(extents.end(), fence.extents.begin(), fence.extents.end());
    return true;
  });
  if (users) fence_readers(number, std::nullopt);
  const FenceKind all = kind_of(message);
  waiting[all] = {std::move(message), std::move(extents)};
  // Those of living groups stay. So that not each further one is a reason to look at all of them:
  members_.at(number).fences_waiting_max = std::max(fences_waiting_min, 2 * waiting.size());
}

void HomeMembers::send_fences(std::uint16_t number) {
  const Member& member = members_.at(number);
  std::vector<FenceKind> kinds;
  for (const auto& [kind, fence] : member.fences_waiting) {
    if (member.fences_sent.size() + kinds.size() >= fences_sent_max) break;
    if (!member.fences_sent.contains(kind)) kinds.push_back(kind);
  }
  for (const FenceKind& kind : kinds) send_fence(number, kind);
}

void HomeMembers::send_fence(std::uint16_t number, const FenceKind& kind) {
  Member& member = members_.at(number);
  // One that is away closes nothing; once it is back it is told again. What comes while one of the kind is under way
  // joins the next one.
  if (member.absence || member.fences_sent.size() >= fences_sent_max || member.fences_sent.contains(kind)) return;
  auto taken = member.fences_waiting.extract(kind);
  if (!taken) return;
  const Fence& fence = member.fences_sent.emplace(kind, std::move(taken.mapped())).first->second;
  member.link->ask(MessageType::member_fence, fence.message, MessageType::done, fence_timeout_ms, alive_,
                   [this, number, kind](const Result<protocol::Message>& answer) {
                     Fence told = std::move(members_.at(number).fences_sent.extract(kind).mapped());
                     if (!answer) {
                       set_absent(number, answer.error().message());
                       add_fence(number, std::move(told.message), told.extents);
                       return;
                     }
                     for (const Extent& extent : told.extents) events_.release(extent);
                     took_fence(number, kind);
                     send_fences(number);
                     send_probe(number);
                   });
}

std::vector<Extent> HomeMembers::fenced_space() const {
  std::vector<Extent> extents;
  for (const auto& [number, member] : members_) {
    for (const Fences* const fences : {&member.fences_waiting, &member.fences_sent})
      for (const auto& [kind, fence] : *fences)
        extents.insert(extents.end(), fence.extents.begin(), fence.extents.end());
  }
  return extents;
}

bool HomeMembers::nobody_writes(std::uint32_t segment) {
  if (unwritten_.contains(segment)) return true;
  const std::uint16_t number = member_of(segment);
  Member& member = members_.at(number);
  if (member.absence || member.probing.contains(segment)) return false;
  // All that are wanted now go in one message.
  if (member.wanted.empty()) {
    loop_.post([this, number, alive = std::weak_ptr<const bool>(alive_)] {
      if (!alive.expired()) send_probe(number);
    });
  }
  member.wanted.insert(segment);
  return false;
}

bool HomeMembers::is_unwritten(std::uint32_t segment) {
  if (unwritten_.contains(segment)) return true;
  members_.at(member_of(segment)).to_map.insert(segment);
  return false;
}

void HomeMembers::send_probe(std::uint16_t number) {
  Member& member = members_.at(number);
  // Who has a permit that a waiting fence is about may open a segment after the probe has passed.
  if (member.absence || member.wanted.empty() || !member.fences_waiting.empty()) return;
  wire::MemberProbeT message;
  message.reservation = segments_.record().id;
  message.segments.assign(member.wanted.begin(), member.wanted.end());
  member.probing.merge(std::exchange(member.wanted, {}));
  member.link->ask(MessageType::member_probe, message, MessageType::member_probed, fence_timeout_ms, alive_,
                   [this, number, asked = message.segments](const Result<protocol::Message>& answer) {
                     Member& probed = members_.at(number);
                     std::set<std::uint32_t> still;  // nobody got a permit since
                     for (const std::uint32_t segment : asked)
                       if (probed.probing.erase(segment) > 0) still.insert(segment);
                     if (!answer) {
                       set_absent(number, answer.error().message());
                       return;
                     }
                     const auto body = protocol::body_of<wire::MemberProbed>(*answer);
                     if (!body) return;
                     for (const std::uint32_t segment : protocol::numbers_of((*body)->segments()))
                       if (still.contains(segment)) unwritten_.insert(segment);
                     events_.space_changed();
                   });
}

bool HomeMembers::may_free_space() const {
  const auto frees = [](const auto& fence) { return !fence.second.extents.empty(); };
  return std::ranges::any_of(members_, [&](const auto& entry) {
    const Member& member = entry.second;
    return !member.absence &&
           (!member.wanted.empty() || !member.probing.empty() || std::ranges::any_of(member.fences_waiting, frees) ||
            std::ranges::any_of(member.fences_sent, frees));
  });
}

}  // namespace forebay::server
