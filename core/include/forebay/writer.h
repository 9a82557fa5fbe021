// SPDX-License-Identifier: Apache-2.0
// Producer side: one rank of a writer group appends steps to a stream. Not thread-safe: one thread at a time per
// Writer.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <forebay/address.h>
#include <forebay/result.h>
#include <forebay/types.h>

namespace forebay {

/// Asked about ten times a second while a call waits; true ends the wait with ErrorCode::cancelled.
/// It does not throw.
using InterruptHook = std::function<bool()>;

enum class WriteMode : std::uint8_t {
  replace = 1,  ///< "w": a new epoch from step 0, once the whole group has formed
  append = 2,   ///< "a": after the last committed step, or after `append_after`; creates the stream if need be
};

enum class WhenFull : std::uint8_t {
  block = 1,        ///< wait up to `block_timeout_ms`; an error at once if nothing can end the wait
  drop_oldest = 2,  ///< drop the oldest steps that are neither precious nor needed by a named consumer
  error = 3,        ///< fail with no_space
};

enum class Durability : std::uint8_t {
  committed = 1,  ///< end_step returns when the step is visible and survives the death of any process
  durable = 2,    ///< end_step returns when the step survives power loss
};

/// Which steps the stream keeps. Both of the first two conditions must allow a step to go where both are set; neither
/// set: every step is kept. Text form (parse_retention): "all" or comma-separated terms "last:N",
/// "consumers:NAME+NAME", "first:N", "precious:N".
struct Retention {
  std::optional<std::uint64_t> last;   ///< a step may go when N newer ones are committed
  std::vector<std::string> consumers;  ///< a step may go when all of these have passed it
  std::uint64_t first = 0;             ///< steps below this number stay until the stream has ended; 0: none
  std::uint64_t precious_every = 0;    ///< steps whose number N divides stay until staged out; 0: none

  bool keeps_all() const { return !last && consumers.empty(); }
  bool operator==(const Retention&) const = default;

  /// See StepSummary::each_field in reader.h.
  template <class Visit, class... Records>
  static void each_field(Visit&& visit, Records&... records) {
    visit("last", records.last...);
    visit("consumers", records.consumers...);
    visit("first", records.first...);
    visit("precious_every", records.precious_every...);
  }
};
Result<Retention> parse_retention(std::string_view text);
std::string to_string(const Retention& retention);

struct WriterOptions {
  WriteMode mode = WriteMode::replace;
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  std::string ranks_source = "default";  ///< where rank and ranks came from; named when a rank is missing
  std::string group;                     ///< group id of the launcher; ranks of one group share it
  std::string run;                       ///< the coupling that the steps belong to; a restart gives the same one
  /// What the program calls the stream, where that is not its address: a stream that was written under another name is
  /// refused (busy or refused), unless it is replaced with `force`. Empty: not known, and not compared.
  std::string original_name;
  std::optional<std::uint64_t> append_after;  ///< append: withdraw the steps after this one
  std::optional<Retention> retention;         ///< unset: keep the stream's (all for a new one)
  WhenFull when_full = WhenFull::block;
  /// Longest wait for space, and for readers with `lag_limit`; anew with a restarted server; < 0: for ever.
  std::int64_t block_timeout_ms = 60'000;
  /// begin_step() waits while a reader that is connected is more than so many steps behind; unset or 0: never.
  std::optional<std::uint64_t> lag_limit;
  Durability durability = Durability::committed;
  bool statistics = true;                      ///< min and max of every block
  bool checksums = true;                       ///< CRC-32C of every block
  bool force = false;                          ///< replace or rewind although unstaged precious steps go
  std::uint32_t rendezvous_readers = 0;        ///< open waits for that many readers
  std::int64_t open_timeout_ms = 60'000;       ///< for the whole group (and the readers) to be there; < 0: for ever
  std::int64_t reconnect_timeout_ms = 60'000;  ///< how long a restarting server is waited for
  std::int64_t grace_ms = 10'000;              ///< how long followers wait for a restart once this group is lost
  std::uint8_t distribution = 0;               ///< StepDistribution for readers that do not choose (see reader.h)
  std::optional<ServerPlace> server;           ///< none: the one that the environment names
  InterruptHook interrupt;

  /// Those that the server is told, as StepSummary::each_field in reader.h. How users write options: writer_options.h.
  template <class Visit, class... Records>
  static void each_field(Visit&& visit, Records&... records) {
    visit("mode", records.mode...);
    visit("rank", records.rank...);
    visit("ranks", records.ranks...);
    visit("ranks_source", records.ranks_source...);
    visit("group", records.group...);
    visit("run", records.run...);
    visit("original_name", records.original_name...);
    visit("append_after", records.append_after...);
    visit("retention", records.retention...);
    visit("when_full", records.when_full...);
    visit("block_timeout_ms", records.block_timeout_ms...);
    visit("durability", records.durability...);
    visit("force", records.force...);
    visit("rendezvous_readers", records.rendezvous_readers...);
    visit("open_timeout_ms", records.open_timeout_ms...);
    visit("grace_ms", records.grace_ms...);
    visit("distribution", records.distribution...);
  }
};

/// Rank and size of this process and where they were found: FOREBAY_RANK/FOREBAY_RANKS, else the launcher's
/// (PMI_RANK/PMI_SIZE, OMPI_COMM_WORLD_RANK/SIZE, SLURM_PROCID/SLURM_NTASKS inside an srun step), else 0 of 1.
struct LauncherRank {
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  std::string source = "default";
  std::string group;  ///< FOREBAY_GROUP, else the launcher's job, step and restart id, else empty
};
Result<LauncherRank> launcher_rank();
/// The group id alone: for those who know rank and size otherwise.
std::string launcher_group();

/// What is written: the variable, and which block of it the memory holds.
struct BlockSpec {
  std::string_view name;
  DataType type = DataType::float64;
  ShapeKind kind = ShapeKind::global_array;
  std::span<const std::uint64_t> shape;  ///< global shape; joined: the joined dimension holds `joined_dimension`; empty
                                         ///< for values and local arrays
  std::span<const std::uint64_t> start;  ///< global arrays only
  std::span<const std::uint64_t> count;  ///< the block's extents; a zero makes an empty block; empty for values
  /// Memory selection: the block lies at `memory_start` of an array of extents `memory_count`; empty: contiguous.
  std::span<const std::uint64_t> memory_start;
  std::span<const std::uint64_t> memory_count;
};

/// The marker of the joined dimension in BlockSpec::shape; the same value as adios2::JoinedDim.
inline constexpr std::uint64_t joined_dimension = static_cast<std::uint64_t>(-2);

/// Where memory runs out in a call it throws std::bad_alloc, and this is for the server as if the rank had died: its
/// group is interrupted, and every later call is group_broken. What has committed stays, and allocated memory is the
/// program's until it lets go of it.
class Writer {
 public:
  /// Joins or forms the writer group and returns when it is whole.
  /// Errors: not_found (reservation), permission_denied, busy (another group writes), timeout (names the missing
  /// ranks), refused (unstaged precious steps would go), failed (the stream takes no more steps), invalid_argument,
  /// disconnected, cancelled.
  static Result<std::unique_ptr<Writer>> open(const Address& address, const WriterOptions& options);

  /// Without close(): the open step is aborted and the stream becomes interrupted. The other ranks, the readers and the
  /// next writer read whether the writer just left, an exception ended it (note_failure), or its process was killed. A
  /// process that exits in order says the same for writers that are still open.
  ~Writer();

  /// For a program whose options are wrong before it can open: readers that wait for the stream, and other ranks of the
  /// group, are told `why` instead of waiting on. No effect on a stream that another group writes.
  static Result<void> report_refused(const Address& address, const WriterOptions& options, std::string_view why);

  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  /// Opens the next step and returns its number: the one after the last step's, or `number`, which is at least that.
  /// The numbers in between stay without a step. All ranks of a group give the same. Waits, as the options say, for
  /// readers that are too far behind (timeout names the last of them by pid; the call may be made again), then for as
  /// much space as each of the last two steps took; what the step needs beyond that put() and end_step() wait for.
  Result<std::uint64_t> begin_step(std::optional<std::uint64_t> number = std::nullopt);

  /// Writes one block now: when it returns, `data` may be reused. Empty blocks take null data.
  /// Errors: invalid_argument (type or dimensions differ from an earlier block of this step), no_space, group_broken,
  /// fenced, io_error.
  Result<void> put(const BlockSpec& block, const void* data);

  /// Writes a single string value (global_value or local_value).
  Result<void> put_string(std::string_view name, ShapeKind kind, std::string_view value);

  /// Reserves the block in the step's segment and returns its bytes for computing in place, page-aligned.
  /// The memory stays mapped until the returned owner dies; it must not be written after end_step. An owner that
  /// outlives end_step is a pin: the step's space is not used again before the owner dies, whatever retention drops,
  /// and a writer that finds the reservation full waits for it.
  struct Allocation {
    std::span<std::byte> bytes;
    std::shared_ptr<void> owner;
  };
  Result<Allocation> allocate(const BlockSpec& block);

  /// Defines or changes an attribute; it is part of every step from the open (or next) one on.
  Result<void> set_attribute(std::string_view name, AttributeValue value);
  Result<void> remove_attribute(std::string_view name);

  /// Publishes this rank's part; returns when the step has committed (or is durable) for all ranks.
  /// Errors: group_broken and fenced mean that the step does not exist; after disconnected its fate is unknown. After
  /// failed (a sync or the journal failed) it may be visible but will not become durable, and the writer is at its end.
  Result<void> end_step();

  /// Gives the open step up. All ranks of the group must: the step number is used again.
  Result<void> abort_step();

  /// Ends this rank's writing; when all ranks have closed, the stream is ended and readers get the end of the stream.
  Result<void> close();

  /// What has gone wrong in the program, for people: if the writer then ends without close(), this is the reason that
  /// the others read. The first one counts, until the next begin_step().
  void note_failure(std::string_view what);

  bool in_step() const;
  std::uint64_t current_step() const;  ///< the open step, else the next one
  std::uint32_t incarnation() const;
  std::uint32_t epoch() const;
  /// Why the group that wrote the stream before this one was interrupted; empty: it was not.
  const std::string& interruption() const;
  const Address& address() const;

 private:
  struct Impl;
  explicit Writer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace forebay
