// SPDX-License-Identifier: Apache-2.0
#include "daemon/server.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>

#include <forebay/address.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/uuid.h"
#include "daemon/version.h"
#include "readers/reader_session.h"
#include "streams/stream.h"

namespace forebay::server {
namespace {

constexpr std::size_t purge_entries_a_round = 256;
constexpr std::int64_t accept_pause_ms = 200;

/// Why a server does not start, and what its operator can do about what the system said.
tl::unexpected<Error> refusal(Error error) {
  if (error.code == ErrorCode::no_space) error.what += "; make some room, then start the server again";
  if (error.code == ErrorCode::io_error) error.what += "; mend that, then start the server again";
  return fail(std::move(error));
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
  if (auto prepared = server->prepare_root(); !prepared) return refusal(std::move(prepared.error()));
  auto loop = EventLoop::create();
  if (!loop) return refusal(std::move(loop.error()));
  server->loop_ = std::move(*loop);
  server->sync_worker_ = std::make_unique<Worker>();
  server->errand_worker_ = std::make_unique<Worker>();
  auto store = storage::ReservationStore::open(device, server->options_.root);
  if (!store) return refusal(std::move(store.error()));
  server->store_ = std::move(*store);
  if (auto learned = server->learn_capacity(); !learned) return refusal(std::move(learned.error()));
  if (auto recovered = server->recover(); !recovered) return refusal(std::move(recovered.error()));
  if (auto listening = server->listen(); !listening) return refusal(std::move(listening.error()));
  server->purge_quarantine();
  return server;
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
  // It may have been the last that could write to a segment.
  for (auto& [name, reservation] : reservations_) reservation->space().queue().changed(SpaceChange::more);
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
  errand_worker_->end();
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
  const bool exists = found != reservations_.end() && !found->second->retiring();
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

void Server::end_work(const std::string& name) {
  const auto found = names_in_work.find(name);
  if (found == names_in_work.end()) return;
  for (auto& task : found->second) loop_->post(std::move(task));
  names_in_work.erase(found);
}

void Server::forget_reservation(const std::string& name) {
  if (const auto found = reservations_.find(name); found != reservations_.end()) {
    for (auto& [stream_name, stream] : found->second->streams()) {
      found->second->space().queue().end_waits(
          *stream, {ErrorCode::not_found, "the reservation was destroyed", "reservation " + name});
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
      // On a full device it is only now that there is what removed streams had.
      for (auto& [name, reservation] : reservations_) {
        reservation->space().journal_room().shrank();
        reservation->space().queue().changed(SpaceChange::more);
      }
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
