// SPDX-License-Identifier: Apache-2.0
#include "server.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include <forebay/address.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/size_text.h"
#include "base/system_error.h"
#include "base/uuid.h"
#include "reader_session.h"
#include "stream.h"
#include "version.h"

namespace forebay::server {
namespace {

constexpr std::size_t small_file_bytes_max = std::size_t{1} << 20;
constexpr std::size_t purge_entries_a_round = 256;
constexpr std::int64_t accept_pause_ms = 200;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

Result<std::string> read_text(Device& device, const std::string& path) {
  auto bytes = read_whole(device, path, small_file_bytes_max);
  if (!bytes) return fail(std::move(bytes.error()));
  std::string text(reinterpret_cast<const char*>(bytes->data()), bytes->size());
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
    return system_error(errno, "cannot look at the directory for sockets", directory);
  if (!S_ISDIR(status.st_mode) || status.st_uid != ::geteuid() || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return fail(ErrorCode::permission_denied,
                "the directory for sockets is not ours alone: remove it, or set XDG_RUNTIME_DIR", directory);
  }
  return directory;
}

}  // namespace

Server::Server(Device& device, ServerOptions options)
    : device_(device), options_(std::move(options)), run_number_(random_number()), started_ns_(wall_clock_ns()) {}

Server::~Server() {
  // Jobs end first; what they posted runs while everything is still there, and may want to add more.
  if (sync_worker_) sync_worker_->end();
  if (errand_worker_) errand_worker_->end();
  if (loop_) {
    loop_->post([this] { loop_->stop(); });
    loop_->run();
  }
  connections_.clear();
  reservations_.clear();
}

Result<std::unique_ptr<Server>> Server::start(Device& device, const ServerOptions& options) {
  std::unique_ptr<Server> server(new Server(device, options));
  if (auto prepared = server->prepare_root(); !prepared) return fail(std::move(prepared.error()));
  auto loop = EventLoop::create();
  if (!loop) return fail(std::move(loop.error()));
  server->loop_ = std::move(*loop);
  server->sync_worker_ = std::make_unique<Worker>();
  server->errand_worker_ = std::make_unique<Worker>();
  auto store = storage::ReservationStore::open(device, server->options_.root);
  if (!store) return fail(std::move(store.error()));
  server->store_ = std::move(*store);
  if (auto learned = server->learn_capacity(); !learned) return fail(std::move(learned.error()));
  if (auto recovered = server->recover(); !recovered) return fail(std::move(recovered.error()));
  if (auto listening = server->listen(); !listening) return fail(std::move(listening.error()));
  server->purge_quarantine();
  return server;
}

Result<void> Server::prepare_root() {
  std::error_code error;
  std::filesystem::create_directories(options_.root, error);
  const std::filesystem::path canonical =
      error ? std::filesystem::path() : std::filesystem::canonical(options_.root, error);
  if (error)
    return system_error(error.value(), "cannot make the root; choose another with --root or FOREBAY_ROOT",
                        options_.root);
  options_.root = canonical.string();
  lock_ = Descriptor(::open((options_.root + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock_.valid()) return system_error(errno, "cannot write in the root", options_.root);
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    return fail(ErrorCode::busy, "another forebayd serves this root; `forebay down` ends it", options_.root);
  }
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot_id_);
  if (boot_id_.empty())
    return fail(ErrorCode::unsupported, "cannot read the kernel's boot id, which recovery depends on",
                "/proc/sys/kernel/random/boot_id");
  const auto text = read_text(device_, options_.root + "/boot-id");
  std::istringstream lines(text.value_or(""));
  std::string line;
  std::getline(lines, line);
  after_boot_ = line != boot_id_;
  while (std::getline(lines, line)) {
    if (const auto slash = line.find('/'); slash != std::string::npos)
      unchecked_[line.substr(0, slash)].insert(line.substr(slash + 1));
  }
  return {};
}

Result<void> Server::keep_text(const std::string& name, const std::string& text) {
  // A disk without a byte left keeps no server from starting again.
  auto before = read_whole(device_, options_.root + "/" + name, small_file_bytes_max);
  if (before && std::ranges::equal(*before, bytes_of(text))) return {};
  auto written = write_whole(device_, options_.root, name, bytes_of(text));
  if (written || written.error().code != ErrorCode::no_space) return written;
  const std::string path = options_.root + "/" + name;
  if (before && before->size() >= text.size()) {
    auto file = device_.open(path, OpenMode::read_write);
    if (!file) return fail(std::move(file.error()));
    const std::string filled = text + std::string(before->size() - text.size(), '\n');
    if (auto over = (*file)->write_at(0, bytes_of(filled)); !over) return over;
    return (*file)->sync();
  }
  return fail(ErrorCode::no_space, "the file system is full: make some room, then start the server again", path);
}

Result<void> Server::learn_capacity() {
  const std::string path = options_.root + "/pool";
  std::optional<std::uint64_t> capacity = options_.capacity_bytes;
  const auto text = read_text(device_, path);
  if (!capacity && text) {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
    if (error != std::errc() || end != text->data() + text->size()) {
      return fail(ErrorCode::corrupt, "the pool's size cannot be read; start once with --capacity to write it anew",
                  path);
    }
    capacity = number;
  }
  if (!capacity) {
    struct statvfs status{};
    if (::statvfs(options_.root.c_str(), &status) != 0)
      return system_error(errno, "cannot tell the free space", options_.root);
    capacity = static_cast<std::uint64_t>(status.f_bavail) * status.f_frsize / 10 * 8;
  }
  pool_bytes_ = *capacity / storage::granularity_bytes * storage::granularity_bytes;
  if (pool_bytes_ < storage::capacity_bytes_min) {
    return fail(ErrorCode::no_space,
                "a pool of " + size_text(*capacity) + " has no room for the smallest reservation, which takes " +
                    size_text(storage::capacity_bytes_min) + "; name a larger one with --capacity",
                options_.root);
  }
  const std::string written = std::to_string(pool_bytes_) + "\n";
  return keep_text("pool", written);
}

Result<void> Server::recover() {
  auto pins = PinTable::open(options_.root + "/pins", after_boot_, absent_);
  if (!pins) return fail(std::move(pins.error()));
  pins_ = std::move(*pins);
  auto records = store_->load(start_problems_, unread_);
  if (!records) return fail(std::move(records.error()));
  for (reservation::ReservationT& record : *records) {
    if (reservations_.contains(record.name)) {
      start_problems_.push_back("two reservations are called " + record.name + "; the one with id " + record.id +
                                " is left alone");
      continue;
    }
    Reservation& reservation = add_reservation(std::move(record));
    reservation.recover_streams(after_boot_, unchecked_[reservation.record().id]);
  }
  watch_absent_readers();
  // Nothing may say that this boot was seen before its recovery is whole.
  if (auto noted = note_boot(); !noted) return noted;
  for (const std::string& problem : start_problems_) log::warning("{}", problem);
  log::info("{} reservations recovered{}", reservations_.size(), after_boot_ ? " after a boot" : "");
  return {};
}

Result<void> Server::note_boot() {
  std::string text = boot_id_ + "\n";
  for (const auto& [name, reservation] : reservations_) {
    for (const std::string& stream : reservation->unchecked_streams())
      text += reservation->record().id + "/" + stream + "\n";
  }
  for (const std::string& id : unread_) {
    if (after_boot_) text += id + "/" + Reservation::all_streams + "\n";
    for (const std::string& stream : unchecked_[id]) text += id + "/" + stream + "\n";
  }
  return keep_text("boot-id", text);
}

void Server::watch_absent_readers() {
  for (const PinTable::Absent& reader : std::exchange(absent_, {})) {
    Stream* stream = nullptr;
    for (auto& [name, reservation] : reservations_) {
      for (auto& [stream_name, candidate] : reservation->streams()) {
        if (candidate->state().uuid == reader.stream_uuid) stream = candidate.get();
      }
    }
    Descriptor process(static_cast<int>(::syscall(SYS_pidfd_open, reader.pid, 0)));
    if (stream == nullptr || !process.valid()) {
      for (const auto& [epoch, step] : reader.keys) pins_->remove(reader.session, epoch, step);
      continue;
    }
    stream->followers().hold_for_absent(reader.session, reader.keys);
    const int number = process.get();
    absent_processes_.emplace(number, std::move(process));
    auto watched = loop_->watch(number, EPOLLIN, [this, number, session = reader.session](std::uint32_t) {
      loop_->forget(number);
      absent_processes_.erase(number);
      for (auto& [name, reservation] : reservations_) {
        for (auto& [stream_name, candidate] : reservation->streams()) candidate->followers().absent_is_gone(session);
      }
    });
    if (!watched) log::error("{}", watched.error().message());
  }
}

bool Server::held_by_absent(const std::string& stream_uuid, std::uint32_t epoch, std::uint64_t step) const {
  return std::ranges::any_of(absent_, [&](const PinTable::Absent& reader) {
    return reader.stream_uuid == stream_uuid &&
           std::ranges::find(reader.keys, std::pair(epoch, step)) != reader.keys.end();
  });
}

Result<void> Server::listen() {
  socket_path_ = options_.socket_path;
  if (socket_path_.empty()) {
    auto directory = runtime_directory();
    if (!directory) return fail(std::move(directory.error()));
    socket_path_ = fmt::format("{}/{:016x}.sock", *directory, std::hash<std::string>()(options_.root));
  }
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_path_.size() >= sizeof address.sun_path)
    return fail(ErrorCode::invalid_argument, "the socket's path is too long; set XDG_RUNTIME_DIR to a short one",
                socket_path_);
  socket_path_.copy(address.sun_path, sizeof address.sun_path - 1);
  // The lock on the root says that no living server uses it.
  if (::unlink(socket_path_.c_str()) != 0 && errno != ENOENT)
    return system_error(errno, "cannot remove an old socket", socket_path_);
  listener_ = Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener_.valid()) return system_error(errno, "cannot make a socket");
  if (::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    return system_error(errno, "cannot bind", socket_path_);
  // Whoever can reach the server may connect: rights are decided by who the peer is.
  if (::chmod(socket_path_.c_str(), 0666) != 0)
    return system_error(errno, "cannot open the socket to others", socket_path_);
  if (::listen(listener_.get(), SOMAXCONN) != 0) return system_error(errno, "cannot listen", socket_path_);
  if (auto watched = loop_->watch(listener_.get(), EPOLLIN, [this](std::uint32_t) { accept_clients(); }); !watched)
    return watched;
  const std::string endpoint = socket_path_ + "\n";
  if (auto written = keep_text("endpoint", endpoint); !written) return written;
  if (::chmod((options_.root + "/endpoint").c_str(), 0644) != 0)
    return system_error(errno, "cannot open the endpoint file to others", options_.root);
  log::info("forebayd {} serves {} on {}", version_text, options_.root, socket_path_);
  return {};
}

void Server::accept_clients() {
  while (true) {
    Descriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK && errno != ECONNABORTED) {
        log::error("cannot accept a client: {}", std::generic_category().message(errno));
        pause_accepting();
      }
      return;
    }
    auto connection = Connection::accept(*this, std::move(socket));
    if (!connection) {
      log::error("{}", connection.error().message());
      continue;
    }
    Connection* raw = connection->get();
    connections_.emplace(raw, std::move(*connection));
  }
}

void Server::pause_accepting() {
  // Out of descriptors, most likely. The waiting client would wake the loop again at once, and again.
  const int listener = listener_.get();
  loop_->change(listener, 0);
  loop_->at(monotonic_ns() + accept_pause_ms * 1'000'000, [this, listener] {
    if (listener_.valid()) loop_->change(listener, EPOLLIN);
  });
}

void Server::remove(Connection& connection) {
  pins_->forget_process(connection.peer().pid);
  connections_.erase(&connection);
}

void Server::run() {
  loop_->run();
}

void Server::stop() {
  listener_.reset();
  loop_->stop();
}

Result<void> Server::flush_everything() {
  // To clients this looks like a crash: they come back to the next server.
  for (auto& [raw, connection] : connections_) connection->abandon();
  // Jobs under way end first; their results are still taken.
  sync_worker_ = std::make_unique<Worker>();
  loop_->post([this] { loop_->stop(); });
  loop_->run();
  Result<void> all;
  for (auto& [name, reservation] : reservations_) {
    for (auto& [stream_name, stream] : reservation->streams()) {
      if (auto flushed = stream->flusher().flush_now(); !flushed && all) all = std::move(flushed);
    }
  }
  return all;
}

Result<void> check_reservation_name(const std::string& name) {
  if (is_valid_name(name)) return {};
  return fail(ErrorCode::invalid_argument,
              "not a valid name; names begin with a letter and have up to 64 letters, digits, '_', '.', '-'",
              "reservation \"" + name + "\"");
}

Result<Reservation*> Server::find_reservation(const std::string& name, const Peer& peer) {
  if (auto named = check_reservation_name(name); !named) return fail(std::move(named.error()));
  const auto found = reservations_.find(name);
  const bool exists = found != reservations_.end() && !found->second->retiring;
  if (!exists && !peer.administrator) return fail(Reservation::denial(name, peer));
  if (!exists) {
    return fail(ErrorCode::not_found,
                "no such reservation; `forebay ls` lists them, `forebay create " + name + " --capacity 2GiB` makes it",
                "reservation " + name);
  }
  if (auto admitted = found->second->admit(peer); !admitted) return fail(std::move(admitted.error()));
  return found->second.get();
}

Reservation& Server::add_reservation(reservation::ReservationT record) {
  const std::string name = record.name;
  auto& slot = reservations_[name];
  slot = std::make_unique<Reservation>(*this, std::move(record));
  return *slot;
}

void Server::forget_reservation(const std::string& name) {
  if (const auto found = reservations_.find(name); found != reservations_.end()) {
    for (auto& [stream_name, stream] : found->second->streams()) {
      found->second->end_waits(*stream, {ErrorCode::not_found, "the reservation was destroyed", "reservation " + name});
      stream->removed();
    }
  }
  reservations_.erase(name);
  const std::string prefix = name + "/";
  std::vector<ReaderSession*> waiting;
  std::erase_if(stream_waiters_, [&](const auto& entry) {
    if (!entry.first.starts_with(prefix)) return false;
    waiting.push_back(entry.second);
    return true;
  });
  for (ReaderSession* session : waiting) session->reservation_destroyed();
  purge_quarantine();
}

void Server::purge_quarantine() {
  if (purging_) {
    purge_again_ = true;
    return;
  }
  purging_ = true;
  purge_round();
}

void Server::purge_round() {
  errand_worker_->add([this] {
    auto done = store_->purge_quarantine(purge_entries_a_round);
    loop_->post([this, done = std::move(done)] {
      // What came in since the round began may not have been seen by it.
      if (std::exchange(purge_again_, false) || (done && !*done)) {
        purge_round();
        return;
      }
      purging_ = false;
      if (!done) log::error("quarantine could not be emptied: {}", done.error().message());
    });
  });
}

std::uint64_t Server::reserved_bytes() const {
  std::uint64_t bytes = bytes_in_work;
  for (const auto& [name, reservation] : reservations_) bytes += reservation->record().capacity_bytes;
  return bytes;
}

ServerInfo Server::info() const {
  ServerInfo info;
  info.version = version_text;
  info.root = options_.root;
  info.pid = static_cast<std::uint32_t>(::getpid());
  info.started_ns = started_ns_;
  info.pool_bytes = pool_bytes_;
  info.reserved_bytes = reserved_bytes();
  info.granularity_bytes = storage::granularity_bytes;
  info.clients = static_cast<std::uint32_t>(connections_.size());
  info.reservations = static_cast<std::uint32_t>(reservations_.size());
  return info;
}

void Server::add_stream_waiter(ReaderSession& session, const std::string& path) {
  stream_waiters_.emplace(path, &session);
}

void Server::remove_stream_waiter(ReaderSession& session) {
  std::erase_if(stream_waiters_, [&](const auto& entry) { return entry.second == &session; });
}

void Server::stream_made(const std::string& path) {
  // The stream is in its reservation's map only once its maker returns.
  loop_->post([this, path] {
    std::vector<ReaderSession*> waiting;
    const auto [first, last] = stream_waiters_.equal_range(path);
    for (auto entry = first; entry != last; ++entry) waiting.push_back(entry->second);
    stream_waiters_.erase(first, last);
    for (ReaderSession* session : waiting) session->stream_made();
  });
}

}  // namespace forebay::server
