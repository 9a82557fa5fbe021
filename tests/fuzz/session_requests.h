// SPDX-License-Identifier: Apache-2.0
// Requests that a client might send next, filled with what it knows and with what the input chooses.
#pragma once

#include <algorithm>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <forebay/admin.h>
#include <forebay/reader.h>
#include <forebay/writer.h>

#include "base/checksum.h"
#include "protocol/step_metadata.h"
#include "tests/fuzz/choices.h"
#include "tests/fuzz/session_slot.h"
#include "tests/support/message_types.h"

namespace forebay::fuzz {

struct Request {
  MessageType type = MessageType::none;
  std::vector<std::uint8_t> body;
  bool is_answered = true;
};

/// The names of the world: few, so that they meet.
class Names {
 public:
  static std::string reservation(Choices& choices) {
    return pick(choices, {"res", "res", "res", "other", "", "no way"});
  }
  static std::string stream(Choices& choices) { return pick(choices, {"flow", "flow", "flow", "aux", "files", ""}); }
  static std::string consumer(Choices& choices) { return pick(choices, {"", "viz", "render", "viz", "", "not/one"}); }
  static std::string group(Choices& choices) {
    const std::string name = pick(choices, {"", "job.1", "job.2", "", "too long"});
    return name == "too long" ? std::string(5000, 'g') : name;
  }
  static std::string retention(Choices& choices) {
    return pick(choices,
                {"", "last:2", "all", "last:1,consumers:viz", "last:1,precious:2", "consumers:viz+render", "x"});
  }

 private:
  static std::string pick(Choices& choices, std::initializer_list<const char*> names) {
    return *(names.begin() + static_cast<std::ptrdiff_t>(choices.below(names.size())));
  }
};

class Requests {
 public:
  /// `slots`: all clients of the process, so that what one of them sends can name another.
  Requests(Choices& choices, Slot& slot, std::span<const Slot> slots = {})
      : choices_(choices), slot_(slot), slots_(slots) {}

  static const std::size_t kinds;
  Request make(std::size_t kind);

 private:
  template <class Object>
  static std::vector<std::uint8_t> packed(const Object& object) {
    const auto body = protocol::pack(object);
    return {body.data(), body.data() + body.size()};
  }
  /// No wait in between: what waits at all waits for longer than an input takes.
  std::int64_t timeout_ms() {
    constexpr std::int64_t times[] = {3'600'000, -1, 0};
    return times[choices_.below(std::size(times))];
  }
  std::uint64_t some_step() { return choices_.near(slot_.next_step == 0 ? 0 : slot_.next_step - 1); }
  wire::StepKey some_key() {
    if (slot_.keys.empty()) return {some_step(), choices_.near32(slot_.epoch), 0};
    const auto& key = slot_.keys[slot_.keys.size() - 1 - choices_.below(slot_.keys.size())];
    return {choices_.near(key.step()), choices_.near32(key.epoch()), 0};
  }
  /// None, that of a client of this process, or one that is nobody's.
  std::uint64_t some_session() {
    const std::uint8_t choice = choices_.byte();
    if (choice == 0 || slots_.empty()) return 0;
    const std::uint64_t session = slots_[choice % slots_.size()].session;
    return choice < 0xE0 ? session : choices_.near(session + 1);
  }
  wire::Extent changed(const wire::Extent& extent) {
    if (!choices_.seldom(16)) return extent;
    return {choices_.near32(extent.segment()), static_cast<std::uint16_t>(choices_.near(extent.member())), 0,
            choices_.near(extent.offset()), choices_.near(extent.length())};
  }

  Request writer_open() {
    wire::WriterOpenT asked;
    asked.reservation = Names::reservation(choices_);
    asked.stream = Names::stream(choices_);
    const std::uint8_t shape = choices_.byte();
    asked.ranks = 1 + shape % 3;
    asked.rank = (shape / 3) % asked.ranks;
    if (shape >= 250) asked.ranks = choices_.near32(asked.ranks);
    slot_.rank = asked.rank;
    slot_.ranks = asked.ranks;
    asked.ranks_source = "the input";
    asked.mode = choices_.seldom(3) ? 1 : 2;
    const std::uint8_t flags = choices_.byte();
    asked.when_full = 1 + flags % 3;
    asked.durability = (flags & 0x10) != 0 ? 2 : 1;
    asked.force = (flags & 0x20) != 0;
    asked.rendezvous_readers = (flags & 0xC0) == 0xC0 ? 1 : 0;
    asked.retention = Names::retention(choices_);
    asked.block_timeout_ms = timeout_ms();
    asked.open_timeout_ms = timeout_ms();
    asked.grace_ms = timeout_ms();
    if (choices_.seldom(4)) asked.append_after = some_step();
    asked.distribution = static_cast<std::uint8_t>(choices_.below(16) % 5);
    asked.group = Names::group(choices_);
    // None, the one of before, as where an Open is sent again, or another.
    const std::size_t opening = choices_.below(4);
    if (opening >= 2) slot_.opening = opening == 2 ? slot_.opening + 1 : choices_.raw(8);
    if (opening != 0) asked.opening = slot_.opening;
    return {MessageType::writer_open, packed(asked)};
  }
  Request writer_rejoin() {
    wire::WriterRejoinT asked;
    asked.reservation = Names::reservation(choices_);
    asked.stream = Names::stream(choices_);
    asked.epoch = choices_.near32(slot_.epoch);
    asked.incarnation = choices_.near32(slot_.incarnation);
    asked.rank = choices_.near32(slot_.rank);
    asked.ranks = choices_.near32(slot_.ranks);
    const std::uint8_t flags = choices_.byte();
    asked.when_full = 1 + flags % 3;
    asked.durability = (flags & 0x10) != 0 ? 2 : 1;
    asked.block_timeout_ms = timeout_ms();
    asked.grace_ms = timeout_ms();
    for (const wire::Extent& extent : slot_.granted) asked.held.push_back(changed(extent));
    return {MessageType::writer_rejoin, packed(asked)};
  }
  Request space_request() {
    wire::SpaceRequestT asked;
    constexpr std::uint64_t sizes[] = {8192, 1, 300'000, 3 << 20, 16 << 20};
    asked.step = choices_.near(slot_.next_step);
    asked.bytes = sizes[choices_.below(std::size(sizes))];
    asked.ahead_bytes = choices_.seldom(4) ? choices_.near(asked.bytes) : 0;
    if (choices_.seldom(32)) asked.bytes = choices_.raw(8);
    return {MessageType::space_request, packed(asked)};
  }
  /// An attribute set in the last page of what is used, which then is the set's.
  std::unique_ptr<wire::AttributeSetT> new_attributes(std::uint64_t step, std::vector<wire::Extent>& used) {
    wire::AttributeSetT set;
    wire::Extent& last = used.back();
    const std::uint64_t left = last.length() > 4096 ? last.length() - 4096 : last.length();
    set.step = step;
    set.bytes = 4000;
    set.crc = 17;
    set.extents.emplace_back(last.segment(), last.member(), 0, last.offset() + last.length() - 4096, 4096);
    last = wire::Extent(last.segment(), last.member(), 0, last.offset(), left);
    slot_.attributes = set;
    return changed_attributes(set);
  }
  std::unique_ptr<wire::AttributeSetT> changed_attributes(const wire::AttributeSetT& set) {
    auto made = std::make_unique<wire::AttributeSetT>(set);
    made->step = choices_.near(made->step);
    made->bytes = choices_.near(made->bytes);
    made->crc = choices_.near32(made->crc);
    made->extents.front() = changed(made->extents.front());
    return made;
  }
  Request part() {
    wire::PartT part;
    part.step = choices_.near(slot_.next_step);
    const std::uint8_t shape = choices_.byte();
    // All of the space, or a page of it; a part that has none of its own names any.
    if (slot_.granted.empty()) slot_.granted.emplace_back(0, 0, 0, 0, 4096);
    std::vector<wire::Extent> used = slot_.granted;
    if (shape % 4 == 1) {
      const wire::Extent first = used.front();
      used = {wire::Extent(first.segment(), 0, 0, first.offset(), 4096)};
      slot_.granted.front() =
          wire::Extent(first.segment(), 0, 0, first.offset() + 4096, first.length() > 4096 ? first.length() - 4096 : 0);
      if (slot_.granted.front().length() == 0) slot_.granted.erase(slot_.granted.begin());
    } else {
      slot_.granted.clear();
    }
    if (shape % 8 == 3) part.attributes = new_attributes(part.step, used);
    if (shape % 8 == 5 && slot_.attributes) part.attributes = changed_attributes(*slot_.attributes);
    for (const wire::Extent& extent : used) part.extents.push_back(changed(extent));
    const std::vector<std::byte> metadata = empty_metadata(slot_.rank);
    part.metadata.emplace_back(used.front().segment(), 0, 0, used.front().offset(), metadata.size());
    part.metadata.front() = changed(part.metadata.front());
    part.metadata_bytes = choices_.near(metadata.size());
    part.metadata_crc = crc32c(metadata);
    if (shape < 200) slot_.write(part.metadata.front(), metadata);
    constexpr std::uint64_t sizes[] = {0, 8192, 1 << 20};
    part.next_bytes = sizes[choices_.below(std::size(sizes))];
    part.holder = some_session();
    part.metadata_crc = choices_.near32(part.metadata_crc);
    if (choices_.seldom(8)) {
      // Metadata in two pieces.
      const wire::Extent whole = part.metadata.front();
      const std::uint64_t first = choices_.near(whole.length() / 2);
      part.metadata = {{whole.segment(), whole.member(), 0, whole.offset(), first},
                       {whole.segment(), whole.member(), 0, whole.offset() + first, whole.length() - first}};
    }
    if (choices_.seldom(32)) {
      part.carried.push_back(changed(used.front()));
      part.bytes.assign(choices_.near32(64) % 8192, 7);
    }
    return {MessageType::part, packed(part)};
  }
  Request step_begin() {
    wire::StepBeginT asked;
    asked.step = choices_.near(slot_.next_step);
    asked.lag_limit = choices_.below(3);
    asked.timeout_ms = timeout_ms();
    return {MessageType::step_begin, packed(asked)};
  }
  Request writer_leave() {
    wire::WriterLeaveT asked;
    asked.reason = static_cast<wire::LeaveReason>(choices_.below(4));
    if (choices_.seldom(2)) asked.step = some_step();
    asked.text = Names::group(choices_);
    return {MessageType::writer_leave, packed(asked), false};
  }
  Request writer_refused() {
    wire::WriterRefusedT asked;
    asked.reservation = Names::reservation(choices_);
    asked.stream = Names::stream(choices_);
    asked.group = Names::group(choices_);
    asked.ranks = choices_.near32(slot_.ranks);
    asked.rank = choices_.near32(slot_.rank);
    asked.text = Names::group(choices_);
    return {MessageType::writer_refused, packed(asked)};
  }
  Request step_abort() {
    wire::StepAbortT asked;
    asked.step = choices_.near(slot_.next_step);
    return {MessageType::step_abort, packed(asked)};
  }

  Request reader_open() {
    wire::ReaderOpenT asked;
    asked.reservation = Names::reservation(choices_);
    asked.stream = Names::stream(choices_);
    asked.consumer = Names::consumer(choices_);
    const std::uint8_t flags = choices_.byte();
    asked.start_kind = static_cast<std::uint8_t>(1 + flags % 5);
    asked.min_watermark = (flags & 0x20) != 0 ? 2 : 1;
    asked.latest_only = (flags & 0x40) != 0;
    asked.follow = (flags & 0x80) == 0;
    asked.start_step = some_step();
    asked.distribution = static_cast<std::uint8_t>(choices_.below(16) % 5);
    asked.open_timeout_ms = timeout_ms();
    if (choices_.seldom(3)) {
      asked.resume = true;
      asked.session = choices_.near(slot_.session);
      asked.epoch = choices_.near32(slot_.epoch);
      asked.position = choices_.near(slot_.position);
      asked.pins = slot_.keys;
      // One that it never got, or the same once more.
      if (choices_.seldom(4)) asked.pins.push_back(some_key());
    }
    return {MessageType::reader_open, packed(asked)};
  }
  Request step_get() {
    wire::StepGetT asked;
    asked.step = some_step();
    return {MessageType::step_get, packed(asked)};
  }
  Request step_release() {
    wire::StepReleaseT asked;
    for (std::size_t count = 1 + choices_.below(3); count > 0; --count) asked.steps.push_back(some_key());
    return {MessageType::step_release, packed(asked), false};
  }
  Request cursor_move() {
    wire::CursorMoveT move;
    move.epoch = choices_.near32(slot_.epoch);
    move.position = choices_.near(slot_.position);
    move.seek = choices_.seldom(2);
    return {MessageType::cursor_move, packed(move)};
  }
  Request segments_get() {
    wire::SegmentsGetT asked;
    for (std::size_t count = choices_.below(6); count > 0; --count) asked.segments.push_back(choices_.near32(0));
    return {MessageType::segments_get, packed(asked)};
  }
  Request step_check() {
    wire::StepCheckT asked;
    if (!choices_.seldom(16)) asked.key = std::make_unique<wire::StepKey>(some_key());
    return {MessageType::step_check, packed(asked)};
  }

  Request reservation_create() {
    wire::ReservationCreateT asked;
    asked.name = Names::reservation(choices_);
    asked.capacity_bytes = choices_.seldom(16) ? choices_.raw(8) : std::uint64_t{8} << 20;
    const std::uint8_t flags = choices_.byte();
    asked.lifetime = 1 + (flags & 3) % 3;
    if (choices_.seldom(8)) asked.owner_uid = choices_.near32(0);
    if (choices_.seldom(8)) asked.owner_gid = choices_.near32(0);
    (void)choices_.byte();  // which inputs of the corpus have here
    return {MessageType::reservation_create, packed(asked)};
  }
  Request reservation_destroy() {
    wire::ReservationDestroyT asked;
    asked.name = Names::reservation(choices_);
    asked.force = choices_.seldom(2);
    return {MessageType::reservation_destroy, packed(asked)};
  }
  Request stream_remove() {
    wire::StreamRemoveT asked;
    asked.reservation = Names::reservation(choices_);
    asked.stream = Names::stream(choices_);
    asked.force = choices_.seldom(2);
    return {MessageType::stream_remove, packed(asked)};
  }
  Request consumer_remove() {
    wire::ConsumerRemoveT asked;
    asked.reservation = Names::reservation(choices_);
    asked.stream = Names::stream(choices_);
    asked.consumer = Names::consumer(choices_);
    return {MessageType::consumer_remove, packed(asked)};
  }
  Request retention_set() {
    wire::RetentionSetT asked;
    asked.reservation = Names::reservation(choices_);
    asked.stream = Names::stream(choices_);
    asked.retention = Names::retention(choices_);
    return {MessageType::retention_set, packed(asked)};
  }
  Request staged_mark() {
    wire::StagedMarkT asked;
    asked.reservation = Names::reservation(choices_);
    asked.stream = Names::stream(choices_);
    asked.epoch = choices_.near32(1);
    for (std::size_t count = 1 + choices_.below(4); count > 0; --count) asked.steps.push_back(choices_.near(count - 1));
    asked.receipt = choices_.seldom(8) ? std::string() : "receipt";
    return {MessageType::staged_mark, packed(asked)};
  }
  Request precious_set() {
    wire::PreciousSetT asked;
    asked.reservation = Names::reservation(choices_);
    asked.stream = Names::stream(choices_);
    for (std::size_t count = 1 + choices_.below(4); count > 0; --count) asked.steps.push_back(choices_.near(count - 1));
    asked.precious = !choices_.seldom(2);
    return {MessageType::precious_set, packed(asked)};
  }
  Request steps_drop() {
    wire::StepsDropT asked;
    asked.reservation = Names::reservation(choices_);
    asked.stream = Names::stream(choices_);
    for (std::size_t count = 1 + choices_.below(4); count > 0; --count) asked.steps.push_back(choices_.near(count - 1));
    return {MessageType::steps_drop, packed(asked)};
  }
  Request audit_query() {
    wire::AuditQueryT asked;
    asked.read_data = choices_.seldom(2);
    return {MessageType::audit_query, packed(asked)};
  }
  Request reservation_share() {
    wire::ReservationShareT asked;
    asked.name = Names::reservation(choices_);
    if (!choices_.seldom(8)) {
      asked.share = std::make_unique<wire::ShareT>();
      asked.share->kind = static_cast<std::uint8_t>(choices_.below(4));
      asked.share->id = static_cast<std::uint32_t>(choices_.below(3));
      asked.share->rights = static_cast<std::uint8_t>(choices_.below(6));
    }
    return {MessageType::reservation_share, packed(asked)};
  }
  Request reservation_change() {
    wire::ReservationChangeT asked;
    asked.name = Names::reservation(choices_);
    if (!choices_.seldom(4)) asked.lifetime = static_cast<std::uint8_t>(choices_.below(4));
    if (!choices_.seldom(4)) asked.files_bytes = choices_.below(4) << 20;
    return {MessageType::reservation_change, packed(asked)};
  }
  Request files_adopt() {
    wire::FilesAdoptT asked;
    asked.name = Names::reservation(choices_);
    constexpr const char* paths[] = {"", ".", "..", "a", "/", "a/../..", "../streams"};
    asked.path = paths[choices_.below(std::size(paths))];
    return {MessageType::files_adopt, packed(asked)};
  }
  Request token_create() {
    wire::TokenCreateT asked;
    asked.reservation = Names::reservation(choices_);
    asked.rights = static_cast<std::uint32_t>(choices_.below(5));
    asked.lifetime_s = choices_.seldom(8) ? 0 : 3600;
    return {MessageType::token_create, packed(asked)};
  }
  Request token_revoke() {
    wire::TokenRevokeT asked;
    if (!choices_.seldom(4)) asked.token = "forebay-token-1." + std::string(choices_.below(200), 'a');
    return {MessageType::token_revoke, packed(asked)};
  }
  Request home_query() {
    wire::HomeQueryT asked;
    if (!choices_.seldom(4)) asked.reservation = Names::reservation(choices_);
    if (choices_.seldom(4)) asked.server = "node1:7460";
    asked.administrator = choices_.seldom(4);
    return {MessageType::home_query, packed(asked)};
  }
  Request pool_directory() {
    wire::PoolDirectoryT asked;
    asked.manager = choices_.seldom(4) ? "nobody" : "node1:7460";
    for (std::uint64_t left = choices_.below(3); left > 0; --left) {
      auto entry = std::make_unique<wire::HomeEntryT>();
      entry->name = Names::reservation(choices_);
      entry->id = choices_.seldom(4) ? "7" : "01234567-89ab-cdef-0123-456789abcdef";
      entry->server = "node2:7460";
      asked.homes.push_back(std::move(entry));
    }
    return {MessageType::pool_directory, packed(asked)};
  }
  Request member_query() {
    wire::MemberQueryT asked;
    asked.member = static_cast<std::uint16_t>(choices_.below(3));
    return {MessageType::member_query, packed(asked)};
  }
  Request member_open() {
    wire::MemberOpenT asked;
    asked.permit.resize(choices_.below(300));
    return {MessageType::member_open, packed(asked)};
  }
  std::string some_share() { return choices_.seldom(4) ? "" : "01234567-89ab-cdef-0123-456789abcdef"; }
  Request member_look() {
    wire::MemberLookT asked;
    for (std::uint64_t left = choices_.below(3); left > 0; --left) asked.reservations.push_back(some_share());
    asked.syncs.resize(choices_.seldom(4) ? 1 : asked.reservations.size(), choices_.near(3));
    return {MessageType::member_look, packed(asked)};
  }
  Request member_sync() {
    wire::MemberSyncT asked;
    asked.reservation = some_share();
    asked.segments.push_back(choices_.near32(1));
    asked.server_run = choices_.near(1);
    asked.syncs_before = choices_.near(3);
    return {MessageType::member_sync, packed(asked)};
  }
  Request member_fence() {
    wire::MemberFenceT asked;
    asked.reservation = some_share();
    return {MessageType::member_fence, packed(asked)};
  }
  Request member_probe() {
    wire::MemberProbeT asked;
    asked.reservation = some_share();
    asked.segments.push_back(choices_.near32(1));
    return {MessageType::member_probe, packed(asked)};
  }
  Request member_checksum() {
    wire::MemberChecksumT asked;
    asked.reservation = some_share();
    asked.extents.emplace_back(choices_.near32(1), 1, 0, choices_.near(4096), choices_.near(4096));
    return {MessageType::member_checksum, packed(asked)};
  }
  Request manager_call() {
    wire::ManagerCallT asked;
    constexpr const char* targets[] = {"", "/", "/health", "/a b", "/\r\n", "health"};
    asked.method = choices_.seldom(4) ? "PUT" : "GET";
    asked.target = targets[choices_.below(std::size(targets))];
    asked.body.resize(choices_.below(64));
    return {MessageType::manager_call, packed(asked)};
  }
  Request steps_query() {
    wire::StepsQueryT asked;
    asked.reservation = Names::reservation(choices_);
    asked.stream = Names::stream(choices_);
    asked.first = choices_.near(0);
    asked.steps_max = choices_.near32(10);
    return {MessageType::steps_query, packed(asked)};
  }
  Request reservations_query() {
    wire::ReservationsQueryT asked;
    asked.name = Names::reservation(choices_);
    return {MessageType::reservations_query, packed(asked)};
  }
  Request streams_query() {
    wire::StreamsQueryT asked;
    asked.reservation = Names::reservation(choices_);
    asked.stream = choices_.seldom(2) ? "" : Names::stream(choices_);
    return {MessageType::streams_query, packed(asked)};
  }
  /// Once more, for every connection begins with one.
  Request hello() {
    wire::HelloT asked;
    asked.version = choices_.near32(protocol::protocol_version);
    asked.program = "the input";
    return {MessageType::hello, packed(asked)};
  }
  template <class Table, MessageType type, bool is_answered = true>
  Request plain() {
    return {type, packed(Table()), is_answered};
  }
  /// A type that may be none.
  Request unknown() { return {static_cast<MessageType>(choices_.raw(2)), packed(wire::DoneT())}; }

  /// Metadata of a step without variables.
  static std::vector<std::byte> empty_metadata(std::uint32_t rank) {
    format::StepMetadataT metadata;
    metadata.version = protocol::step_metadata_version;
    metadata.rank = rank;
    flatbuffers::FlatBufferBuilder builder;
    builder.Finish(format::StepMetadata::Pack(builder, &metadata), format::StepMetadataIdentifier());
    const auto bytes = std::as_bytes(std::span(builder.GetBufferPointer(), builder.GetSize()));
    return {bytes.begin(), bytes.end()};
  }

  struct Generator {
    MessageType type;
    Request (Requests::*make)();
  };
  static const Generator generators[];
  static constexpr bool has(MessageType type);

  Choices& choices_;
  Slot& slot_;
  std::span<const Slot> slots_;
};

/// The most frequent ones of each conversation come first, and more than once. Inputs count them: new ones come last.
constexpr Requests::Generator Requests::generators[] = {
    {MessageType::writer_open, &Requests::writer_open},
    {MessageType::space_request, &Requests::space_request},
    {MessageType::space_request, &Requests::space_request},
    {MessageType::part, &Requests::part},
    {MessageType::part, &Requests::part},
    {MessageType::step_abort, &Requests::step_abort},
    {MessageType::writer_close, &Requests::plain<wire::WriterCloseT, MessageType::writer_close>},
    {MessageType::writer_rejoin, &Requests::writer_rejoin},
    {MessageType::reader_open, &Requests::reader_open},
    {MessageType::step_wait, &Requests::plain<wire::StepWaitT, MessageType::step_wait>},
    {MessageType::step_wait, &Requests::plain<wire::StepWaitT, MessageType::step_wait>},
    {MessageType::step_get, &Requests::step_get},
    {MessageType::step_release, &Requests::step_release},
    {MessageType::cursor_move, &Requests::cursor_move},
    {MessageType::segments_get, &Requests::segments_get},
    {MessageType::step_check, &Requests::step_check},
    {MessageType::reader_leave, &Requests::plain<wire::ReaderLeaveT, MessageType::reader_leave, false>},
    {MessageType::reservation_create, &Requests::reservation_create},
    {MessageType::reservation_destroy, &Requests::reservation_destroy},
    {MessageType::stream_remove, &Requests::stream_remove},
    {MessageType::consumer_remove, &Requests::consumer_remove},
    {MessageType::retention_set, &Requests::retention_set},
    {MessageType::staged_mark, &Requests::staged_mark},
    {MessageType::precious_set, &Requests::precious_set},
    {MessageType::audit_query, &Requests::audit_query},
    {MessageType::steps_query, &Requests::steps_query},
    {MessageType::streams_query, &Requests::streams_query},
    {MessageType::none, &Requests::unknown},
    {MessageType::step_poll, &Requests::plain<wire::StepPollT, MessageType::step_poll>},
    {MessageType::server_query, &Requests::plain<wire::ServerQueryT, MessageType::server_query>},
    {MessageType::reservations_query, &Requests::reservations_query},
    {MessageType::hello, &Requests::hello},
    {MessageType::token_create, &Requests::token_create},
    {MessageType::step_begin, &Requests::step_begin},
    {MessageType::reservation_share, &Requests::reservation_share},
    {MessageType::writer_leave, &Requests::writer_leave},
    {MessageType::writer_refused, &Requests::writer_refused},
    {MessageType::steps_drop, &Requests::steps_drop},
    {MessageType::reservation_change, &Requests::reservation_change},
    {MessageType::token_revoke, &Requests::token_revoke},
    {MessageType::files_adopt, &Requests::files_adopt},
    {MessageType::home_query, &Requests::home_query},
    {MessageType::pool_directory, &Requests::pool_directory},
    {MessageType::manager_call, &Requests::manager_call},
    {MessageType::member_query, &Requests::member_query},
    {MessageType::member_open, &Requests::member_open},
    {MessageType::member_look, &Requests::member_look},
    {MessageType::member_sync, &Requests::member_sync},
    {MessageType::member_fence, &Requests::member_fence},
    {MessageType::member_probe, &Requests::member_probe},
    {MessageType::member_checksum, &Requests::member_checksum},
};
inline constexpr std::size_t Requests::kinds = std::size(generators);

constexpr bool Requests::has(MessageType type) {
  return std::ranges::any_of(generators, [type](const Generator& generator) { return generator.type == type; });
}

inline Request Requests::make(std::size_t kind) {
  static_assert(testing::missing_request(&Requests::has) == MessageType::none, "a request that is never sent");
  const Generator& generator = generators[kind];
  Request request = (this->*generator.make)();
  require(generator.type == MessageType::none || request.type == generator.type);
  return request;
}

}  // namespace forebay::fuzz
