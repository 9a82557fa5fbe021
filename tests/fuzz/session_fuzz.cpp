// SPDX-License-Identifier: Apache-2.0
// A server and up to six clients that speak the raw protocol. The input chooses who sends which request, what in it is
// wrong, whose connection ends, when syncs come to their end, and when the server dies and is started again. Whatever
// they do: the server answers a newcomer, its books agree with what lies on disk, a restart brings back exactly the
// state that was there, and space of a step that somebody holds is given to nobody, whether its holder has a connection
// or not, until it has let go: a restart of the server is none of its business.
//
// Input: a byte of options, then rounds of action (1 byte) and client (1 byte); a request goes on with the number of
// its choices (1 byte) and these.
#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <utility>

#include "staging-servers/streams/stream.h"
#include "tests/fuzz/session_requests.h"
#include "tests/fuzz/stepped_server.h"
#include "tests/unit/storage/stream_records.h"

namespace forebay::fuzz {
namespace {

constexpr int actions_max = 200;
constexpr int restarts_max = 3;
constexpr std::uint8_t first_request = 12;
constexpr std::size_t choices_bytes_max = 48;

class Session {
 public:
  explicit Session(Choices choices)
      : choices_(choices), options_(choices_.byte()), server_(options_ % 2 == 0 ? -1 : 0) {
    require(server_.start().has_value());
    Slot admin;
    greet(admin);
    wire::ReservationCreateT asked;
    asked.name = "res";
    asked.capacity_bytes = std::uint64_t{8} << 20;
    asked.lifetime = 1;
    const auto body = protocol::pack(asked);
    admin.send(MessageType::reservation_create, {body.data(), body.size()}, true);
    server_.turn();
    server_.settle(1);
    require(server_.server().reservations().all().contains("res"));
  }

  void run() {
    for (int i = 0; i < actions_max && !choices_.empty(); ++i) act();
    server_.settle();
    check();
    if ((options_ & 2) != 0) restart(0);
  }

 private:
  void act() {
    const std::uint8_t action = choices_.byte();
    const std::size_t number = choices_.below(slots_.size());
    Slot& slot = slots_[number];
    // Most actions are requests. They are dealt with at once, or wait for those that come after them.
    if (action >= first_request) {
      const std::size_t kind = static_cast<std::size_t>(action - first_request) % (2 * Requests::kinds);
      request(slot, kind % Requests::kinds);
      if (kind < Requests::kinds) exchange();
      return;
    }
    switch (action) {
      case 0:
        return server_.settle();
      case 1:
        return slot.cut_off();
      case 2:
        return server_.hold_workers();
      case 3:
        return server_.let_workers_go();
      case 4:
      case 5:
        slot.close();
        if (action == 4) exchange();
        return;
      case 6:
        if (!slot.connected()) require(slot.connect(server_.server().socket_path()));
        return slot.send_bytes(choices_.bytes(choices_.below(64)));
      case 7:
        server_.settle();
        return check();
      case 8:
      case 9:
      case 10:
        return restart(action - 8);
      default:
        return damage_journals();
    }
  }

  void greet(Slot& slot) {
    require(slot.connect(server_.server().socket_path()));
    wire::HelloT hello;
    hello.version = protocol::protocol_version;
    const auto body = protocol::pack(hello);
    slot.send(MessageType::hello, {body.data(), body.size()}, true);
    server_.turn();
  }
  void request(Slot& slot, std::size_t kind) {
    if (!slot.connected()) greet(slot);
    // Its choices have a length of their own: a request that takes one more does not change all that come after it.
    Choices own(choices_.bytes(choices_.below(choices_bytes_max)));
    const std::uint8_t damage = own.byte();
    Request request = Requests(own, slot, slots_).make(kind);
    if (damage >= 250 && !request.body.empty()) {
      request.body[own.raw(2) % request.body.size()] ^= static_cast<std::uint8_t>(1U << own.below(8));
    } else if (damage == 249) {
      request.body.resize(own.raw(2) % (request.body.size() + 1));
    }
    slot.send(request.type, request.body, request.is_answered);
  }
  /// The server deals with what was sent, the clients with what it answers.
  void exchange() {
    server_.turn();
    server_.turn();
    for (Slot& slot : slots_) slot.receive();
    for (Slot& slot : slots_) {
      if (!slot.consumer.empty()) named_readers_.insert(slot.session);
    }
    for (Slot& slot : slots_) check_holders(slot);
    for (Slot& slot : slots_) learn_places(slot);
    for (Slot& slot : slots_) check_grants(slot);
  }
  server::Stream* find_stream(const auto& is_it) {
    for (auto& [name, reservation] : server_.server().reservations().all()) {
      for (auto& [stream_name, stream] : reservation->streams()) {
        if (is_it(*stream)) return stream.get();
      }
    }
    return nullptr;
  }
  /// A step that its writer's process is to hold is held by a reader with a name, and from its commit on.
  void check_holders(Slot& writer) {
    for (const Slot::HeldPart& part : std::exchange(writer.just_committed, {})) {
      require(named_readers_.contains(part.holder), "a step was committed whose holder is nobody");
      const auto* stream = find_stream(
          [&](const server::Stream& other) { return other.path() == writer.writes_in + "/" + writer.writes_to; });
      if (stream == nullptr || !stream->state().steps.contains(part.step)) continue;
      const HeldSteps::Key key{stream->state().steps.at(part.step).committed.epoch, part.step};
      for (Slot& reader : slots_) {
        const bool stayed = reader.connected() && reader.session == part.holder && reader.opened_at < part.sent_at;
        if (stayed && reader.reads_uuid == stream->state().uuid) reader.held.given_for_writer(key);
      }
    }
  }
  /// Where the steps lie that a reader was just given: their data, too, which it is not told before it reads them.
  void learn_places(Slot& reader) {
    auto& steps = reader.held.steps();
    for (auto entry = steps.begin(); entry != steps.end();) {
      auto& [key, held] = *entry;
      if (held.reservation.empty()) {
        server::Stream* const stream =
            find_stream([&](const server::Stream& other) { return other.state().uuid == reader.reads_uuid; });
        const storage::StepState* step = stream == nullptr ? nullptr : step_of(stream->state(), key);
        if (step == nullptr) {
          // Released again, or removed with its reservation, in this very moment.
          entry = steps.erase(entry);
          continue;
        }
        held.extents = server::extents_read(step->committed);
        held.reservation = stream->space().segments().record().id;
      }
      ++entry;
    }
  }
  static const storage::StepState* step_of(const storage::StreamState& state, const HeldSteps::Key& key) {
    if (const auto kept = state.steps.find(key.second);
        kept != state.steps.end() && kept->second.committed.epoch == key.first)
      return &kept->second;
    const auto retired = state.retired.find(key);
    return retired == state.retired.end() ? nullptr : &retired->second;
  }
  void check_grants(Slot& writer) {
    const auto& reservations = server_.server().reservations().all();
    const auto reservation = reservations.find(writer.writes_in);
    for (const wire::Extent& extent : std::exchange(writer.just_granted, {})) {
      if (reservation == reservations.end()) continue;
      const server::Extent granted{extent.segment(), extent.offset(), extent.length()};
      for (const Slot& reader : slots_) {
        require(!reader.held.overlap(reservation->second->record().id, granted),
                "space of a step that a reader holds was granted");
      }
    }
  }

  void check() {
    exchange();
    require(damaged_ || !server_.has_problem(), server_.problem());
    Slot newcomer;
    greet(newcomer);
    server_.turn();
    newcomer.receive();
    require(newcomer.connected(), "the server does not greet a newcomer");
  }

  struct State {
    std::vector<std::uint8_t> record;  // but for `durable_next`
    std::uint64_t durable_next = 0;
  };
  using States = std::map<std::string, State>;
  /// What a restart must bring back: all but withdrawn steps, which readers that are gone no longer hold.
  States states() {
    States all;
    for (auto& [name, reservation] : server_.server().reservations().all()) {
      for (auto& [stream_name, stream] : reservation->streams()) {
        journal::CheckpointT checkpoint = storage::checkpoint_of(stream->state());
        checkpoint.retired.clear();
        State& state = all[stream->path()];
        state.durable_next = std::exchange(checkpoint.durable_next, 0);
        const auto body = protocol::pack(checkpoint);
        state.record.assign(body.data(), body.data() + body.size());
      }
    }
    return all;
  }
  /// A flush whose time has just come goes on while the server dies.
  static bool is_brought_back(const States& before, const States& after) {
    return std::ranges::equal(before, after, [](const auto& old, const auto& now) {
      return old.first == now.first && old.second.record == now.second.record &&
             old.second.durable_next <= now.second.durable_next;
    });
  }
  void restart(int how) {
    if (++restarts_ > restarts_max) return;
    server_.settle();
    exchange();
    const States before = states();
    if (how == 1) {
      server_.shut_down();
    } else {
      server_.crash();
    }
    if (how == 2) server_.pretend_boot();
    for (Slot& slot : slots_) {
      // No process outlives a boot. A damaged journal may have lost any step.
      if (how == 2) {
        slot.close();
      } else {
        slot.cut_off();
      }
      if (damaged_) slot.held.forget();
    }
    const auto started = server_.start();
    require(started.has_value(), started ? "" : started.error().message());
    // A clean end makes more of the same steps durable, a boot ends what was being written.
    if (how == 0 && !damaged_) require(is_brought_back(before, states()), "the state after the restart is another one");
    server_.settle();
    check();
  }
  /// Bytes of all journals change while no server runs.
  void damage_journals() {
    if (++restarts_ > restarts_max) return;
    server_.settle();
    server_.crash();
    damaged_ = true;
    for (Slot& slot : slots_) slot.close();
    const std::uint8_t how = choices_.byte();
    const std::uint64_t at = choices_.raw(2);
    for (const auto& entry : std::filesystem::recursive_directory_iterator(server_.options().root)) {
      if (!entry.is_regular_file() || !entry.path().filename().string().starts_with("journal.")) continue;
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(at % (entry.file_size() + 1)));
      if (how % 2 == 0) {
        file.put(static_cast<char>(how));
      } else {
        const std::string zeros(std::size_t{how} * 8, '\0');
        file.write(zeros.data(), static_cast<std::streamsize>(zeros.size()));
      }
    }
    if ((how & 0x80) != 0) server_.pretend_boot();
    const auto started = server_.start();
    require(started.has_value(), started ? "" : started.error().message());
    check();
  }

  Choices choices_;
  std::uint8_t options_;
  SteppedServer server_;
  std::array<Slot, 6> slots_;
  std::set<std::uint64_t> named_readers_;  ///< sessions of readers with names, of those that have ended too
  int restarts_ = 0;
  bool damaged_ = false;
};

}  // namespace
}  // namespace forebay::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  forebay::fuzz::Session session(forebay::fuzz::Choices({data, size}));
  session.run();
  return 0;
}
