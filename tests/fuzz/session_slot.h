// SPDX-License-Identifier: Apache-2.0
// One client of the server under test: its connection, and what it has learned from the server, so that its next
// requests can name what is really there. What it has learned outlives the connection, as a client's memory does.
#pragma once

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "protocol/message_socket.h"
#include "staging-servers/space/space_map.h"
#include "tests/fuzz/held_steps.h"
#include "tests/fuzz/unpack.h"

namespace forebay::fuzz {

class Slot {
 public:
  bool connected() const noexcept { return socket_.has_value(); }

  bool connect(const std::string& path) {
    Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return false;
    socket_.emplace(std::move(socket));
    outstanding_.clear();
    reader_opens_.clear();
    places_.clear();
    parts_.clear();
    is_wild_ = false;
    held.connected();
    return true;
  }
  /// The client ends, and holds nothing any more.
  void close() {
    cut_off();
    presence_.reset();
    held.forget();
  }
  /// Its connection ends: the client lives, and with it what it holds.
  void cut_off() {
    socket_.reset();
    descriptors_.clear();
  }

  void send(MessageType type, std::span<const std::uint8_t> body, bool is_answered) {
    if (!connected()) return;
    if (is_answered) outstanding_.insert(++requests_);
    note(type, body);
    // The server may have ended the connection: receive() tells.
    (void)socket_->send(type, is_answered ? requests_ : 0, body);
  }
  /// Whatever comes after it cannot be told from an answer to what it may have been.
  void send_bytes(std::span<const std::uint8_t> bytes) {
    if (!connected()) return;
    is_wild_ = true;
    held.lose_track();
    (void)::send(socket_->descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  /// Takes what the server has sent. Each answer must be whole, and be one to a request that is still open.
  void receive() {
    if (!connected()) return;
    const bool open = socket_->receive().has_value();
    while (auto message = socket_->pop()) {
      require(message->type != MessageType::none, "the server sent a malformed header");
      require(unpack_any(*message), "the server sent a malformed body");
      // A one-way message, whose number is 0, may be refused.
      const bool is_refusal = message->type == MessageType::failure && message->request == 0;
      if (!is_wild_ && !is_refusal) require(outstanding_.erase(message->request) == 1, "an answer to no open request");
      learn(*message);
    }
    if (!open) close();
  }

  /// Writes a part's metadata where it is going to say that it lies.
  void write(const wire::Extent& extent, std::span<const std::byte> bytes) {
    const auto found = descriptors_.find(extent.segment());
    if (found == descriptors_.end()) return;
    (void)!::pwrite(found->second.get(), bytes.data(), bytes.size(), static_cast<off_t>(extent.offset()));
  }
  // What it has learned
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  std::uint32_t epoch = 1;
  std::uint32_t incarnation = 1;
  std::uint64_t next_step = 0;
  std::uint64_t opening = 0;                      ///< of its last Open
  std::vector<wire::Extent> granted;              ///< and not yet used
  std::optional<wire::AttributeSetT> attributes;  ///< the set that its last part with one named
  std::uint64_t session = 0;
  std::uint64_t position = 0;
  std::vector<wire::StepKey> keys;  ///< of steps that it got, the newest last
  std::vector<wire::Extent> just_granted;
  std::string writes_in;   ///< the reservation that it writes in
  std::string writes_to;   ///< and the stream
  std::string reads_uuid;  ///< of the stream that it reads
  std::string consumer;    ///< its name as a reader
  HeldSteps held;
  std::uint64_t opened_at = 0;  ///< as a reader, counted in what is sent and opened
  /// A part that named who is to hold its step.
  struct HeldPart {
    std::uint64_t step = 0;
    std::uint64_t holder = 0;
    std::uint64_t sent_at = 0;
  };
  std::vector<HeldPart> just_committed;

 private:
  /// Remembers what the server is going to read in it, damaged as it may be.
  void note(MessageType type, std::span<const std::uint8_t> body) {
    Message message{type, requests_, {}, {}};
    const auto bytes = std::as_bytes(body);
    message.body.assign(bytes.begin(), bytes.end());
    switch (type) {
      case MessageType::writer_open:
        if (const auto asked = protocol::body_of<wire::WriterOpen>(message))
          places_[requests_] = {protocol::text_of((*asked)->reservation()), protocol::text_of((*asked)->stream())};
        break;
      case MessageType::writer_rejoin:
        if (const auto asked = protocol::body_of<wire::WriterRejoin>(message))
          places_[requests_] = {protocol::text_of((*asked)->reservation()), protocol::text_of((*asked)->stream())};
        break;
      case MessageType::part:
        if (const auto part = protocol::body_of<wire::Part>(message); part && (*part)->holder() != 0)
          parts_[requests_] = {(*part)->step(), (*part)->holder(), ++clock_};
        break;
      case MessageType::reader_open:
        if (const auto asked = protocol::body_of<wire::ReaderOpen>(message)) {
          reader_opens_[requests_].reset((*asked)->UnPack());
          if ((*asked)->resume()) held.asked_to_keep(reader_opens_[requests_]->pins);
        }
        break;
      case MessageType::step_release:
        if (const auto release = protocol::body_of<wire::StepRelease>(message); release && (*release)->steps()) {
          for (const wire::StepKey* key : *(*release)->steps()) held.released({key->epoch(), key->step()});
        }
        break;
      default:
        break;
    }
  }
  void take_place(std::uint32_t request) {
    const auto place = places_.find(request);
    writes_in = place == places_.end() ? "" : place->second.first;
    writes_to = place == places_.end() ? "" : place->second.second;
  }
  void take_reader(Message& message) {
    const auto opened = unpacked<wire::ReaderOpened>(message);
    const auto asked = reader_opens_.find(message.request);
    const bool resumes = asked != reader_opens_.end() && asked->second->resume;
    // Who comes back under its number has held its steps all the time; another number is another reader.
    if (!resumes || opened->session != session || opened->uuid != reads_uuid) held.forget();
    for (const wire::StepKey& key : opened->lost_pins)
      require(!held.contains({key.epoch(), key.step()}), "a step is lost that its reader held all the time");
    require(message.descriptors.size() <= 1, "more than the reader's presence came with it");
    if (message.descriptors.empty()) {
      presence_.reset();
    } else {
      presence_ = std::move(message.descriptors.front());
    }
    consumer = asked == reader_opens_.end() ? "" : asked->second->consumer;
    epoch = opened->epoch;
    session = opened->session;
    position = opened->position;
    reads_uuid = opened->uuid;
    opened_at = ++clock_;
  }
  template <class Table>
  static std::unique_ptr<typename Table::NativeTableType> unpacked(const Message& message) {
    return std::unique_ptr<typename Table::NativeTableType>((*protocol::body_of<Table>(message))->UnPack());
  }
  void take(Message& message, const std::vector<std::uint32_t>& segments) {
    require(message.descriptors.size() == segments.size(), "segments and descriptors are not as many");
    for (std::size_t i = 0; i < segments.size(); ++i)
      descriptors_.insert_or_assign(segments[i], std::move(message.descriptors[i]));
  }
  void take_space(const std::vector<wire::Extent>& extents) {
    std::map<std::uint32_t, server::RangeSet> ranges;
    for (const wire::Extent& extent : extents) {
      require(extent.length() > 0 && extent.length() % 4096 == 0 && extent.offset() % 4096 == 0, "space out of units");
      require(ranges[extent.segment()].insert(extent.offset(), extent.length()), "the same space granted twice");
    }
    granted.insert(granted.end(), extents.begin(), extents.end());
    just_granted.insert(just_granted.end(), extents.begin(), extents.end());
  }
  void take_step(const wire::StepDescriptorT& step) {
    const wire::StepSummary& summary = *step.summary;
    keys.emplace_back(summary.step(), summary.epoch(), 0);
    if (keys.size() > 16) keys.erase(keys.begin());
    if (step.pinned) held.given({summary.epoch(), summary.step()});
  }
  void learn(Message& message) {
    if (message.type != MessageType::welcome && message.type != MessageType::failure) understood();
    switch (message.type) {
      case MessageType::writer_opened: {
        const auto opened = unpacked<wire::WriterOpened>(message);
        epoch = opened->epoch;
        incarnation = opened->incarnation;
        next_step = opened->next_step;
        granted.clear();
        take_place(message.request);
        break;
      }
      case MessageType::writer_rejoined:
        take_place(message.request);
        next_step = unpacked<wire::WriterRejoined>(message)->next_step;
        break;
      case MessageType::space_granted: {
        const auto space = unpacked<wire::SpaceGranted>(message);
        require(!space->extents.empty(), "a grant without space");
        take(message, space->segments);
        take_space(space->extents);
        break;
      }
      case MessageType::committed: {
        const auto committed = unpacked<wire::Committed>(message);
        take(message, committed->segments);
        take_space(committed->extents);
        if (committed->step < next_step) break;
        next_step = committed->step + 1;
        if (const auto part = parts_.find(message.request); part != parts_.end())
          just_committed.push_back(part->second);
        break;
      }
      case MessageType::reader_opened:
        take_reader(message);
        break;
      case MessageType::step_event: {
        const auto event = unpacked<wire::StepEvent>(message);
        take(message, event->segments);
        if (event->step && event->step->summary) {
          take_step(*event->step);
          position = event->step->summary->step() + 1;
        }
        break;
      }
      case MessageType::segments_answer:
        take(message, unpacked<wire::SegmentsAnswer>(message)->segments);
        break;
      default:
        break;
    }
  }

  std::optional<protocol::MessageSocket> socket_;
  std::uint32_t requests_ = 0;
  std::set<std::uint32_t> outstanding_;
  bool is_wild_ = false;
  std::map<std::uint32_t, Descriptor> descriptors_;
  Descriptor presence_;
  std::map<std::uint32_t, std::unique_ptr<wire::ReaderOpenT>> reader_opens_;  ///< by request
  std::map<std::uint32_t, std::pair<std::string, std::string>> places_;       ///< of a writer, by request
  std::map<std::uint32_t, HeldPart> parts_;                                   ///< by request
  static inline std::uint64_t clock_ = 0;
};

}  // namespace forebay::fuzz
