// SPDX-License-Identifier: Apache-2.0
// Consumer side: follows a stream or reads any of its steps. A Reader is used by one thread at a time; Steps and Views
// may outlive it and be used and released in any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <forebay/address.h>
#include <forebay/result.h>
#include <forebay/types.h>
#include <forebay/writer.h>

namespace forebay {

enum class Watermark : std::uint8_t { committed = 1, durable = 2, staged = 3 };

/// When blocks are compared with their CRC-32C.
enum class Verify : std::uint8_t {
  none = 1,   ///< never: trust the SSD and the network
  first = 2,  ///< the first time that this reader touches a block, also for a part of it or a view
  read = 3,   ///< on every read; views are checked by Step::verify
  /// A whole block the first time that it is read, unless the server committed its step less than ten seconds before it
  /// gave the step out; every whole block that comes over a network. Parts of blocks and views are not checked, nor are
  /// blocks that were written without a checksum.
  automatic = 4,
};

/// How steps are shared out among the readers that follow with the same consumer name (or without one).
enum class StepDistribution : std::uint8_t {
  stream_default = 0,  ///< what the writer said, else all_to_all
  all_to_all = 1,      ///< everyone gets every step
  round_robin = 2,     ///< the readers take turns
  on_demand = 3,       ///< whoever asks gets the next one
};

/// What a reader group does when one of its ranks dies. On the wire: never renumber.
enum class OnReaderLost : std::uint8_t {
  end = 0,    ///< it ends: the other ranks' next call fails and names the rank
  go_on = 1,  ///< it goes on without the rank, which may be started again and joins at the next turn
};

/// What a follower does about a step with a part on a member of the reservation that is away
/// (docs/operations/servers.md). On the wire: never renumber.
enum class OnUnavailable : std::uint8_t {
  wait = 0,   ///< next() waits until the member is back; later steps do not come first
  skip = 1,   ///< next() passes over the step, with a notice, and gives those that are there
  error = 2,  ///< next() fails with ErrorCode::unavailable; called again, it looks again
};

enum class StreamStatus : std::uint8_t {
  waiting = 1,      ///< exists, but no group has written yet
  live = 2,         ///< a writer group is at work
  ended = 3,        ///< closed by all ranks
  interrupted = 4,  ///< a rank was lost; a restart may go on
  failed = 5,       ///< a sync failed: what was durable stays, nothing new is promised
};
std::string_view to_string(StreamStatus status) noexcept;

/// Where a follower begins. A consumer's cursor, where there is one, goes before `oldest`.
struct Start {
  enum class Kind : std::uint8_t { cursor = 1, oldest = 2, latest = 3, next = 4, step = 5 };
  Kind kind = Kind::cursor;  ///< cursor: the consumer's, else the oldest kept step
  std::uint64_t step = 0;    ///< with Kind::step
};
/// "cursor", "oldest", "latest" (the newest committed), "next" (only steps to come) or a step number.
Result<Start> parse_start(std::string_view text);

struct ReaderOptions {
  std::string consumer;  ///< empty: leaves no trace
  Start start;
  Watermark min_watermark = Watermark::committed;  ///< committed or durable
  /// Maps views of steps whatever the writer may do. Not set: a view is a copy where another user, who is neither root
  /// nor the server's, may have the step's segments open for writing. If that user truncates one, a mapped view faults
  /// (SIGBUS).
  bool trust_writer = false;
  Verify verify = Verify::automatic;
  bool latest_only = false;  ///< each wait gives the newest step, skipping what lies between
  StepDistribution distribution = StepDistribution::stream_default;
  bool follow = true;  ///< false: random access only; takes no cursor and counts as no reader
  /// A member that goes away once a step was given: reads of it wait for it, up to reconnect_timeout_ms, with `wait`
  /// and for random access; else they fail at once.
  OnUnavailable on_unavailable = OnUnavailable::wait;
  /// Open waits until a writer group of this run has formed, and the reader takes no step of another run. Empty: of
  /// any.
  std::string run;
  /// Open waits for a living writer group (of `run`, if that is set), and the reader takes no step before its first.
  bool wait_for_writer = false;
  /// Takes no step before this one of this epoch: for a reader that goes on from another one's first_step() and
  /// epoch().
  std::uint64_t first_step = 0;
  std::uint32_t first_step_epoch = 0;
  /// With `ranks` > 1 this reader is one rank of a reader group (docs/design/reader-groups.md): open() waits for all
  /// ranks, next() gives all of them the same answer, and steps() is the list of the moment of open().
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  std::string ranks_source = "default";  ///< where rank and ranks came from; named when a rank is missing
  std::string group;                     ///< group id of the launcher; ranks of one group share it
  std::int64_t turn_timeout_ms = -1;     ///< a rank that does not call next() for so long is lost; < 0: never
  OnReaderLost on_reader_lost = OnReaderLost::end;
  bool lists = false;  ///< with `ranks` > 1: if the stream has ended, steps() will be called, although it is followed
  /// For the stream to exist, and for the writer group that `run` and `wait_for_writer` ask for; < 0: for ever.
  std::int64_t open_timeout_ms = 60'000;
  std::int64_t reconnect_timeout_ms = 60'000;
  std::optional<ServerPlace> server;  ///< none: the one that the environment names
  InterruptHook interrupt;
};

/// One line of `steps`: what is known of a step without reading it.
struct StepSummary {
  std::uint64_t step = 0;
  std::uint32_t epoch = 0;
  std::uint32_t incarnation = 0;
  std::int64_t time_ns = 0;      ///< of the commit, since the Unix epoch
  std::uint64_t size_bytes = 0;  ///< data and metadata on SSD
  bool durable = false;
  bool staged = false;
  bool precious = false;  ///< precious and not yet staged
  std::uint32_t pins = 0;

  /// Calls `visit(name, field...)` for each field of one record, or of several whose fields have the same names (the
  /// wire's tables). Names and order are those of Python's records and of JSON: a new field is added above and here.
  template <class Visit, class... Records>
  static void each_field(Visit&& visit, Records&... records) {
    visit("number", records.step...);
    visit("epoch", records.epoch...);
    visit("incarnation", records.incarnation...);
    visit("time_ns", records.time_ns...);
    visit("size_bytes", records.size_bytes...);
    visit("durable", records.durable...);
    visit("staged", records.staged...);
    visit("precious", records.precious...);
    visit("pins", records.pins...);
  }
};

struct ConsumerInfo {
  std::string name;
  std::uint64_t position = 0;   ///< the next step that it will get
  std::uint64_t lag_steps = 0;  ///< committed steps that it has not passed
  bool connected = false;
  std::uint32_t holder_pid = 0;

  /// See StepSummary::each_field.
  template <class Visit, class... Records>
  static void each_field(Visit&& visit, Records&... records) {
    visit("name", records.name...);
    visit("position", records.position...);
    visit("lag_steps", records.lag_steps...);
    visit("connected", records.connected...);
    visit("holder_pid", records.holder_pid...);
  }
};

/// Somebody who waits: a rank of a stream's writers, or a reader.
struct StreamWait {
  /// For what. On the wire: never renumber.
  enum class Kind : std::uint8_t {
    space = 1,    ///< a rank, for space in the reservation
    readers = 2,  ///< a rank, for a reader that is too far behind (LagLimit)
    durable = 3,  ///< a rank, for its step to be durable
    group = 4,    ///< a rank that opens, for other ranks, an older group or the readers of a rendezvous
    writer = 5,   ///< a reader that opens, for a writer group
    step = 6,     ///< a reader, for the next step
    stream = 7,   ///< a reader that opens, for somebody to make the stream
    server = 8,   ///< a reader, for a server that is away and has a part of its next step
  };
  Kind kind = Kind::space;
  std::string who;            ///< for people: rank, consumer, process or address
  std::uint32_t pid = 0;      ///< 0: on another node
  std::string waits_for;      ///< for people: what, and who or what holds it up
  std::int64_t since_ns = 0;  ///< since the Unix epoch

  bool operator==(const StreamWait&) const = default;

  /// See StepSummary::each_field.
  template <class Visit, class... Records>
  static void each_field(Visit&& visit, Records&... records) {
    visit("kind", records.kind...);
    visit("who", records.who...);
    visit("pid", records.pid...);
    visit("waits_for", records.waits_for...);
    visit("since_ns", records.since_ns...);
  }
};

/// Where an epoch of a stream begins: the steps from `first_step` on, up to the next of these, are of it, kept or not.
struct EpochStart {
  std::uint32_t epoch = 0;
  std::uint64_t first_step = 0;

  bool operator==(const EpochStart&) const = default;
  /// See StepSummary::each_field.
  template <class Visit, class... Records>
  static void each_field(Visit&& visit, Records&... records) {
    visit("epoch", records.epoch...);
    visit("first_step", records.first_step...);
  }
};

/// Steps from `first` to `last`, both included.
struct StepRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;

  bool operator==(const StepRange&) const = default;
  /// See StepSummary::each_field.
  template <class Visit, class... Records>
  static void each_field(Visit&& visit, Records&... records) {
    visit("first", records.first...);
    visit("last", records.last...);
  }
};

struct StreamInfo {
  std::string name;
  std::string uuid;
  std::uint32_t epoch = 0;
  std::uint32_t incarnation = 0;
  std::uint32_t ranks = 0;
  std::string run;            ///< that the last group said it belongs to; empty: none
  std::string original_name;  ///< by which a program opened it (WriterOptions); empty: not known
  StreamStatus status = StreamStatus::waiting;
  std::string status_text;                 ///< why interrupted or failed
  std::optional<std::uint64_t> oldest;     ///< oldest kept step
  std::optional<std::uint64_t> committed;  ///< newest committed step
  std::optional<std::uint64_t> durable;    ///< newest durable step
  std::optional<std::uint64_t> staged;     ///< newest staged step
  std::uint64_t steps = 0;                 ///< kept steps
  std::uint64_t size_bytes = 0;
  std::uint64_t committed_bytes = 0;  ///< of all steps committed since the server was started
  bool step_open = false;
  Retention retention;
  std::vector<ConsumerInfo> consumers;
  std::vector<StreamWait> waits;  ///< who waits now: ranks of writers first, then readers
  /// By first step, 256 at most; steps before the first of them are of epoch 1. Steps of an epoch that a later one
  /// begins before or at were withdrawn.
  std::vector<EpochStart> epochs;
  /// In ascending order, 256 at most: steps of which bytes went with a server of the reservation, until retention would
  /// have dropped them. A kept step in one of the ranges is none of them.
  std::vector<StepRange> lost;

  /// See StepSummary::each_field.
  template <class Visit, class... Records>
  static void each_field(Visit&& visit, Records&... records) {
    visit("name", records.name...);
    visit("uuid", records.uuid...);
    visit("epoch", records.epoch...);
    visit("incarnation", records.incarnation...);
    visit("ranks", records.ranks...);
    visit("run", records.run...);
    visit("original_name", records.original_name...);
    visit("status", records.status...);
    visit("status_text", records.status_text...);
    visit("oldest", records.oldest...);
    visit("committed", records.committed...);
    visit("durable", records.durable...);
    visit("staged", records.staged...);
    visit("steps", records.steps...);
    visit("size_bytes", records.size_bytes...);
    visit("committed_bytes", records.committed_bytes...);
    visit("step_open", records.step_open...);
    visit("retention", records.retention...);
    visit("consumers", records.consumers...);
    visit("waits", records.waits...);
    visit("epochs", records.epochs...);
    visit("lost", records.lost...);
  }
};

/// One block of a variable in one step.
struct BlockInfo {
  std::uint32_t rank = 0;
  Dimensions start;  ///< in the global shape; empty for local arrays and values
  Dimensions count;
  bool has_statistics = false;
  std::byte min[16] = {};  ///< one element of the variable's type, with has_statistics
  std::byte max[16] = {};
  bool has_checksum = false;
  std::uint32_t checksum = 0;  ///< CRC-32C of the block's bytes in C order
  std::uint64_t size_bytes = 0;
};

struct VariableInfo {
  std::string name;
  DataType type = DataType::float64;
  ShapeKind kind = ShapeKind::global_array;
  Dimensions shape;  ///< joined arrays: the summed shape; local values: [blocks]; values and local arrays: empty
  std::vector<BlockInfo> blocks;  ///< in order of rank, then of writing
  std::string conflict;           ///< why it cannot be read: ranks wrote things that do not go together; empty: it can
};

/// What is wrong with the variable in this step, for people; empty: nothing. Either it cannot be read (`conflict`), or
/// blocks of a global array overlap, or none has some of its elements, which then keep what the buffer held.
std::string fault_of(const VariableInfo& variable);

struct Attribute {
  std::string name;
  AttributeValue value;
};

/// Memory layout of a read's destination: the box goes to `start` of an array of extents `count`; both empty:
/// contiguous.
struct MemoryLayout {
  Dimensions start;
  Dimensions count;
};

/// One committed step. Holding it is a pin where `pinned()`; releasing the last reference unpins.
class Step {
 public:
  ~Step();
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  std::uint64_t number() const;
  std::uint32_t epoch() const;
  const StepSummary& summary() const;
  bool pinned() const;  ///< false: reads are copies, checked afterwards for the step still being there

  const std::vector<VariableInfo>& variables() const;
  const VariableInfo* find(std::string_view name) const;  ///< null if absent
  const std::vector<Attribute>& attributes() const;

  /// Copies a box of a global, joined or local_value variable into `out` (C order; elements of the variable's type).
  /// Parts of the box that no block covers are left untouched. Later blocks win where blocks overlap.
  /// Errors: invalid_argument (box outside the shape), corrupt (with Verify), step_gone, io_error.
  Result<void> read(const VariableInfo& variable, const Box& box, void* out, const MemoryLayout& memory = {}) const;

  /// Copies a box relative to one block's own start.
  Result<void> read_block(const VariableInfo& variable, std::size_t block, const Box& box, void* out,
                          const MemoryLayout& memory = {}) const;

  /// A single value's bytes or string: global_value (block 0) or local_value (any block).
  Result<void> read_value(const VariableInfo& variable, std::size_t block, void* out) const;
  Result<std::string> read_string(const VariableInfo& variable, std::size_t block) const;

  /// Read-only bytes of the box, if one block covers it; strides in bytes per dimension of the box. Mapped without a
  /// copy, or copied from a server on another node and where another user may write (ReaderOptions::trust_writer).
  /// unsupported if blocks must be merged or the step is not pinned (then use read). The owner keeps step and mapping.
  struct View {
    const std::byte* data = nullptr;
    std::vector<std::int64_t> strides_bytes;
    std::shared_ptr<const void> owner;
  };
  Result<View> view(const VariableInfo& variable, const Box& box) const;
  /// The same for one block, box relative to it.
  Result<View> view_block(const VariableInfo& variable, std::size_t block, const Box& box) const;

  /// Where a block lies in files of this node, in order: so it can be shared instead of copied (FICLONERANGE). The
  /// owner keeps the step and the descriptors, which are open for reading. No part: the step is not pinned, on another
  /// node, or another user may write there (ReaderOptions::trust_writer), or the block is a single value or empty.
  struct FilePart {
    int descriptor = -1;
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
  };
  struct FileParts {
    std::vector<FilePart> parts;
    std::shared_ptr<const void> owner;
  };
  Result<FileParts> file_parts(const VariableInfo& variable, std::size_t block) const;

  /// Checks the CRC-32C of every block of `variable` (null: of all variables). corrupt names variable, block and place;
  /// unsupported: a block was written without one.
  Result<void> verify(const VariableInfo* variable = nullptr) const;

  struct Impl;
  explicit Step(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

/// What a wait brought.
struct NextStep {
  enum class Kind : std::uint8_t {
    step = 1,           ///< `step` is set
    not_ready = 2,      ///< the timeout passed
    end_of_stream = 3,  ///< `status` says ended, interrupted (after the grace time) or failed
    /// Call again. The stream's status changed (interrupted, live again), or `text` says that the next step waits for a
    /// member that is away, or which steps were passed over for that (ReaderOptions::on_unavailable).
    notice = 4,
  };
  Kind kind = Kind::not_ready;
  std::shared_ptr<const Step> step;
  bool rewound = false;  ///< steps were withdrawn or the stream replaced since the last step: numbers may repeat
  /// Steps that lie between the last step given (or where the reader began) and this one: retention dropped them before
  /// the reader got to them, or latest_only or on_unavailable passed them over. Where readers share steps out: dropped
  /// ones of its share.
  std::uint64_t skipped = 0;
  StreamStatus status = StreamStatus::live;
  std::string text;  ///< not_ready: the member that the step waits for, and since when; else empty
};

/// Where memory runs out in a call it throws std::bad_alloc and the connection is given up; the next call makes another
/// and goes on. Steps and views that were handed out stay as they are.
class Reader {
 public:
  /// Waits until the stream exists, and for a writer group where the options ask for one. Errors: not_found
  /// (reservation), permission_denied, busy (consumer has a holder, by pid), timeout, disconnected, cancelled.
  static Result<std::unique_ptr<Reader>> open(const Address& address, const ReaderOptions& options);
  ~Reader();
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  /// The next step. timeout_ms: < 0 for ever, 0 polls: a step that was committed before is found, unless the server is
  /// so busy that it does not answer for a tenth of a second. Server restarts are ridden out within
  /// reconnect_timeout_ms. All ranks of a reader group get the same answer once each of them has called; timeout_ms
  /// counts from then on, and the shortest one counts for all. Error group_broken: a rank was lost.
  Result<NextStep> next(std::int64_t timeout_ms);

  /// Any kept step by number. not_found or step_gone otherwise. `epoch`: the step of this epoch also where it was
  /// withdrawn and somebody holds it, such as the process that this one was started by; the one that is kept now if
  /// nobody does.
  Result<std::shared_ptr<const Step>> step(std::uint64_t number, std::uint32_t epoch = 0);
  /// The steps with these numbers, one after another, but without a round trip for each. Those that are not kept are
  /// left out. Ends with the first failure of `visit`.
  Result<void> for_each_step(std::span<const std::uint64_t> numbers,
                             const std::function<Result<void>(std::shared_ptr<const Step>)>& visit);

  /// The kept steps in order (committed, or durable with min_watermark). Of a reader group: those of its open(), with
  /// follow=false, or with `lists` if the stream had ended; one that is gone since, or written anew, is step_gone when
  /// it is read.
  Result<std::vector<StepSummary>> steps();
  Result<StreamInfo> info();

  /// Moves the consumer's cursor behind `step`: it will not be asked for again. Named consumers only.
  Result<void> acknowledge(const Step& step);
  /// The next wait gives this step, or the first kept one after it; the cursor moves there too. Not beyond the step
  /// that comes next (ErrorCode::invalid_argument). unsupported: a rank of a reader group cannot move the others.
  Result<void> seek(std::uint64_t step);
  /// The number that the next wait looks for from: one after the step given last, also where that could not be read.
  std::uint64_t position() const;

  const Address& address() const;
  /// Of the stream that was opened. One that is removed and made anew under this address has another.
  const std::string& stream_uuid() const;
  /// The stream's status when it was opened.
  StreamStatus status_at_open() const;
  /// The first step that the options `run`, `wait_for_writer` and `first_step` let this reader take; 0 without them.
  std::uint64_t first_step() const;
  /// The epoch that position() and first_step() count in.
  std::uint32_t epoch() const;

 private:
  struct Impl;
  explicit Reader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace forebay
