// SPDX-License-Identifier: Apache-2.0
// What a Reader shares with its Steps: the connection, which comes back after a restart of the server, the pins, and
// the segments' descriptors. It lives until the last of them is gone; all of it may be used by several threads.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include <forebay/reader.h>

#include "base/return_error.h"
#include "client/connection/connection.h"
#include "client/connection/connection_guard.h"
#include "client/connection/members.h"
#include "client/connection/opening_process.h"
#include "client/reading/attribute_sets.h"
#include "client/reading/buffer_pool.h"
#include "client/reading/carried_step.h"
#include "client/reading/group_place.h"
#include "client/reading/pin.h"
#include "client/segments/segment_cache.h"

namespace forebay::client {

class ReaderLink : public std::enable_shared_from_this<ReaderLink> {
 public:
  /// Where the server was asked, and how often it was changed: answers belong to one connection.
  struct Current {
    std::shared_ptr<Connection> connection;
    std::uint64_t generation = 0;
    /// Tells a restarted server that this reader exists, as long as it is open.
    std::shared_ptr<const Descriptor> presence;
  };

  static Result<std::shared_ptr<ReaderLink>> open(const Address& address, const ReaderOptions& options,
                                                  const ServerPlace& place);

  const Address& address() const noexcept { return address_; }
  const ReaderOptions& options() const noexcept { return options_; }
  const OpeningProcess& opening_process() const noexcept { return opening_process_; }
  std::string where() const { return "stream " + address_.path(); }
  /// Of the stream that was opened; a resume() that finds another one under its name fails.
  const std::string& stream_uuid() const noexcept { return stream_uuid_; }

  Current current() const;
  /// Brings the connection back after `broken` was lost, with position and pins, unless another thread has done so.
  Result<void> resume(const Connection& broken, Deadline deadline);
  /// One request, sent again where the server goes away meanwhile. `generation`: that of the connection that answered.
  template <class Object>
  Result<protocol::Message> ask(protocol::MessageType type, const Object& body, protocol::MessageType expected,
                                std::uint64_t* generation = nullptr);

  /// Where the reader is, for resume().
  void set_position(std::uint32_t epoch, std::uint64_t position);
  /// A step was given: the first one that this reader takes is not after it. False, and nothing is noted, where the
  /// connection that brought it has ended: the server that comes back gives it again.
  bool step_given(std::uint32_t epoch, std::uint64_t step, std::uint64_t generation);
  /// Does the server still hold what this connection brings? Not once another one was told what is held.
  bool is_current(std::uint64_t generation) const;
  std::uint32_t epoch() const;
  std::uint64_t position() const;
  std::uint64_t first_step() const;
  StreamStatus status_at_open() const noexcept { return status_at_open_; }
  /// Are there steps that it does not take?
  bool is_limited() const noexcept {
    return !options_.run.empty() || options_.wait_for_writer || options_.first_step > 0;
  }
  /// Was it set back by a resume() since this was last asked? A server that comes back later does not say so again.
  bool take_rewound();

  /// Is it a rank of a reader group?
  bool in_group() const noexcept { return place_.has_value(); }
  /// The number of the last turn of its group that it has the answer to.
  std::uint64_t turn() const;
  /// The next turn has been answered, with an event or an error.
  void turn_answered(const wire::StepEvent& event);
  void turn_failed(const Error& error);

  /// Notes a delivery of a step through a connection.
  std::shared_ptr<Pin> delivered(std::uint64_t step, std::uint32_t epoch, bool pinned, std::uint64_t generation);

  /// Brings the connection back if the server went away.
  Result<void> confirm();
  std::uint64_t session() const;

  /// The reader is gone; the steps that it gave stay as they are.
  void leave();
  /// Gives the connection up. The next call brings it back with what is held, which the server keeps until then, or
  /// until nobody holds `presence`.
  void give_up() noexcept { current().connection->give_up(); }

  /// The server is on another node: bytes come by request.
  bool is_remote() const noexcept { return remote_; }
  /// Bytes of a step's extents, one behind another, from such a server. They count after Pin::check_after_read().
  /// `checksum`: CRC-32C of what comes before them, then of all; null: none is taken.
  Result<void> fetch(const Pin& pin, std::span<const wire::Extent> extents, std::span<std::byte> out,
                     std::uint32_t* checksum = nullptr);

  /// A run of a step's bytes, and where they go.
  struct Wanted {
    wire::Extent extent;
    std::span<std::byte> out;
    bool checks = false;
    bool is_here = false;        ///< it is not asked for, or no more
    std::uint32_t checksum = 0;  ///< CRC-32C, if it checks
  };
  /// All of them, from one server or from several side by side. They count as those of the other fetch().
  Result<void> fetch(const Pin& pin, std::span<Wanted> wanted);

  /// A segment of another member than the home, for a step: mapped from a descriptor on that member's node, else read
  /// by request. unavailable while the member is away.
  Result<std::shared_ptr<Segment>> member_segment(const Pin& pin, std::uint32_t number, std::uint16_t member);
  /// For who maps what a member on this node has, kept meanwhile: the steps that this reader holds stay as long as it
  /// exists, whatever becomes of the connection, or of the home. no_space where that cannot be had.
  Result<std::shared_ptr<const void>> begin_mapping(std::uint16_t member);
  /// The same if it is on this node, and the member there now; else null, without waiting for the member.
  std::shared_ptr<Segment> segment_here(std::uint32_t number, std::uint16_t member);

  SegmentCache& segments() noexcept { return segments_; }
  AttributeSets& attribute_sets() noexcept { return attribute_sets_; }
  /// A segment by number, asked for where it is not here. corrupt if the server does not know it.
  Result<std::shared_ptr<Segment>> segment(std::uint32_t number);
  BufferPool& buffers() noexcept { return buffers_; }

 private:
  friend class Pin;

  ReaderLink(Address address, ReaderOptions options);
  /// How long a read waits for a member that is away.
  Deadline member_deadline() const;
  /// fetch() of extents of another member: all of one.
  Result<void> fetch_from(std::uint16_t member, wire::BytesGetT request, std::span<std::byte> out,
                          std::uint32_t* checksum);
  /// A segment of a member on this node.
  Result<std::shared_ptr<Segment>> segment_from(Connection& member, std::uint32_t number);
  /// What this process keeps open on the member's node.
  struct MappedMember {
    std::uint16_t member = 0;
    Members::Mapping mapping;
    /// Something that it mapped was not kept meanwhile. What begins to be mapped now takes another one.
    std::atomic<bool> stale = false;
  };
  /// A server that was started anew could not keep all that was mapped.
  void mappings_are_stale();
  /// The pins that a resuming reader says it holds. Declared before a lock, for the last owner of one releases it.
  using Presented = std::vector<std::shared_ptr<Pin>>;

  /// The server holds none of them any more.
  void lose_pins();
  /// Sends ReaderOpen, to resume where `presented` is given, and from its answer on uses this connection.
  Result<void> greet(const std::shared_ptr<Connection>& connection, Presented* presented, Deadline deadline);
  void release(Pin& pin);
  bool is_current_locked(std::uint64_t generation) const noexcept {
    return generation == current_.generation && generation != presented_;
  }
  /// A server that came back after `broken` was lost learns at once what is held no longer. Without waiting for one.
  void tell_what_is_held(const Connection& broken);

  const Address address_;
  const ReaderOptions options_;
  const OpeningProcess opening_process_;
  std::string stream_uuid_;                              // constant after open()
  bool remote_ = false;                                  // likewise
  StreamStatus status_at_open_ = StreamStatus::waiting;  // likewise
  SegmentCache segments_;
  Members members_;
  AttributeSets attribute_sets_;
  BufferPool buffers_;

  std::mutex mapping_mutex_;  // one thread begins to map; taken before the others
  std::mutex resume_mutex_;   // one thread reconnects; taken before mutex_
  mutable std::mutex mutex_;
  // Guarded by mutex_:
  Current current_;
  std::uint64_t presented_ = 0;  ///< of the connection whose pins another one was told, for resume()
  bool left_ = false;
  std::uint64_t session_ = 0;
  std::uint32_t epoch_ = 0;
  std::uint64_t position_ = 0;
  std::uint64_t first_step_ = 0;
  bool rewound_ = false;
  std::map<std::uint16_t, std::shared_ptr<MappedMember>> mapped_;  // by member; none is stale
  std::vector<std::weak_ptr<MappedMember>> all_mapped_;
  std::set<std::uint16_t> elsewhere_;  // members that were reached over the network
  std::optional<GroupPlace> place_;    // whether it has one is constant after construction
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::pair<Pin*, std::weak_ptr<Pin>>> pins_;  // by epoch and step
};

template <class Object>
Result<protocol::Message> ReaderLink::ask(protocol::MessageType type, const Object& body,
                                          protocol::MessageType expected, std::uint64_t* generation) {
  RETURN_IF_ERROR(opening_process_.check());
  const ConnectionGuard guard([this] { give_up(); });
  std::optional<Deadline> deadline;
  while (true) {
    const Current now = current();
    if (generation != nullptr) *generation = now.generation;
    auto answer = now.connection->call(type, body, expected, now.connection->request_deadline());
    if (answer || !now.connection->is_broken()) {
      if (!answer && answer.error().where.empty()) answer.error().where = where();
      return answer;
    }
    if (!deadline) deadline = Deadline::after_ms(options_.reconnect_timeout_ms);
    RETURN_IF_ERROR(resume(*now.connection, *deadline));
  }
}

}  // namespace forebay::client
