// SPDX-License-Identifier: Apache-2.0
// How a server comes up: its root, the size of its pool, recovery, readers of the run before, its socket.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/return_error.h"
#include "base/size_text.h"
#include "base/system_error.h"
#include "base/uuid.h"
#include "daemon/listening_socket.h"
#include "daemon/root_files.h"
#include "daemon/server.h"
#include "daemon/version.h"
#include "fabric/libfabric.h"
#include "streams/stream.h"

namespace forebay::server {
namespace {

// Two looks at names are cheap, and nobody waits longer for a socket that somebody removed.
constexpr std::int64_t root_interval_ms = 1'000;
constexpr std::size_t small_file_bytes_max = std::size_t{1} << 20;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

Result<std::string> read_text(Device& device, const std::string& path) {
  ASSIGN_OR_RETURN(auto bytes, read_whole(device, path, small_file_bytes_max));
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

/// A directory for sockets whose path is short, and that nobody else could have prepared.
Result<std::string> runtime_directory() {
  const char* given = std::getenv("XDG_RUNTIME_DIR");
  std::string directory;
  if (given != nullptr && *given != '\0') {
    directory = std::string(given) + "/forebay";
  } else if (::geteuid() == 0) {
    directory = "/run/forebay";
  } else {
    directory = "/tmp/forebay-" + std::to_string(::geteuid());
  }
  if (::mkdir(directory.c_str(), 0755) != 0 && errno != EEXIST)
    return system_error(errno, "cannot make the directory for sockets", directory);
  struct stat status{};
  if (::lstat(directory.c_str(), &status) != 0)
    return system_error(errno, "cannot examine the directory for sockets", directory);
  if (!S_ISDIR(status.st_mode) || status.st_uid != ::geteuid() || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return fail(
        ErrorCode::permission_denied,
        "the directory for sockets belongs to, or can be written by, somebody else: remove it, or set XDG_RUNTIME_DIR",
        directory);
  }
  return directory;
}

/// Whoever else owns the root, or can write in it, could give any file the names that are opened there.
Result<void> check_owned(const std::string& root) {
  struct stat status{};
  if (::lstat(root.c_str(), &status) != 0) return system_error(errno, "cannot examine the root", root);
  // Users have groups of their own, and umasks that let these write.
  const mode_t others = ::geteuid() == 0 ? S_IWGRP | S_IWOTH : S_IWOTH;
  const bool owned = status.st_uid == ::geteuid() || status.st_uid == 0;
  if (owned && (status.st_mode & others) == 0) return {};
  return fail(ErrorCode::permission_denied,
              "the root belongs to, or can be written by, somebody else: remove it, or choose another with --root or "
              "FOREBAY_ROOT",
              root);
}

}  // namespace

Result<void> Server::prepare_root() {
  std::error_code error;
  std::filesystem::create_directories(options_.root, error);
  const std::filesystem::path canonical =
      error ? std::filesystem::path() : std::filesystem::canonical(options_.root, error);
  if (error)
    return system_error(error.value(), "cannot make the root; choose another with --root or FOREBAY_ROOT",
                        options_.root);
  options_.root = canonical.string();
  RETURN_IF_ERROR(check_owned(options_.root));
  lock_ = Descriptor(::open((options_.root + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock_.valid()) return system_error(errno, "cannot write to the root", options_.root);
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    return fail(ErrorCode::busy, "another forebayd serves this root; `forebay down` ends it", options_.root);
  }
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot_id_);
  if (boot_id_.empty())
    return fail(ErrorCode::unsupported, "cannot read the kernel's boot id, which recovery depends on",
                "/proc/sys/kernel/random/boot_id");
  const auto text = read_text(device_, options_.root + "/boot-id");
  BootNote note = parse_boot_note(text.value_or(""));
  after_boot_ = note.boot_id != boot_id_;
  unchecked_ = std::move(note.unchecked);
  return {};
}

Result<void> Server::keep_text(const std::string& name, const std::string& text, FileFor whom) {
  const std::string path = options_.root + "/" + name;
  auto before = read_whole(device_, path, small_file_bytes_max);
  if (before && std::ranges::equal(*before, bytes_of(text))) return {};
  auto written = write_whole(device_, options_.root, name, bytes_of(text), whom);
  if (!written && written.error().code == ErrorCode::no_space && before && before->size() >= text.size()) {
    // A disk without a byte left keeps no server from starting again.
    ASSIGN_OR_RETURN(auto file, device_.open(path, OpenMode::read_write));
    written = file->write_at(0, bytes_of(text + std::string(before->size() - text.size(), '\n')));
    if (written) written = file->sync();
  }
  if (!written) written.error().where = path;
  return written;
}

Result<void> Server::learn_identity() {
  const std::string path = options_.root + "/identity";
  const auto text = read_text(device_, path);
  if (text) {
    ASSIGN_OR_RETURN(auto identity, parse_identity(*text, path));
    identity_ = std::move(identity);
    if (!after_boot_) return {};
  } else if (text.error().code != ErrorCode::not_found) {
    return fail(text.error());
  } else if (read_text(device_, options_.root + "/boot-id")) {
    return fail(ErrorCode::unsupported,
                "a root that has been used has no identity: restore the file, or start the version of Forebay that "
                "made the root, or choose another root",
                path);
  } else {
    identity_.uuid = random_uuid();
  }
  // Kept before anything can be written under it.
  identity_.storage_incarnation = random_number();
  return keep_text("identity", to_text(identity_));
}

Result<void> Server::learn_capacity() {
  const std::string path = options_.root + "/pool";
  std::optional<std::uint64_t> capacity = options_.capacity_bytes;
  const auto text = read_text(device_, path);
  if (!capacity && text) {
    ASSIGN_OR_RETURN(auto number, parse_pool(*text, path));
    capacity = number;
  }
  if (!capacity) {
    struct statvfs status{};
    if (::statvfs(options_.root.c_str(), &status) != 0)
      return system_error(errno, "cannot determine the free space", options_.root);
    capacity = static_cast<std::uint64_t>(status.f_bavail) * status.f_frsize / 10 * 8;
  }
  pool_bytes_ = *capacity / storage::granularity_bytes * storage::granularity_bytes;
  if (pool_bytes_ < storage::capacity_bytes_min) {
    return fail(ErrorCode::invalid_argument,
                "a pool of " + size_text(*capacity) + " has no room for the smallest reservation, which takes " +
                    size_text(storage::capacity_bytes_min) + "; set a larger one with --capacity",
                options_.root);
  }
  const std::string written = std::to_string(pool_bytes_) + "\n";
  return keep_text("pool", written);
}

Result<void> Server::choose_files_groups() {
  if (options_.files_groups.empty()) {
    std::ifstream map("/proc/self/gid_map");
    files_groups_ = storage::GroupRange::usual_in({std::istreambuf_iterator<char>(map), {}});
  } else {
    ASSIGN_OR_RETURN(files_groups_, storage::GroupRange::parse(options_.files_groups));
  }
  return {};
}

Result<void> Server::hold_files() {
  if (options_.files_image.empty()) return {};
  if (options_.files_image != "xfs")
    return fail(ErrorCode::invalid_argument, "files_image is \"xfs\" or not set", options_.root);
  auto held = store_->hold_files();
  if (!held) held.error().where = options_.root;
  return held;
}

Result<void> Server::recover() {
  ASSIGN_OR_RETURN(auto readers, ReaderRegistry::open(*loop_, options_.root, after_boot_, options_.restart_grace_ms,
                                                      options_.cut_grace_ms));
  readers_ = std::move(readers);
  pool_.emplace(device_, options_.root, *errand_worker_);
  if (!options_.pool_key.empty()) RETURN_IF_ERROR(pool_->join(options_.pool_key));
  members_.emplace(*loop_, *pool_);
  services_.emplace(StreamServices{*loop_, device_, *store_, *sync_worker_, *errand_worker_, *counter_worker_,
                                   *readers_, identity_.storage_incarnation, options_.flush_interval_ms,
                                   options_.restart_grace_ms, identity_.uuid, run_number_, &*members_,
                                   options_.member_silence_ms, &mapping_users_});
  reservations_.emplace(*this, *errand_worker_, *side_worker_);
  manager_calls_.emplace(*loop_, options_.root, unread_bytes_);
  remote_.emplace(device_, options_.root,
                  RemoteOptions{options_.fabric, options_.encrypts_control, options_.remote_limits}, *loop_,
                  *reservations_, *pool_);
  ASSIGN_OR_RETURN(auto records, store_->load(start_problems_, unread_));
  for (reservation::ReservationT& record : records) {
    if (reservations_->all().contains(record.name)) {
      start_problems_.push_back("two reservations are called " + record.name + "; the one with id " + record.id +
                                " is left alone");
      unread_.push_back(record.id);
      continue;
    }
    const auto member = storage::member_of_root(record, identity_.uuid);
    if (!member) {
      const std::string& server = record.members.front()->server;
      start_problems_.push_back("reservation " + record.name + " (id " + record.id + ") belongs to root " + server +
                                ", this one is " + identity_.uuid + "; it is left alone: move it back to its root");
      unread_.push_back(record.id);
      continue;
    }
    if (record.files_group == 0 && files_groups_ && *member == 0) {
      // Made where there were none: its own lists get one in the background.
      ASSIGN_OR_RETURN(record.files_group, reservations_->free_files_group(*files_groups_));
      record.files_access_due = true;
      RETURN_IF_ERROR(store_->replace_record(record));
    }
    Reservation& reservation = reservations_->add(std::move(record));
    // A start closes the way, where the server is not root.
    RETURN_IF_ERROR(store_->let_others_pass(reservation.record()));
    reservation.recover_streams(after_boot_, unchecked_[reservation.record().id]);
  }
  const bool all_read = unread_.empty() && std::ranges::all_of(reservations_->all(), [](const auto& entry) {
                          return entry.second->unreadable_streams().empty();
                        });
  readers_->place_absent(all_read);
  // Nothing may say that this boot was seen before its recovery is whole.
  RETURN_IF_ERROR(note_boot());
  for (const std::string& problem : start_problems_) log::warning("{}", problem);
  log::info("{} reservations recovered{}", reservations_->all().size(), after_boot_ ? " after a boot" : "");
  return {};
}

Result<void> Server::note_boot() {
  BootNote note{boot_id_, {}};
  for (const auto& [name, reservation] : reservations_->all()) {
    for (const std::string& stream : reservation->unchecked_streams())
      note.unchecked[reservation->record().id].insert(stream);
  }
  for (const std::string& id : unread_) {
    if (after_boot_) note.unchecked[id].insert(Reservation::all_streams);
    for (const std::string& stream : unchecked_[id]) note.unchecked[id].insert(stream);
  }
  return keep_text("boot-id", to_text(note));
}

Result<void> Server::listen() {
  // The lock on the root says that no living server uses the name.
  auto listener =
      ListeningSocket::at(options_.socket_path.empty() ? options_.root + "/forebayd.sock" : options_.socket_path);
  const bool elsewhere =
      !listener && options_.socket_path.empty() &&
      (listener.error().code == ErrorCode::unsupported || listener.error().code == ErrorCode::no_space);
  if (elsewhere) {
    log::info("{}; the server's socket is elsewhere", listener.error().message());
    ASSIGN_OR_RETURN(auto directory, runtime_directory());
    listener = ListeningSocket::at(fmt::format("{}/{:016x}.sock", directory, std::hash<std::string>()(options_.root)));
  }
  if (!listener) return fail(std::move(listener.error()));
  listener_ = std::move(*listener);
  socket_path_ = listener_.path();
  RETURN_IF_ERROR(loop_->watch(listener_.get(), EPOLLIN, [this](std::uint32_t) { accept_clients(); }));
  look_after_root();
  const std::string endpoint = socket_path_ + "\n";
  RETURN_IF_ERROR(keep_text("endpoint", endpoint, FileFor::all_to_read));
  log::info("forebayd {} serves {} on {}", version_text, options_.root, socket_path_);
  if (!options_.fabric.empty()) {
    if (options_.listen.empty())
      return fail(ErrorCode::invalid_argument, "a fabric is for clients on other nodes; say --listen HOST:PORT, too");
    if (auto known = fabric::check_provider(options_.fabric); !known) return known;
    // It takes what peers send for right, and lets anybody connect: one frame ends this process (libfabric 1.17).
    if (options_.fabric_peers != "trusted")
      return fail(
          ErrorCode::refused,
          "libfabric trusts whoever reaches the ports that it opens: they could end this server, and do what it "
          "can. If you trust all users of the network and of its nodes, say --fabric-peers trusted, too");
  }
  if (pool_->joined() && options_.listen.empty())
    return fail(ErrorCode::invalid_argument,
                "the other servers of a pool reach this one at a port; say --listen HOST:PORT, too");
  if (pool_->joined() && !options_.encrypts_control)
    return fail(ErrorCode::invalid_argument, "servers of a pool encrypt their messages; leave control_encryption on");
  if (!options_.encrypts_control && options_.listen.empty())
    return fail(ErrorCode::invalid_argument,
                "control_encryption is about clients on other nodes; say --listen HOST:PORT, too");
  for (const std::string& gap : unprotected()) log::warning("{}", gap);
  if (!options_.listen.empty()) return remote_->listen(options_.listen, [this] { accept_remote_clients(); });
  return {};
}

bool Server::root_is_ours() const {
  struct stat locked{};
  struct stat named{};
  return ::fstat(lock_.get(), &locked) == 0 && ::lstat((options_.root + "/lock").c_str(), &named) == 0 &&
         locked.st_dev == named.st_dev && locked.st_ino == named.st_ino;
}

void Server::look_after_root() {
  if (!listener_.valid()) return;  // the server ends
  if (!root_is_ours()) {
    log::error("the root {} was removed, or is another server's: this server ends", options_.root);
    stop();
    return;
  }
  if (!listener_.has_its_name()) {
    // A cleaner, or a logout. Clients that are connected stay so.
    auto again = ListeningSocket::at(socket_path_);
    if (again) {
      loop_->forget(listener_.get());
      listener_ = std::move(*again);
      if (auto watched = loop_->watch(listener_.get(), EPOLLIN, [this](std::uint32_t) { accept_clients(); }); !watched)
        log::error("{}", watched.error().message());
      log::warning("the socket {} was gone, and is made again", socket_path_);
    } else if (!socket_is_missed_) {
      log::error("the socket is gone, and cannot be made again: {}", again.error().message());
    }
    socket_is_missed_ = !again;
  }
  loop_->at(monotonic_ns() + root_interval_ms * 1'000'000, [this] { look_after_root(); });
}

}  // namespace forebay::server
