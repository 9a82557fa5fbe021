// SPDX-License-Identifier: Apache-2.0
#include "storage/journal.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <limits>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "base/bounds.h"
#include "base/return_error.h"
#include "base/size_text.h"
#include "base/uuid.h"
#include "storage/framing.h"

namespace forebay::storage {
namespace {

// On disk: never renumber.
static_assert(static_cast<int>(RecordType::checkpoint) == 1 && static_cast<int>(RecordType::group_formed) == 2 &&
              static_cast<int>(RecordType::segments_owned) == 3 && static_cast<int>(RecordType::step_committed) == 4 &&
              static_cast<int>(RecordType::steps_dropped) == 5 && static_cast<int>(RecordType::steps_withdrawn) == 6 &&
              static_cast<int>(RecordType::group_ended) == 7 && static_cast<int>(RecordType::durable_to) == 8 &&
              static_cast<int>(RecordType::steps_staged) == 9 && static_cast<int>(RecordType::cursor_moved) == 10 &&
              static_cast<int>(RecordType::cursor_removed) == 11 && static_cast<int>(RecordType::retention_set) == 12 &&
              static_cast<int>(RecordType::precious_set) == 13 && static_cast<int>(RecordType::stream_failed) == 14 &&
              static_cast<int>(RecordType::rank_closed) == 15 && static_cast<int>(RecordType::segments_left) == 16 &&
              static_cast<int>(RecordType::steps_lost) == 17);

constexpr std::uint64_t page_bytes = 4096;
constexpr std::uint64_t room_bytes_min = std::uint64_t{64} << 10;
constexpr std::uint64_t room_bytes_max = std::uint64_t{1} << 20;
/// Of the space that is allocated this much is left for records that may_take_reserve().
constexpr std::uint64_t reserve_bytes = std::uint64_t{16} << 10;
/// A journal that may not take room for its next file asks again after so much.
constexpr std::uint64_t growth_bytes_min = std::uint64_t{8} << 10;
/// A journal is read whole; its checkpoint is one body, and it rolls when it has doubled.
constexpr std::uint64_t journal_bytes_max = 4 * frame_body_bytes_max;
/// Of that, for records that may_take_reserve().
constexpr std::uint64_t journal_reserve_bytes = std::uint64_t{64} << 20;

/// What frees space, ends something, or says what has become of steps: on a full device a stream must come to an end
/// that its readers learn of.
bool may_take_reserve(RecordType type) noexcept {
  switch (type) {
    case RecordType::steps_dropped:
    case RecordType::steps_withdrawn:
    case RecordType::steps_lost:
    case RecordType::group_ended:
    case RecordType::rank_closed:
    case RecordType::durable_to:
    case RecordType::stream_failed:
    case RecordType::cursor_moved:
      return true;
    default:
      return false;
  }
}

std::string file_name(std::uint32_t number) {
  return "journal." + std::to_string(number);
}
std::string unfinished_name(std::uint32_t number) {
  return "." + file_name(number) + ".new";
}

/// N of "journal.N".
std::optional<std::uint32_t> parse_file_name(std::string_view name) {
  constexpr std::string_view prefix = "journal.";
  if (!name.starts_with(prefix)) return std::nullopt;
  const std::string_view digits = name.substr(prefix.size());
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (digits.empty() || digits.front() == '0' || error != std::errc() || end != digits.data() + digits.size())
    return std::nullopt;
  return number;
}

bool is_unfinished(std::string_view name) {
  return name.starts_with(".journal.") && name.ends_with(".new");
}

std::string place(const std::string& directory, std::uint32_t number, std::uint64_t offset) {
  return directory + "/" + file_name(number) + " @ " + std::to_string(offset);
}

Error located(Error error, const std::string& where) {
  error.where = error.where.empty() ? where : where + ", " + error.where;
  return error;
}

tl::unexpected<Error> no_room_error() {
  return fail(ErrorCode::no_space,
              "the journals have used all the space that the reservation has for them; drop steps, write fewer and "
              "larger ones, or "
              "create a larger reservation");
}

/// Room for records to come: a journal that has become large grows in larger pieces.
std::uint64_t room_for(std::uint64_t end) {
  return std::clamp(end / 4, room_bytes_min, room_bytes_max) + reserve_bytes;
}

/// One file journal.N. The appending thread owns it; what another thread's sync() reads is atomic.
struct JournalFile {
  std::unique_ptr<File> file;
  std::uint32_t number = 0;
  std::uint32_t salt = 0;
  std::uint32_t sequence = 0;          ///< of the next record
  std::uint64_t checkpoint_bytes = 0;  ///< the first record's
  std::atomic<std::uint64_t> allocated{0};
  std::atomic<std::uint64_t> end{0};     ///< where the next record goes
  std::atomic<std::uint64_t> synced{0};  ///< known to be on stable storage
};

/// Makes journal.NUMBER whole and durable under its name, if it may take that many bytes. `uncertain` is set if the
/// name may be there although this failed.
Result<std::shared_ptr<JournalFile>> make_file(Device& device, const std::string& directory, std::uint32_t number,
                                               std::span<const std::uint8_t> checkpoint,
                                               const std::function<bool(std::uint64_t, bool ahead)>& may_take,
                                               bool& uncertain) {
  uncertain = false;
  const std::string where = directory + "/" + file_name(number);
  if (checkpoint.size() > frame_body_bytes_max) {
    return fail(
        ErrorCode::no_space,
        "the journal's checkpoint would take " + size_text(checkpoint.size()) + ", more than it may; drop steps",
        where);
  }
  auto made = std::make_shared<JournalFile>();
  made->number = number;
  made->salt = static_cast<std::uint32_t>(random_number());
  std::vector<std::byte> frame;
  encode_frame({.type = static_cast<std::uint16_t>(RecordType::checkpoint), .file = number, .salt = made->salt},
               std::as_bytes(checkpoint), frame);
  std::uint64_t allocated = round_up(frame.size() + room_for(frame.size()), page_bytes);
  if (!may_take(allocated, true)) {
    allocated = round_up(frame.size() + reserve_bytes, page_bytes);
    if (!may_take(allocated, false)) return fail(located(no_room_error().value(), where));
  }

  const std::string unfinished = directory + "/" + unfinished_name(number);
  const auto write = [&]() -> Result<void> {
    RETURN_IF_ERROR(device.remove(unfinished));
    ASSIGN_OR_RETURN(made->file, device.open(unfinished, OpenMode::create_new));
    RETURN_IF_ERROR(made->file->allocate(allocated));
    RETURN_IF_ERROR(made->file->write_at(0, frame));
    RETURN_IF_ERROR(made->file->sync());
    return device.rename(unfinished, where);
  };
  if (auto written = write(); !written) {
    // What stays behind is removed by the next open().
    (void)device.remove(unfinished);
    return fail(located(std::move(written.error()), where));
  }
  if (auto synced = device.sync_directory(directory); !synced) {
    uncertain = true;
    return fail(located(std::move(synced.error()), where));
  }
  made->sequence = 1;
  made->checkpoint_bytes = frame.size();
  made->allocated = allocated;
  made->end = frame.size();
  made->synced = frame.size();
  return made;
}

}  // namespace

struct Journal::Impl {
  Impl(Device& device_, std::string directory_, const JournalOptions& options_)
      : device(device_), directory(std::move(directory_)), options(options_) {}

  // Constant after construction
  Device& device;
  const std::string directory;
  const JournalOptions options;

  // Of the appending thread
  std::vector<std::byte> frame;
  std::uint64_t checkpoint_not_before = 0;  ///< position in the file, after a roll that failed
  std::string damage;                       ///< not empty: nothing may be written
  std::uint64_t tail_bytes = 0;             ///< of a torn tail behind the file's end, which goes with the next record

  // Written by the appending thread under `mutex`, read by sync() under it
  std::mutex mutex;
  std::shared_ptr<JournalFile> active;
  // Guarded by mutex; the flag may be read without
  std::atomic<bool> broken{false};
  Error cause;  ///< why it is broken

  Error break_by(Error error) {
    const std::lock_guard lock(mutex);
    if (!broken) {
      cause = error;
      broken = true;
    }
    return error;
  }

  tl::unexpected<Error> broken_error() {
    const std::lock_guard lock(mutex);
    return fail(ErrorCode::failed, "the journal accepts no more records after an earlier failure: " + cause.what,
                cause.where);
  }

  Result<void> check_writable() {
    if (broken) return broken_error();
    if (!damage.empty()) return fail(ErrorCode::corrupt, "the journal is damaged and accepts no more records", damage);
    return {};
  }

  bool may_take(std::uint64_t bytes, RecordType type, bool ahead) const {
    return !options.may_take || options.may_take(bytes, type, ahead);
  }

  /// Makes room for `bytes` more, of a record of this type.
  Result<void> grow(JournalFile& file, std::uint64_t bytes, RecordType type) {
    const std::uint64_t needed = file.end + bytes;
    // A start reads no larger one.
    if (needed > journal_bytes_max - (may_take_reserve(type) ? 0 : journal_reserve_bytes)) return no_room_error();
    std::uint64_t size = std::min(round_up(needed + room_for(needed), page_bytes), journal_bytes_max);
    const auto allocate = [&](bool ahead) -> Result<void> {
      if (!may_take(size - file.allocated, type, ahead)) return no_room_error();
      return file.file->allocate(size);
    };
    auto allocated = allocate(true);
    if (!allocated && allocated.error().code == ErrorCode::no_space) {
      // On a device that is nearly full, take no more than this record needs.
      size = round_up(needed, page_bytes);
      allocated = allocate(false);
    }
    if (!allocated) return allocated;
    file.allocated = size;
    return {};
  }
};

Journal::Journal(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Journal::~Journal() = default;

Result<std::unique_ptr<Journal>> Journal::create(Device& device, std::string directory,
                                                 std::span<const std::uint8_t> checkpoint,
                                                 const JournalOptions& options) {
  ASSIGN_OR_RETURN(auto names, device.list(directory));
  for (const std::string& name : names) {
    if (parse_file_name(name))
      return fail(ErrorCode::already_exists, "a journal exists already", directory + "/" + name);
  }
  auto impl = std::make_unique<Impl>(device, std::move(directory), options);
  bool uncertain = false;
  const auto may_take = [&](std::uint64_t bytes, bool ahead) {
    return impl->may_take(bytes, RecordType::segments_owned, ahead);
  };
  auto file = make_file(device, impl->directory, 1, checkpoint, may_take, uncertain);
  if (!file) {
    // Nobody was told of it, and it must not keep the next attempt from making one.
    if (uncertain) (void)device.remove(impl->directory + "/" + file_name(1));
    return fail(std::move(file.error()));
  }
  impl->active = std::move(*file);
  return std::unique_ptr<Journal>(new Journal(std::move(impl)));
}

Result<std::unique_ptr<Journal>> Journal::open(Device& device, std::string directory, const Visitor& visit,
                                               JournalRecovery& recovery, const JournalOptions& options) {
  recovery = {};
  ASSIGN_OR_RETURN(auto names, device.list(directory));
  std::vector<std::uint32_t> numbers;
  for (const std::string& name : names) {
    if (const auto number = parse_file_name(name)) numbers.push_back(*number);
  }
  if (numbers.empty()) return fail(ErrorCode::not_found, "no journal", directory);
  const std::uint32_t newest = *std::ranges::max_element(numbers);
  const std::string path = directory + "/" + file_name(newest);
  auto file = device.open(path, OpenMode::read_write);
  if (!file) return fail(located(std::move(file.error()), path));
  auto size = (*file)->size();
  if (!size) return fail(located(std::move(size.error()), path));
  if (*size > journal_bytes_max) return fail(ErrorCode::corrupt, "the journal is larger than any valid one", path);
  std::vector<std::byte> bytes(*size);
  if (auto read = (*file)->read_at(0, bytes); !read) return fail(located(std::move(read.error()), path));

  auto active = std::make_shared<JournalFile>();
  FrameReader reader(bytes, newest);
  while (const auto frame = reader.next()) {
    const std::string where = place(directory, newest, frame->offset);
    if (frame->header.version != frame_version || frame->header.type > static_cast<std::uint16_t>(RecordType::MAX)) {
      return fail(ErrorCode::unsupported,
                  "a record of type " + std::to_string(frame->header.type) + ", version " +
                      std::to_string(frame->header.version) +
                      " was written by another version of Forebay; start that version",
                  where);
    }
    const auto type = static_cast<RecordType>(frame->header.type);
    if ((type == RecordType::checkpoint) != (frame->header.sequence == 0)) {
      return fail(ErrorCode::corrupt, "a journal must begin with a checkpoint and hold no other", where);
    }
    if (auto visited = visit(type, frame->body); !visited) return fail(located(std::move(visited.error()), where));
    if (frame->header.sequence == 0) {
      active->salt = frame->header.salt;
      active->checkpoint_bytes = frame_bytes(frame->body.size());
    }
    ++recovery.records;
  }
  if (recovery.records == 0) {
    return fail(ErrorCode::corrupt, "the journal does not begin with a whole checkpoint", place(directory, newest, 0));
  }
  active->file = std::move(*file);
  active->number = newest;
  active->sequence = static_cast<std::uint32_t>(recovery.records);
  active->allocated = *size;
  active->end = reader.position();
  active->synced = std::min(std::max(reader.synced_bytes(), active->checkpoint_bytes), reader.position());

  auto impl = std::make_unique<Impl>(device, std::move(directory), options);
  impl->active = active;
  if (reader.end() == FrameEnd::gap && (options.same_boot || reader.synced_bytes() > reader.position())) {
    recovery.damaged = true;
    recovery.damage = place(impl->directory, newest, reader.position()) + ": record " +
                      std::to_string(recovery.records) + " is broken, and " + std::to_string(reader.records_behind()) +
                      " whole records follow it";
    impl->damage = recovery.damage;
    return std::unique_ptr<Journal>(new Journal(std::move(impl)));
  }
  if (options.same_boot && active->synced < active->end) {
    // The last process may have ended over a sync that failed. Then the kernel takes these pages for clean, and the
    // next sync would succeed without them: so they are written anew.
    const auto unsynced = std::span(bytes).subspan(active->synced, active->end - active->synced);
    auto kept = active->file->write_at(active->synced, unsynced);
    if (kept) kept = active->file->sync();
    if (!kept) return fail(located(std::move(kept.error()), place(impl->directory, newest, active->synced)));
    active->synced = active->end.load();
  }

  if (reader.end() != FrameEnd::end) {
    impl->tail_bytes = reader.used_bytes() - reader.position();
    recovery.bytes_cut = impl->tail_bytes;
    recovery.records_cut = reader.records_behind();
  }

  std::vector<std::string> superseded;
  for (const std::uint32_t number : numbers) {
    if (number != newest) superseded.push_back(file_name(number));
  }
  if (!superseded.empty()) {
    // A crash may have come between the newest file's renaming and the directory's sync.
    RETURN_IF_ERROR(device.sync_directory(impl->directory));
  }
  std::ranges::copy_if(names, std::back_inserter(superseded), is_unfinished);
  for (const std::string& name : superseded) {
    RETURN_IF_ERROR(device.remove(impl->directory + "/" + name));
  }
  return std::unique_ptr<Journal>(new Journal(std::move(impl)));
}

Result<void> Journal::append(RecordType type, std::span<const std::uint8_t> body) {
  RETURN_IF_ERROR(impl_->check_writable());
  JournalFile& file = *impl_->active;
  const std::string& directory = impl_->directory;
  if (body.size() > frame_body_bytes_max || file.sequence == std::numeric_limits<std::uint32_t>::max()) {
    return fail(ErrorCode::invalid_argument, "the record is larger than a journal accepts",
                place(directory, file.number, file.end));
  }
  RETURN_IF_ERROR(cut_tail());
  encode_frame({.type = static_cast<std::uint16_t>(type),
                .sequence = file.sequence,
                .file = file.number,
                .salt = file.salt,
                .synced_bytes = file.synced},
               std::as_bytes(body), impl_->frame);
  const std::uint64_t end = file.end;
  const std::uint64_t needed = impl_->frame.size() + (may_take_reserve(type) ? 0 : reserve_bytes);
  if (end + needed > file.allocated) {
    if (auto grown = impl_->grow(file, needed, type); !grown) {
      Error error = located(std::move(grown.error()), place(directory, file.number, end));
      if (error.code != ErrorCode::no_space) error = impl_->break_by(std::move(error));
      return fail(std::move(error));
    }
  }
  if (auto written = file.file->write_at(end, impl_->frame); !written) {
    Error error = located(std::move(written.error()), place(directory, file.number, end));
    // A part of the record may lie there: not the kind of no_space after which one may go on.
    if (error.code == ErrorCode::no_space) error.code = ErrorCode::io_error;
    return fail(impl_->break_by(std::move(error)));
  }
  ++file.sequence;
  file.end = end + impl_->frame.size();
  return {};
}

Result<void> Journal::cut_tail() {
  if (impl_->broken) return impl_->broken_error();
  if (impl_->tail_bytes == 0) return {};
  JournalFile& file = *impl_->active;
  // The zeros are synced before anything is appended: else a record of the tail could follow a new one after the next
  // power loss.
  auto cut = file.file->write_at(file.end, std::vector<std::byte>(impl_->tail_bytes));
  if (cut) cut = file.file->sync();
  if (cut) {
    file.synced = file.end.load();
    impl_->tail_bytes = 0;
    return {};
  }
  Error error = located(std::move(cut.error()), place(impl_->directory, file.number, file.end));
  // A part of the tail may lie there: not the kind of no_space after which one may go on.
  if (error.code == ErrorCode::no_space) error.code = ErrorCode::io_error;
  return fail(impl_->break_by(std::move(error)));
}

bool Journal::wants_checkpoint() const noexcept {
  const JournalFile& file = *impl_->active;
  return file.end >= impl_->checkpoint_not_before &&
         file.end - file.checkpoint_bytes > std::max(impl_->options.growth_bytes, file.checkpoint_bytes);
}

Result<void> Journal::roll(std::span<const std::uint8_t> checkpoint) {
  RETURN_IF_ERROR(impl_->check_writable());
  bool uncertain = false;
  bool refused = false;
  const auto may_take = [&](std::uint64_t bytes, bool ahead) {
    refused = bytes >= impl_->active->allocated && !impl_->may_take(bytes, RecordType::checkpoint, ahead);
    return !refused;
  };
  auto file = make_file(impl_->device, impl_->directory, impl_->active->number + 1, checkpoint, may_take, uncertain);
  if (!file) {
    // A device that is full now is asked again after as much growth, not at every append.
    impl_->checkpoint_not_before = impl_->active->end + (refused ? growth_bytes_min : impl_->options.growth_bytes);
    // Records appended to the old file would be lost if a crash left the new one.
    if (uncertain) return fail(impl_->break_by(std::move(file.error())));
    return fail(std::move(file.error()));
  }
  const std::string superseded = impl_->directory + "/" + file_name(impl_->active->number);
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->active = std::move(*file);
  }
  impl_->tail_bytes = 0;
  impl_->checkpoint_not_before = 0;
  // If it stays, the next open() removes it.
  (void)impl_->device.remove(superseded);
  return {};
}

Result<void> Journal::sync() {
  if (impl_->broken) return impl_->broken_error();
  std::shared_ptr<JournalFile> file;
  {
    const std::lock_guard lock(impl_->mutex);
    file = impl_->active;
  }
  const std::uint64_t end = file->end;
  if (auto synced = file->file->sync(); !synced) {
    return fail(impl_->break_by(located(std::move(synced.error()), impl_->directory + "/" + file_name(file->number))));
  }
  std::uint64_t before = file->synced;
  while (before < end && !file->synced.compare_exchange_weak(before, end)) {
  }
  return {};
}

std::uint64_t Journal::size_bytes() const noexcept {
  return impl_->active->allocated;
}

std::uint64_t Journal::spare_bytes() const noexcept {
  const std::uint64_t used = impl_->active->end + reserve_bytes;
  return impl_->active->allocated - std::min(used, impl_->active->allocated.load());
}

}  // namespace forebay::storage
