// SPDX-License-Identifier: Apache-2.0
// The state of a Writer. writer.cpp: the public calls and their checks; writer_step.cpp: space and publishing;
// writer_rejoin.cpp: talking to the server across its restarts; writer_allocate.cpp: memory handed out for computing in
// place, and the pin on its step.
#pragma once

#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <forebay/writer.h>

#include "client/connection/connection.h"
#include "client/connection/connection_guard.h"
#include "client/connection/members.h"
#include "client/connection/opening_process.h"
#include "client/reading/reader_link.h"
#include "client/segments/segment_cache.h"
#include "client/writing/allocated_memory.h"
#include "client/writing/block_writer.h"
#include "client/writing/open_writers.h"
#include "client/writing/remote_space.h"
#include "client/writing/space.h"
#include "protocol/step_metadata_builder.h"

namespace forebay {

struct Writer::Impl {
  enum class State { between_steps, in_step, publishing, closed };

  /// An answer that grants space. The pointers are into the message.
  struct Grant {
    protocol::Message message;
    const flatbuffers::Vector<const wire::Extent*>* extents = nullptr;
    const flatbuffers::Vector<std::uint32_t>* segments = nullptr;
    const flatbuffers::Vector<flatbuffers::Offset<wire::MemberPermit>>* permits = nullptr;
    bool at_home_only = false;  ///< what it brings on other members was taken back
  };
  /// Another member of the reservation, as the open step meets it.
  struct Member {
    std::shared_ptr<client::RemoteSpace> space;  ///< where it is on another node; else null
    std::uint64_t storage_incarnation = 0;
    std::uint64_t generation = 0;  ///< of its connection
    std::set<std::uint32_t> permitted;
  };

  Impl(Address address, WriterOptions options);

  // writer.cpp
  /// Stands first in each public call.
  auto guard() noexcept {
    return client::ConnectionGuard([this] { give_up(); });
  }
  /// The server sees the rank die. Nothing can be done with the writer any more.
  void give_up() noexcept;
  Result<void> check_usable() const;
  Result<void> check_in_step() const;
  /// The same, and nothing of the open step has failed so far.
  Result<void> check_step_whole() const;
  std::string where() const;
  /// Blocks are sent to the server: nothing is mapped.
  void write_remotely();
  /// The block's bytes, once everything about it holds.
  Result<std::uint64_t> check_block(const BlockSpec& block) const;
  Result<void> check_against_step(const BlockSpec& block);
  /// Takes over the attributes of the last step that is kept, as a stream has them that is continued.
  Result<void> inherit_attributes();
  protocol::StepMetadataBuilder::Variable variable_of(const BlockSpec& block) const;

  // writer_step.cpp
  /// With a lag limit: until no reader is too far behind.
  Result<void> wait_for_readers();
  /// Space for a block's bytes, in `pieces`; asks the server for more where needed.
  Result<void> take_space(std::uint64_t bytes, bool whole_pages, bool at_home);
  /// Waits until `bytes` are free, asking for `extra` more where that is no reason to fail.
  Result<void> request_space(std::uint64_t bytes, std::uint64_t ahead, bool at_home);
  /// Takes what is granted and was not taken yet. What that fails for stays granted, for a later call.
  /// `may_ask`: the server for descriptors that did not fit into its answer; else a grant that lacks some stays, too.
  Result<void> take_grant(bool may_ask);
  Result<bool> take(Grant& granted, bool may_ask);
  wire::SegmentsGetT missing_segments(const Grant& granted) const;
  /// Asks for descriptors that did not fit. False if the server was restarted meanwhile.
  Result<bool> fetch_segments(const wire::SegmentsGetT& missing);

  // writer_members.cpp
  /// After the open: where the reservation has others.
  void reach_members();
  /// Shows them to the members that they are for, whose segments can be written from then on.
  Result<void> show_permits(const flatbuffers::Vector<flatbuffers::Offset<wire::MemberPermit>>* permits);
  /// What a segment on another node is written through; null if it is not on one, or if that is not known.
  std::unique_ptr<File> remote_file(std::uint32_t segment, std::uint16_t member) const;
  /// Whose space a request means.
  client::SpaceKind kind_of_space(bool at_home) const;
  /// What the step is expected to take. Where a member cannot be reached, other space is asked for with the blocks.
  Result<void> request_expected_space();
  /// Those that bytes of the open step were lost with.
  std::vector<std::uint16_t> lost_members() const;
  /// All that was written to other members is there; says in `part` what was met.
  Result<void> finish_members();
  /// The step is given up: its space there is taken back, here and at the home.
  void give_up_members();
  /// Writes what is left of the step and its metadata, and fills `part`.
  Result<void> complete_part();
  /// Encodes the attributes if they have changed; a large table is written as a set for this step and those to come.
  Result<void> complete_attributes();
  /// The set that the open step brings is written again with the next one.
  void forget_new_attributes();
  Result<void> publish();
  void step_committed();

  // writer_rejoin.cpp
  /// Sends the request, or goes on waiting for the one that `request` names, across restarts of the server.
  /// `is_settled` says after a rejoin that nothing needs to be sent any more: the result is then empty.
  template <class Object>
  Result<std::optional<protocol::Message>> ask(std::uint32_t& request, protocol::MessageType type, const Object& body,
                                               protocol::MessageType expected, bool (*is_settled)(const Impl&));
  /// ask() for a request that is not taken up again once it was interrupted.
  template <class Object>
  Result<void> order(protocol::MessageType type, const Object& body);
  Result<void> rejoin(Deadline deadline);
  Result<void> send_rejoin(client::Connection& connection);
  /// Ends that no later call can mend are kept.
  tl::unexpected<Error> failed(Error error);

  // writer_allocate.cpp
  Result<Allocation> allocate(const BlockSpec& block, std::uint64_t bytes);
  /// Where the program holds memory that was allocated in the open step, has the part pin it for `holder`.
  Result<void> pin_if_held();
  void pin_part();

  // Constant after open.
  const Address address;
  const WriterOptions options;
  const client::OpeningProcess opening_process;
  std::uint32_t epoch = 0;
  std::uint32_t incarnation = 0;
  std::string interruption;

  std::shared_ptr<client::Connection> connection;
  client::OpenWriter open_writer;
  std::shared_ptr<client::RemoteSpace> remote;  // where the server is on another node; else null
  std::unique_ptr<client::Members> ways;        // to the reservation's other members; null where there are none
  std::map<std::uint16_t, Member> members;      // those that this rank has written to
  std::set<std::uint16_t> members_lost;         // bytes of the open step, or a permit, with them
  bool blocks_at_home = false;                  // the home gives space for larger blocks, too
  std::string near;                             // uuid of the root whose server is on this node, as far as is known
  client::SegmentCache segments;
  client::Space space;
  client::AllocatedMemory allocated;
  client::BlockWriter blocks;
  protocol::StepMetadataBuilder metadata;

  State state = State::between_steps;
  std::uint64_t step = 0;                                                // the one after the last that committed
  std::uint64_t number = 0;                                              // of the open step: `step`, or greater
  std::uint64_t last_bytes = std::numeric_limits<std::uint64_t>::max();  // what the last step took
  std::uint64_t expected_bytes = 0;                                      // what each of the last two took, at least
  bool given_up = false;
  std::optional<Error> step_error;             // a write failed: the open step can only be given up
  std::optional<Error> ended_by;               // group_broken, fenced or failed
  std::uint32_t begin_request = 0;             // outstanding, or 0
  std::uint32_t space_request = 0;             // outstanding, or 0
  std::uint32_t part_request = 0;              // outstanding, or 0
  std::uint64_t server_next_step = 0;          // after a rejoin
  wire::PartT part;                            // while publishing
  std::optional<Grant> grant;                  // not taken yet
  std::uint64_t rejoins = 0;                   // a restarted server knows nothing of what was granted before
  std::vector<format::Piece> pieces;           // of the block that is being written
  std::shared_ptr<client::ReaderLink> holder;  // pins steps for who looks at allocated memory; made when first needed
  std::shared_ptr<client::Pin> part_pin;       // while publishing, if the part asks for it

  protocol::Attributes attributes;
  std::vector<std::uint8_t> encoded_attributes;  // for the metadata of each step; empty: none, or they are a set
  bool attributes_changed = false;
  std::optional<wire::AttributeSetT> attribute_set;  // that the steps refer to, from that of its number on
};

}  // namespace forebay
