// SPDX-License-Identifier: Apache-2.0
#include "client/reading/reader_link.h"

#include <algorithm>
#include <utility>

#include "base/return_error.h"
#include "client/connection/data_lane.h"
#include "client/connection/pause.h"
#include "client/connection/reconnect.h"
#include "client/reading/remote_step_file.h"
#include "client/segments/client_device.h"

namespace forebay::client {

using protocol::MessageType;

namespace {

// A member that is away is asked for again after so long.
constexpr std::int64_t member_pause_ms = 100;
// A server that is back answers a resuming reader within this time, also one that only polls.
constexpr std::int64_t resume_timeout_least_ms = 100;

}  // namespace

ReaderLink::ReaderLink(Address address, ReaderOptions options)
    : address_(std::move(address)),
      options_(std::move(options)),
      segments_(client_device()),
      members_(
          [this](const wire::MemberQueryT& query) {
            return ask(MessageType::member_query, query, MessageType::member_answer);
          },
          options_.interrupt) {
  if (options_.ranks > 1) place_.emplace(address_, options_);
}

Result<std::shared_ptr<ReaderLink>> ReaderLink::open(const Address& address, const ReaderOptions& options,
                                                     const ServerPlace& place) {
  std::shared_ptr<ReaderLink> link(new ReaderLink(address, options));
  auto connected = connect_server(place, options.interrupt);
  if (!connected) return fail(std::move(connected.error()));
  link->remote_ = (*connected)->is_remote();
  auto opened = link->greet(*connected, nullptr, open_deadline(options.open_timeout_ms));
  if (!opened && (*connected)->is_broken()) {
    connected = reconnect_server((*connected)->place(), Deadline::after_ms(options.reconnect_timeout_ms),
                                 options.interrupt, [&](const std::shared_ptr<Connection>& fresh) {
                                   return link->greet(fresh, nullptr, open_deadline(options.open_timeout_ms));
                                 });
    if (!connected) return fail(std::move(connected.error()));
    opened = {};
  }
  if (!opened) {
    if (opened.error().where.empty()) opened.error().where = link->where();
    return fail(std::move(opened.error()));
  }
  return link;
}

Result<void> ReaderLink::greet(const std::shared_ptr<Connection>& connection, Presented* presented, Deadline deadline) {
  wire::ReaderOpenT request;
  request.reservation = address_.reservation;
  request.stream = address_.stream;
  request.consumer = options_.consumer;
  request.start_kind = static_cast<std::uint8_t>(options_.start.kind);
  request.start_step = options_.start.step;
  if (address_.step) {
    request.start_kind = static_cast<std::uint8_t>(Start::Kind::step);
    request.start_step = *address_.step;
  }
  request.min_watermark = static_cast<std::uint8_t>(options_.min_watermark);
  request.latest_only = options_.latest_only;
  request.distribution = static_cast<std::uint8_t>(options_.distribution);
  request.follow = options_.follow;
  request.on_unavailable = static_cast<std::uint8_t>(options_.on_unavailable);
  request.open_timeout_ms = options_.open_timeout_ms;
  request.run = options_.run;
  request.wait_for_writer = options_.wait_for_writer;
  request.first_step = options_.first_step;
  request.epoch = options_.first_step_epoch;

  if (presented != nullptr) {
    const std::lock_guard lock(mutex_);
    presented_ = current_.generation;
    request.resume = true;
    request.session = session_;
    request.epoch = epoch_;
    request.position = position_;
    request.first_step = first_step_;
    request.follow = options_.follow && !left_;
    for (const auto& [key, entry] : pins_) {
      if (auto pin = entry.second.lock()) {
        request.pins.emplace_back(key.second, key.first, 0);
        presented->push_back(std::move(pin));
      }
    }
    std::erase_if(all_mapped_, [](const auto& mapped) { return mapped.expired(); });
    for (const auto& known : all_mapped_)
      if (const auto mapped = known.lock())
        request.presences.emplace_back(mapped->mapping.number, mapped->member, mapped->stale ? 1 : 0, 0);
  }
  if (place_) {
    const std::lock_guard lock(mutex_);
    place_->tell(request);
  }
  ASSIGN_OR_RETURN(auto answer,
                   connection->call(MessageType::reader_open, request, MessageType::reader_opened, deadline));
  ASSIGN_OR_RETURN(auto body, protocol::body_of<wire::ReaderOpened>(answer));
  std::string uuid = protocol::text_of(body->uuid());
  if (presented != nullptr && uuid != stream_uuid_) {
    return fail(
        ErrorCode::not_found,
        "the stream was removed and created again while its server was down; open it again to read the new one");
  }

  std::shared_ptr<const Descriptor> presence;
  if (!answer.descriptors.empty()) presence = std::make_shared<const Descriptor>(std::move(answer.descriptors.front()));
  if (presented == nullptr) {
    stream_uuid_ = std::move(uuid);
    status_at_open_ = static_cast<StreamStatus>(body->status());
  }
  segments_.set_layout(SegmentLayout(protocol::numbers_of(body->member_segments())), body->segment_bytes());
  const std::lock_guard lock(mutex_);
  session_ = body->session();
  epoch_ = body->epoch();
  position_ = body->position();
  first_step_ = body->first_step();
  rewound_ |= body->rewound();
  if (place_) place_->opened(*body);
  current_ = {connection, current_.generation + 1, std::move(presence)};
  if (presented != nullptr) {
    for (const std::shared_ptr<Pin>& pin : *presented) {
      pin->generation_ = current_.generation;
      pin->deliveries_ = 1;
    }
    // Others came through the connection before, while this one was made: the server has let go of them.
    std::erase_if(pins_, [this](const auto& entry) {
      Pin& pin = *entry.second.first;
      if (pin.generation_ == current_.generation) return false;
      pin.lost_ = true;
      return true;
    });
  }
  if (body->lost_pins() != nullptr) {
    bool was_mapped = false;
    for (const wire::StepKey* key : *body->lost_pins()) {
      const auto found = pins_.find({key->epoch(), key->step()});
      if (found == pins_.end()) continue;
      found->second.first->lost_ = true;
      pins_.erase(found);
      was_mapped = true;
    }
    if (was_mapped) mappings_are_stale();
  }
  return {};
}

void ReaderLink::mappings_are_stale() {
  for (const auto& [member, mapped] : std::exchange(mapped_, {})) mapped->stale = true;
}

ReaderLink::Current ReaderLink::current() const {
  const std::lock_guard lock(mutex_);
  return current_;
}

Result<void> ReaderLink::resume(const Connection& broken, Deadline deadline) {
  Presented presented;
  const std::lock_guard one_at_a_time(resume_mutex_);
  const Current now = current();
  if (now.connection.get() != &broken) return {};
  auto connected = reconnect_server(
      now.connection->place(), deadline, options_.interrupt, [&](const std::shared_ptr<Connection>& fresh) {
        const Deadline least = Deadline::after_ms(resume_timeout_least_ms);
        return greet(fresh, &presented, least.at_ns() > deadline.at_ns() ? least : deadline);
      });
  if (!connected) {
    if (connected.error().where.empty()) connected.error().where = where();
    if (connected.error().code == ErrorCode::permission_denied) lose_pins();
    return fail(std::move(connected.error()));
  }
  return {};
}

void ReaderLink::lose_pins() {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, entry] : pins_) entry.first->lost_ = true;
  pins_.clear();
}

void ReaderLink::set_position(std::uint32_t epoch, std::uint64_t position) {
  const std::lock_guard lock(mutex_);
  epoch_ = epoch;
  position_ = position;
}

bool ReaderLink::step_given(std::uint32_t epoch, std::uint64_t step, std::uint64_t generation) {
  const std::lock_guard lock(mutex_);
  if (!is_current_locked(generation)) return false;
  epoch_ = epoch;
  position_ = step + 1;
  first_step_ = std::min(first_step_, step);
  return true;
}

bool ReaderLink::is_current(std::uint64_t generation) const {
  const std::lock_guard lock(mutex_);
  return is_current_locked(generation);
}

bool ReaderLink::take_rewound() {
  const std::lock_guard lock(mutex_);
  return std::exchange(rewound_, false);
}

std::uint32_t ReaderLink::epoch() const {
  const std::lock_guard lock(mutex_);
  return epoch_;
}

std::uint64_t ReaderLink::turn() const {
  const std::lock_guard lock(mutex_);
  return place_ ? place_->turn() : 0;
}

void ReaderLink::turn_answered(const wire::StepEvent& event) {
  const std::lock_guard lock(mutex_);
  if (place_) place_->answered(event);
}

void ReaderLink::turn_failed(const Error& error) {
  const std::lock_guard lock(mutex_);
  if (place_) place_->failed(error);
}

Result<void> ReaderLink::confirm() {
  RETURN_IF_ERROR(ask(MessageType::segments_get, wire::SegmentsGetT(), MessageType::segments_answer));
  return {};
}

std::uint64_t ReaderLink::session() const {
  const std::lock_guard lock(mutex_);
  return session_;
}

std::uint64_t ReaderLink::position() const {
  const std::lock_guard lock(mutex_);
  return position_;
}

std::uint64_t ReaderLink::first_step() const {
  const std::lock_guard lock(mutex_);
  return first_step_;
}

Result<void> ReaderLink::fetch(const Pin& pin, std::span<const wire::Extent> extents, std::span<std::byte> out,
                               std::uint32_t* checksum) {
  RETURN_IF_ERROR(opening_process_.check());
  const ConnectionGuard guard([this] { give_up(); });
  wire::BytesGetT request;
  request.key = std::make_unique<wire::StepKey>(pin.step(), pin.epoch(), 0);
  request.extents.assign(extents.begin(), extents.end());
  if (!extents.empty() && extents.front().member() != 0)
    return fetch_from(extents.front().member(), std::move(request), out, checksum);
  const std::uint32_t before = checksum == nullptr ? 0 : *checksum;
  std::optional<Deadline> deadline;
  while (true) {
    const Current now = current();
    if (checksum != nullptr) *checksum = before;
    auto fetched = now.connection->fetch(request, fabric::Incoming(out, checksum));
    if (fetched || !now.connection->is_broken()) return fetched;
    if (!deadline) deadline = Deadline::after_ms(options_.reconnect_timeout_ms);
    RETURN_IF_ERROR(resume(*now.connection, *deadline));
  }
}

Deadline ReaderLink::member_deadline() const {
  const bool waits = !options_.follow || options_.on_unavailable == OnUnavailable::wait;
  return Deadline::after_ms(waits ? options_.reconnect_timeout_ms : 0);
}

Result<void> ReaderLink::fetch_from(std::uint16_t member, wire::BytesGetT request, std::span<std::byte> out,
                                    std::uint32_t* checksum) {
  const std::uint32_t before = checksum == nullptr ? 0 : *checksum;
  const Deadline deadline = member_deadline();
  for (bool is_first = true;; is_first = false) {
    auto at = members_.to(member);
    if (at) {
      if (checksum != nullptr) *checksum = before;
      auto fetched = at->connection->fetch(request, fabric::Incoming(out, checksum));
      // The member may have ended this connection long ago, and be there: a fresh one tells.
      if (fetched || !at->connection->is_broken() || (deadline.passed() && !is_first)) return fetched;
    } else if (at.error().code != ErrorCode::unavailable || deadline.passed()) {
      return fail(std::move(at.error()));
    }
    RETURN_IF_ERROR(pause_ms(member_pause_ms, options_.interrupt));
  }
}

Result<void> ReaderLink::fetch(const Pin& pin, std::span<Wanted> wanted) {
  RETURN_IF_ERROR(opening_process_.check());
  const ConnectionGuard guard([this] { give_up(); });
  std::map<std::uint16_t, std::vector<Wanted*>> by_member;
  for (Wanted& run : wanted)
    if (!run.is_here) by_member[run.extent.member()].push_back(&run);
  struct Asked {
    std::shared_ptr<Connection> connection;
    wire::BytesGetT request;
    std::vector<fabric::Incoming::Part> parts;
    std::vector<Wanted*> runs;
    Result<void> result;
  };
  std::vector<Asked> servers;
  for (auto& [member, runs] : by_member) {
    auto at = member == 0 ? Result<MemberConnection>(MemberConnection{current().connection}) : members_.to(member);
    if (!at) continue;
    Asked& asked = servers.emplace_back(Asked{std::move(at->connection), {}, {}, std::move(runs), {}});
    asked.request.key = std::make_unique<wire::StepKey>(pin.step(), pin.epoch(), 0);
    for (Wanted* run : asked.runs) {
      asked.request.extents.push_back(run->extent);
      asked.parts.push_back({run->out, run->checks ? &run->checksum : nullptr});
    }
  }
  if (servers.size() == 1) {
    // Who waits for one path alone does so in the kernel.
    Asked& asked = servers.front();
    asked.result = asked.connection->fetch(std::move(asked.request),
                                           fabric::Incoming(std::span<const fabric::Incoming::Part>(asked.parts)));
  } else {
    std::vector<DataLane> lanes;
    for (Asked& asked : servers) lanes.emplace_back(asked.connection, std::move(asked.request), std::move(asked.parts));
    move_side_by_side(lanes);
    for (std::size_t i = 0; i < lanes.size(); ++i) servers[i].result = *lanes[i].result();
  }
  for (const Asked& asked : servers) {
    if (!asked.result && asked.result.error().code == ErrorCode::cancelled) return asked.result;
    for (Wanted* run : asked.runs) run->is_here = asked.result.has_value();
  }
  // What did not come so is asked for by itself: that waits for its server to be back, or says what is wrong.
  for (Wanted& run : wanted) {
    if (run.is_here) continue;
    run.checksum = 0;
    RETURN_IF_ERROR(fetch(pin, {&run.extent, 1}, run.out, run.checks ? &run.checksum : nullptr));
    run.is_here = true;
  }
  return {};
}

Result<std::shared_ptr<Segment>> ReaderLink::member_segment(const Pin& pin, std::uint32_t number,
                                                            std::uint16_t member) {
  RETURN_IF_ERROR(opening_process_.check());
  if (auto found = segments_.find(number)) return found;
  const Deadline deadline = member_deadline();
  for (bool is_first = true;; is_first = false) {
    auto at = members_.to(member);
    if (!at && (at.error().code != ErrorCode::unavailable || deadline.passed())) return fail(std::move(at.error()));
    if (at && at->connection->is_remote())
      return segments_.make_remote(number, member, std::make_unique<RemoteStepFile>(pin, number, member));
    if (at) {
      auto found = segment_from(*at->connection, number);
      if (found || !at->connection->is_broken()) return found;
      // As in fetch_from(): a fresh connection tells.
      found.error().code = ErrorCode::unavailable;
      if (deadline.passed() && !is_first) return found;
    }
    RETURN_IF_ERROR(pause_ms(member_pause_ms, options_.interrupt));
  }
}

Result<std::shared_ptr<const void>> ReaderLink::begin_mapping(std::uint16_t member) {
  const auto known = [&]() -> std::shared_ptr<const void> {
    const std::lock_guard lock(mutex_);
    const auto found = mapped_.find(member);
    return found == mapped_.end() ? nullptr : found->second;
  };
  // A member that hangs holds up nobody who maps what another one has.
  if (auto mapped = known()) return mapped;
  const std::lock_guard one_at_a_time(mapping_mutex_);
  while (true) {
    if (auto mapped = known()) return mapped;
    const std::uint64_t generation = current().generation;
    ASSIGN_OR_RETURN(auto mapping, members_.begin_mapping(member));
    auto begun = std::make_shared<MappedMember>(member, std::move(mapping));
    {
      const std::lock_guard lock(mutex_);
      all_mapped_.push_back(begun);
    }
    // A home that had given this reader up before it opened the file has let go of its steps, and says so now.
    RETURN_IF_ERROR(confirm());
    const std::lock_guard lock(mutex_);
    // Nor may a home that came back meanwhile have heard of it.
    if (current_.generation != generation) continue;
    mapped_.insert_or_assign(member, begun);
    return begun;
  }
}

std::shared_ptr<Segment> ReaderLink::segment_here(std::uint32_t number, std::uint16_t member) {
  if (auto found = segments_.find(number)) return found;
  {
    const std::lock_guard lock(mutex_);
    if (elsewhere_.contains(member)) return nullptr;
  }
  // As in fetch_from(): a fresh connection tells.
  for (bool again = true;; again = false) {
    const auto at = members_.to(member);
    if (!at) return nullptr;
    if (at->connection->is_remote()) {
      const std::lock_guard lock(mutex_);
      elsewhere_.insert(member);
      return nullptr;
    }
    if (auto found = segment_from(*at->connection, number)) return std::move(*found);
    if (!at->connection->is_broken() || !again) return nullptr;
  }
}

Result<std::shared_ptr<Segment>> ReaderLink::segment_from(Connection& member, std::uint32_t number) {
  wire::SegmentsGetT request;
  request.segments.push_back(number);
  ASSIGN_OR_RETURN(auto answer, member.call(MessageType::segments_get, request, MessageType::segments_answer));
  ASSIGN_OR_RETURN(auto body, protocol::body_of<wire::SegmentsAnswer>(answer));
  RETURN_IF_ERROR(segments_.add(body->segments(), std::move(answer.descriptors)));
  if (auto found = segments_.find(number)) return found;
  return fail(ErrorCode::corrupt, "the step refers to a segment that the member does not have",
              where() + ", segment " + std::to_string(number));
}

std::shared_ptr<Pin> ReaderLink::delivered(std::uint64_t step, std::uint32_t epoch, bool pinned,
                                           std::uint64_t generation) {
  // Declared first, so that a pin that dies here does so without the lock.
  std::shared_ptr<Pin> pin;
  const std::lock_guard lock(mutex_);
  if (!pinned || !is_current_locked(generation)) {
    pin = std::make_shared<Pin>(shared_from_this(), step, epoch, pinned);
    pin->lost_ = pinned;  // with the connection that it came through
    return pin;
  }
  const auto found = pins_.find({epoch, step});
  if (found != pins_.end()) pin = found->second.second.lock();
  if (pin) {
    ++pin->deliveries_;
    return pin;
  }
  pin = std::make_shared<Pin>(shared_from_this(), step, epoch, true);
  pin->generation_ = generation;
  pin->deliveries_ = 1;
  pins_.insert_or_assign({epoch, step}, std::pair(pin.get(), std::weak_ptr(pin)));
  return pin;
}

void ReaderLink::release(Pin& pin) {
  // A process that was forked off has copies of the handles, but the pins are its parent's.
  if (!pin.pinned_ || !opening_process_.is_current()) return;
  std::shared_ptr<Connection> connection;
  wire::StepReleaseT release;
  {
    const std::lock_guard lock(mutex_);
    const auto found = pins_.find({pin.epoch_, pin.step_});
    if (found != pins_.end() && found->second.first == &pin) pins_.erase(found);
    if (pin.lost_ || pin.generation_ != current_.generation) return;
    connection = current_.connection;
    release.steps.assign(pin.deliveries_, wire::StepKey(pin.step_, pin.epoch_, 0));
  }
  if (!connection->tell(MessageType::step_release, release)) tell_what_is_held(*connection);
}

void ReaderLink::tell_what_is_held(const Connection& broken) {
  Presented presented;
  const std::unique_lock one_at_a_time(resume_mutex_, std::try_to_lock);
  if (!one_at_a_time || current().connection.get() != &broken) return;
  const Deadline deadline = Deadline::after_ms(resume_timeout_least_ms);
  auto connection = Connection::open(broken.place().now(), deadline, {});
  // Where there is no server, the next call says it, or the end of this process.
  if (connection) (void)greet(*connection, &presented, deadline);
}

void ReaderLink::leave() {
  if (!opening_process_.is_current()) return;
  std::shared_ptr<Connection> connection;
  {
    const std::lock_guard lock(mutex_);
    left_ = true;
    connection = current_.connection;
  }
  try {
    // Where nobody holds a step, the connection ends now and says the same; where it is gone, resume() does not follow.
    if (!connection->tell(MessageType::reader_leave, wire::ReaderLeaveT())) tell_what_is_held(*connection);
  } catch (const std::bad_alloc&) {
    connection->give_up();
  }
}

Result<std::shared_ptr<Segment>> ReaderLink::segment(std::uint32_t number) {
  if (auto found = segments_.find(number)) return found;
  wire::SegmentsGetT request;
  request.segments.push_back(number);
  ASSIGN_OR_RETURN(auto answer, ask(MessageType::segments_get, request, MessageType::segments_answer));
  ASSIGN_OR_RETURN(auto body, protocol::body_of<wire::SegmentsAnswer>(answer));
  RETURN_IF_ERROR(segments_.add(body->segments(), std::move(answer.descriptors)));
  if (auto found = segments_.find(number)) return found;
  return fail(ErrorCode::corrupt, "the step refers to a segment that the server does not have",
              where() + ", segment " + std::to_string(number));
}

}  // namespace forebay::client
