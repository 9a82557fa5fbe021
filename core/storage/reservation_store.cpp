// SPDX-License-Identifier: Apache-2.0
#include "storage/reservation_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <filesystem>
#include <limits>
#include <string_view>

#include <fmt/format.h>

#include <forebay/address.h>

#include "base/bounds.h"
#include "base/return_error.h"
#include "base/system_error.h"
#include "base/uuid.h"
#include "storage/directory_tree.h"
#include "storage/files_access.h"
#include "storage/files_image.h"
#include "storage/framing.h"
#include "storage/record_body.h"
#include "storage/reservation_check.h"

namespace forebay::storage {
namespace {

constexpr std::string_view unfinished_suffix = ".new";
/// What destroy moved to quarantine; everything else there is kept for somebody to look at.
constexpr std::string_view destroyed_prefix = "destroyed.";
constexpr std::string_view unclaimed_prefix = "unclaimed.";
constexpr std::string_view image_name = "/files.xfs";

constexpr unsigned private_mode = 0700;
constexpr unsigned passage_mode = 0711;  // others may pass to files/ below, and see nothing
constexpr unsigned files_mode = 0770;

Result<void> set_mode(const std::string& path, unsigned mode) {
  if (::chmod(path.c_str(), static_cast<mode_t>(mode)) != 0) return system_error(errno, "cannot set the mode", path);
  return {};
}

std::string image_path(const std::string& path) {
  return path + std::string(image_name);
}

bool has_image(const std::string& path) {
  std::error_code unknown;
  return std::filesystem::exists(image_path(path), unknown);
}

std::string unfinished_name(const std::string& id) {
  return "." + id + std::string(unfinished_suffix);
}

Error with_place(Error error, const std::string& where) {
  if (error.where.empty()) error.where = where;
  return error;
}

/// Runs the steps of a procedure until one fails.
template <class... Steps>
Result<void> in_order(Steps&&... steps) {
  Result<void> result;
  (void)((result = steps(), result.has_value()) && ...);
  return result;
}

/// Deletes what is or was to become a reservation.
Result<void> delete_whole(const std::string& directory, const std::string& name) {
  const std::string path = directory + "/" + name;
  if (has_image(path)) RETURN_IF_ERROR(unmount_files_image(path + "/files"));
  while (true) {
    std::size_t entries_left = std::numeric_limits<std::size_t>::max();
    ASSIGN_OR_RETURN(auto gone, delete_tree(directory, name, entries_left));
    if (gone) return {};
  }
}

}  // namespace

ReservationStore::ReservationStore(Device& device, std::string root) : device_(device), root_(std::move(root)) {}

std::string ReservationStore::reservations_directory() const {
  return root_ + "/reservations";
}
std::string ReservationStore::quarantine_directory() const {
  return root_ + "/quarantine";
}
std::string ReservationStore::directory(const std::string& id) const {
  return reservations_directory() + "/" + id;
}
bool ReservationStore::is_in_place(const std::string& id) const {
  // What cannot be looked at is not known to be gone.
  std::error_code unknown;
  return std::filesystem::exists(directory(id), unknown) || unknown;
}
std::string ReservationStore::segment_path(const std::string& id, std::uint32_t segment) const {
  return directory(id) + "/segments/" + std::to_string(segment);
}
std::string ReservationStore::streams_directory(const std::string& id) const {
  return directory(id) + "/streams";
}
std::string ReservationStore::stream_directory(const std::string& id, const std::string& name) const {
  return streams_directory(id) + "/" + name;
}
std::string ReservationStore::files_directory(const std::string& id) const {
  return directory(id) + "/files";
}

Result<std::unique_ptr<ReservationStore>> ReservationStore::open(Device& device, std::string root) {
  std::unique_ptr<ReservationStore> store(new ReservationStore(device, std::move(root)));
  const std::string reservations = store->reservations_directory();
  const std::string quarantine = store->quarantine_directory();
  RETURN_IF_ERROR(in_order([&] { return device.make_directory(reservations, private_mode); },
                           // Root serves other users, who must get to their files/.
                           [&] { return set_mode(reservations, ::geteuid() == 0 ? passage_mode : private_mode); },
                           [&] { return device.make_directory(quarantine, private_mode); },
                           [&] { return device.sync_directory(store->root_); }));
  return store;
}

Result<void> ReservationStore::create(const reservation::ReservationT& record, std::uint16_t member) {
  RETURN_IF_ERROR(check_reservation(record));
  const std::string& id = record.id;
  if (auto there = read_record(id); there) {
    flatbuffers::FlatBufferBuilder ours, theirs;
    if (std::ranges::equal(pack_body(ours, record), pack_body(theirs, *there))) return {};
    return fail(ErrorCode::already_exists, "another reservation has this id", directory(id));
  } else if (there.error().code != ErrorCode::not_found) {
    return fail(std::move(there.error()));
  }
  const std::string unfinished = unfinished_name(id);
  RETURN_IF_ERROR(delete_whole(reservations_directory(), unfinished));
  if (auto filled = fill(record, member, reservations_directory() + "/" + unfinished); !filled) {
    Error error = std::move(filled.error());
    if (auto undone = delete_whole(reservations_directory(), unfinished); !undone) {
      error.what += "; what was created of it could not be removed either; the next start removes it: " +
                    undone.error().message();
    }
    return fail(with_place(std::move(error), "reservation " + record.name));
  }
  auto placed = device_.rename(reservations_directory() + "/" + unfinished, directory(id));
  if (placed) placed = let_others_pass(record);
  if (placed) placed = device_.sync_directory(reservations_directory());
  if (!placed) {
    // Nobody may find a reservation whose creation was answered with an error: the first one, whatever becomes of this.
    (void)delete_whole(reservations_directory(), unfinished);
    (void)delete_whole(reservations_directory(), id);
  }
  return placed;
}

Result<void> ReservationStore::hold_files() {
  RETURN_IF_ERROR(check_files_images());
  holds_files_ = true;
  return {};
}

Result<void> ReservationStore::check_files_capacity(std::uint64_t files_bytes) const {
  if (!holds_files_ || files_bytes == 0 || files_bytes >= files_image_bytes_min) return {};
  return fail(ErrorCode::invalid_argument,
              fmt::format("files/ is a file system of XFS here, which takes at least {} MiB; ask for that much",
                          files_image_bytes_min >> 20));
}

bool ReservationStore::has_files_image(const std::string& id) const {
  return has_image(directory(id));
}

bool ReservationStore::has_its_files(const std::string& id) const {
  return !has_files_image(id) || is_mount(files_directory(id));
}

Result<void> ReservationStore::make_image(const std::string& path, std::uint64_t bytes) {
  const std::string image = image_path(path);
  ASSIGN_OR_RETURN(auto file, device_.open(image, OpenMode::create_new));
  RETURN_IF_ERROR(file->allocate(bytes));
  RETURN_IF_ERROR(make_files_image(image));
  RETURN_IF_ERROR(file->sync());
  return mount_files_image(image, path + "/files");
}

Result<void> ReservationStore::mount_image(const std::string& path) {
  const std::string files = path + "/files";
  if (!has_image(path) || is_mount(files)) return {};
  return mount_files_image(image_path(path), files);
}

Result<void> ReservationStore::unmount_image(const std::string& path) {
  return has_image(path) ? unmount_files_image(path + "/files") : Result<void>();
}

Result<void> ReservationStore::replace_record(const reservation::ReservationT& record) {
  RETURN_IF_ERROR(check_reservation(record));
  return write_record(record, directory(record.id));
}

Result<void> ReservationStore::let_others_pass(const reservation::ReservationT& record) {
  if (!has_shares(record) && record.owner_uid == ::geteuid()) return {};
  RETURN_IF_ERROR(set_mode(reservations_directory(), passage_mode));
  return set_mode(directory(record.id), passage_mode);
}

Result<void> ReservationStore::write_record(const reservation::ReservationT& record, const std::string& path) {
  flatbuffers::FlatBufferBuilder builder;
  std::vector<std::byte> frame;
  encode_frame({.type = reservation_record_type}, std::as_bytes(pack_body(builder, record)), frame);
  return write_whole(device_, path, "reservation", frame);
}

Result<void> ReservationStore::fill(const reservation::ReservationT& record, std::uint16_t member,
                                    const std::string& path) {
  const auto [first, end] = layout_of(record).segments_of(member);
  const std::string segments_path = path + "/segments";
  const bool foreign_owner = record.owner_uid != ::geteuid();
  const auto allocate = [&, first = first, end = end]() -> Result<void> {
    for (std::uint32_t segment = first; segment < end; ++segment) {
      ASSIGN_OR_RETURN(auto file, device_.open(segments_path + "/" + std::to_string(segment), OpenMode::create_new));
      if (auto allocated = file->allocate(record.segment_bytes); !allocated) {
        Error error = with_place(std::move(allocated.error()),
                                 "segment " + std::to_string(segment) + " of " + std::to_string(end));
        return fail(std::move(error));
      }
    }
    return {};
  };
  // After all are allocated: the first sync then makes most of the others cheap.
  const auto sync = [&, first = first, end = end]() -> Result<void> {
    for (std::uint32_t segment = first; segment < end; ++segment) {
      ASSIGN_OR_RETURN(auto file, device_.open(segments_path + "/" + std::to_string(segment), OpenMode::read_write));
      RETURN_IF_ERROR(file->sync());
    }
    return device_.sync_directory(segments_path);
  };
  const bool in_image = holds_files_ && record.files_bytes > 0 && member == 0;
  const auto hold_files = [&] { return in_image ? make_image(path, record.files_bytes) : Result<void>(); };
  // Whose files they are lies in the image.
  const auto sync_image = [&]() -> Result<void> {
    if (!in_image) return {};
    RETURN_IF_ERROR(device_.sync_directory(path + "/files"));
    ASSIGN_OR_RETURN(auto image, device_.open(image_path(path), OpenMode::read_write));
    return image->sync();
  };
  const auto give_files = [&]() -> Result<void> {
    if (member != 0) return {};
    const std::string files = path + "/files";
    if (::geteuid() == 0 && ::chown(files.c_str(), record.owner_uid, record.owner_gid) != 0) {
      return system_error(errno, "cannot give files/ to its owner", files);
    }
    // After chown, which may clear bits; and the umask does not count.
    RETURN_IF_ERROR(set_mode(files, files_mode));
    // A server that is not root can let another user in, but not give its files away.
    if (::geteuid() != 0 && foreign_owner && record.files_bytes > 0) RETURN_IF_ERROR(check_files_access(record, files));
    // So that what is made in it can be told from what comes from elsewhere, whoever is given a right later.
    return set_files_access(record, files);
  };
  return in_order([&] { return device_.make_directory(path, private_mode); },
                  [&] { return set_mode(path, foreign_owner ? passage_mode : private_mode); },
                  [&] { return device_.make_directory(segments_path, private_mode); },
                  [&] { return device_.make_directory(path + "/streams", private_mode); },
                  [&] { return device_.make_directory(path + "/files", private_mode); }, hold_files, give_files,
                  sync_image, allocate, sync, [&] { return write_record(record, path); },
                  [&] { return device_.sync_directory(path); });
}

Result<reservation::ReservationT> ReservationStore::read_record(const std::string& id) const {
  const std::string path = directory(id) + "/reservation";
  auto bytes = read_whole(device_, path, reservation_file_bytes_max);
  if (!bytes) return fail(with_place(std::move(bytes.error()), path));
  auto record = decode_reservation(*bytes);
  if (!record) return fail(with_place(std::move(record.error()), path));
  if (record->id != id) return fail(ErrorCode::corrupt, "the file belongs to reservation " + record->id, path);
  return record;
}

Result<reservation::ReservationT> ReservationStore::read_whole_reservation(const std::string& id) const {
  auto record = read_record(id);
  if (!record) return record;
  for (const std::string& below : {streams_directory(id), files_directory(id)}) {
    RETURN_IF_ERROR(device_.list(below));
  }
  return record;
}

Result<std::vector<reservation::ReservationT>> ReservationStore::load(std::vector<std::string>& problems,
                                                                      std::vector<std::string>& unread) {
  ASSIGN_OR_RETURN(auto names, device_.list(reservations_directory()));
  std::vector<reservation::ReservationT> records;
  for (const std::string& name : names) {
    const bool unfinished = name.starts_with('.') && name.ends_with(unfinished_suffix) &&
                            is_uuid(std::string_view(name).substr(1, name.size() - 1 - unfinished_suffix.size()));
    if (unfinished) {
      if (auto removed = delete_whole(reservations_directory(), name); !removed) {
        problems.push_back("an unfinished reservation cannot be removed: " + removed.error().message());
      }
      continue;
    }
    Error reason{ErrorCode::not_found, "this is not a reservation", directory(name)};
    if (is_uuid(name)) {
      auto record = read_whole_reservation(name);
      if (record) {
        // Without it nobody can get into files/; all else is there.
        if (auto mounted = mount_image(directory(name)); !mounted)
          problems.push_back("files/ of reservation " + record->name + " is not there: " + mounted.error().message());
        records.push_back(std::move(*record));
        continue;
      }
      reason = std::move(record.error());
    }
    const bool lasting = reason.code == ErrorCode::not_found || reason.code == ErrorCode::corrupt;
    if (!lasting) {
      // It may be readable at the next start: a newer version, a mended permission, a disk that answers again.
      unread.push_back(name);
      problems.push_back("reservation " + name + " cannot be read and is left where it is: " + reason.message());
      continue;
    }
    const std::string kept = quarantined_name(unclaimed_prefix, name);
    if (auto moved = move_to_quarantine(reservations_directory(), name, kept); !moved) {
      problems.push_back(reason.message() + "; moving it to quarantine failed: " + moved.error().message());
    } else {
      problems.push_back(reason.message() + "; moved to " + quarantine_directory() + "/" + kept +
                         ", where it stays until you delete it");
    }
  }
  return records;
}

std::string ReservationStore::quarantined_name(std::string_view prefix, std::string_view name) {
  return fmt::format("{}{}.{:016x}", prefix, name, random_number());
}

Result<void> ReservationStore::move_to_quarantine(const std::string& from_directory, const std::string& name,
                                                  const std::string& quarantined) {
  auto moved = device_.rename(from_directory + "/" + name, quarantine_directory() + "/" + quarantined);
  if (!moved && moved.error().code == ErrorCode::not_found) {
    // An earlier call may have moved it and failed to sync: what is promised holds only after a sync.
    return device_.sync_directory(from_directory);
  }
  if (!moved) return moved;
  // First the new place: whichever of the two a crash loses, the folder is somewhere.
  RETURN_IF_ERROR(device_.sync_directory(quarantine_directory()));
  return device_.sync_directory(from_directory);
}

Result<void> ReservationStore::sync_removals() {
  return device_.sync_directory(reservations_directory());
}

Result<void> ReservationStore::retire(const std::string& id) {
  if (!is_uuid(id)) return fail(ErrorCode::invalid_argument, "\"" + id + "\" is not a reservation id");
  RETURN_IF_ERROR(unmount_image(directory(id)));
  auto moved = move_to_quarantine(reservations_directory(), id, quarantined_name(destroyed_prefix, id));
  if (!moved && is_in_place(id)) {
    if (auto mounted = mount_image(directory(id)); !mounted)
      moved.error().what += "; and its files/ cannot be mounted again: " + mounted.error().message();
  }
  return moved;
}

Result<bool> ReservationStore::purge_quarantine(std::size_t entries_max) {
  ASSIGN_OR_RETURN(auto names, device_.list(quarantine_directory()));
  std::size_t entries_left = entries_max;
  bool empty = true;
  Result<void> first_failure;
  for (const std::string& name : names) {
    if (!name.starts_with(destroyed_prefix)) continue;
    if (entries_left == 0) {
      empty = false;
      break;
    }
    // It is unmounted before it comes here; somebody may have mounted it again.
    auto unmounted = unmount_image(quarantine_directory() + "/" + name);
    auto gone = unmounted ? delete_tree(quarantine_directory(), name, entries_left)
                          : Result<bool>(fail(std::move(unmounted.error())));
    if (!gone && first_failure) first_failure = fail(std::move(gone.error()));
    empty = empty && gone && *gone;
  }
  // While there is more that can go, it goes first, also what was moved up from too deep a place.
  if (!first_failure && entries_left == entries_max) return fail(std::move(first_failure.error()));
  return empty && first_failure;
}

Result<std::vector<std::string>> ReservationStore::stream_names(const std::string& id) const {
  auto names = device_.list(streams_directory(id));
  if (!names) return names;
  std::erase_if(*names, [](const std::string& name) { return !is_valid_name(name); });
  return names;
}

Result<void> ReservationStore::make_stream_directory(const std::string& id, const std::string& name) {
  if (!is_valid_name(name))
    return fail(ErrorCode::invalid_argument, "\"" + name + "\" is not a valid name for a stream");
  RETURN_IF_ERROR(device_.make_directory(stream_directory(id, name), private_mode));
  return device_.sync_directory(streams_directory(id));
}

Result<void> ReservationStore::retire_stream(const std::string& id, const std::string& name) {
  if (!is_valid_name(name))
    return fail(ErrorCode::invalid_argument, "\"" + name + "\" is not a valid name for a stream");
  return move_to_quarantine(streams_directory(id), name, quarantined_name(destroyed_prefix, id + "." + name));
}

Result<TreeSize> ReservationStore::measure_files(const std::string& id) const {
  return measure_tree(files_directory(id), "files");
}

}  // namespace forebay::storage
