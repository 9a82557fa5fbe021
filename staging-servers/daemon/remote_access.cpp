// SPDX-License-Identifier: Apache-2.0
#include "daemon/remote_access.h"

#include <grp.h>
#include <pwd.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include <forebay/address.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/munge.h"
#include "base/return_error.h"
#include "base/uuid.h"
#include "fabric/data_ticket.h"
#include "fabric/libfabric.h"
#include "fabric/tcp_socket.h"
#include "loop/user_shares.h"
#include "reservations/shares.h"

namespace forebay::server {
namespace {

constexpr const char* key_name = "token-key";
constexpr std::uint64_t key_bytes_max = 4096;
constexpr std::uint64_t lifetime_s_max = std::uint64_t{366} * 24 * 3600;

/// All that the user is in, by this node's lists. Whoever is unknown here has the group that MUNGE told.
std::vector<gid_t> groups_of(uid_t uid, gid_t gid) {
  std::vector<char> buffer(std::size_t{64} << 10);
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr) return {};
  int count = 64;
  std::vector<gid_t> groups(static_cast<std::size_t>(count));
  while (::getgrouplist(entry.pw_name, gid, groups.data(), &count) < 0 && count > static_cast<int>(groups.size()))
    groups.resize(static_cast<std::size_t>(count));
  groups.resize(static_cast<std::size_t>(std::max(0, std::min(count, static_cast<int>(groups.size())))));
  return groups;
}

/// What has ended, and tokens of which nothing is left.
template <class ByToken>
void forget_expired(ByToken& by_token) {
  for (auto& [token, living] : by_token) std::erase_if(living, [](const auto& one) { return one.expired(); });
  std::erase_if(by_token, [](const auto& entry) { return entry.second.empty(); });
}

}  // namespace

RemoteAccess::RemoteAccess(Device& device, std::string root, RemoteOptions options, EventLoop& loop,
                           ReservationTable& reservations, const ServerPool& pool)
    : device_(device),
      root_(std::move(root)),
      options_(std::move(options)),
      loop_(loop),
      reservations_(reservations),
      pool_(pool),
      data_(options_.limits.data_paths, options_.limits.fabric_paths, options_.limits.silence_ms) {}

RemoteAccess::~RemoteAccess() {
  stop_listening();
}

Result<void> RemoteAccess::listen(const std::string& place, const std::function<void()>& accept) {
  ASSIGN_OR_RETURN(const auto server, parse_server(place));
  RETURN_IF_ERROR(key());
  RETURN_IF_ERROR(revoked());
  ASSIGN_OR_RETURN(listener_, fabric::listen_tcp(server.host, server.port));
  RETURN_IF_ERROR(loop_.watch(listener_.get(), EPOLLIN, [accept](std::uint32_t) { accept(); }));
  log::info("clients on other nodes may connect to {}", server.text());
  if (!options_.fabric_provider.empty())
    log::info("bytes of steps may travel by libfabric, provider {}", options_.fabric_provider);
  return {};
}

Descriptor RemoteAccess::accept() {
  while (true) {
    Descriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.valid()) return socket;
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) {
      accept_failures_.error("cannot accept a client of another node: {}", std::generic_category().message(errno));
      // Out of descriptors, most likely; the client that waits would wake the loop again at once.
      constexpr std::int64_t pause_ns = 200'000'000;
      loop_.change(listener_.get(), 0);
      loop_.at(monotonic_ns() + pause_ns, [this] {
        if (listener_.valid()) loop_.change(listener_.get(), EPOLLIN);
      });
    }
    return {};
  }
}

void RemoteAccess::stop_listening() {
  if (!listener_.valid()) return;
  loop_.forget(listener_.get());
  listener_.reset();
}

Result<const fabric::TokenKey*> RemoteAccess::key() {
  if (key_) return &*key_;
  const std::string path = root_ + "/" + key_name;
  auto bytes = read_whole(device_, path, key_bytes_max);
  if (bytes) {
    const std::string_view text(reinterpret_cast<const char*>(bytes->data()), bytes->size());
    ASSIGN_OR_RETURN(key_, fabric::TokenKey::parse(text, path));
    return &*key_;
  }
  if (bytes.error().code != ErrorCode::not_found) return fail(std::move(bytes.error()));
  const fabric::TokenKey drawn = fabric::TokenKey::draw();
  const std::string text = drawn.to_text();
  // Files of a device are its owner's alone.
  RETURN_IF_ERROR(write_whole(device_, root_, key_name, std::as_bytes(std::span(text))));
  key_ = drawn;
  return &*key_;
}

Result<std::string> RemoteAccess::create_token(const Peer& peer, const wire::TokenCreateT& asked) {
  const Rights needed = (asked.rights & fabric::right_write) != 0 ? Rights::write : Rights::read;
  ASSIGN_OR_RETURN(Reservation* const reservation, reservations_.find(asked.reservation, peer, needed));
  const std::string where = "reservation " + asked.reservation;
  if (asked.rights == 0 || (asked.rights & ~fabric::rights_all) != 0)
    return fail(ErrorCode::invalid_argument, "a token has the right to read, to write, or both", where);
  if (asked.lifetime_s == 0 || asked.lifetime_s > lifetime_s_max)
    return fail(ErrorCode::invalid_argument, "a token lives for a second to 366 days", where);
  const std::uint32_t uid = asked.uid.value_or(peer.uid);
  if (uid != peer.uid && !peer.administrator) {
    return fail(ErrorCode::permission_denied, "only root and the server's own user make tokens of somebody else's",
                where);
  }
  ASSIGN_OR_RETURN(const fabric::TokenKey* const made_with, key());
  fabric::TokenClaims claims;
  claims.key_id = made_with->id;
  claims.reservation_id = reservation->record().id;
  claims.access_generation = access_generation(reservation->record(), uid);
  claims.uid = uid;
  claims.rights = asked.rights;
  claims.expires_ns = wall_clock_ns() + static_cast<std::int64_t>(asked.lifetime_s) * 1'000'000'000;
  claims.serial = random_number();
  fabric::Token token;
  token.claims = fabric::encode(claims);
  token.secret = made_with->secret_of(token.claims);
  token_lines_.info("token {:016x} made for user {}, reservation {}", claims.serial, uid, asked.reservation);
  return fabric::to_text(token);
}

Result<RevokedTokens*> RemoteAccess::revoked() {
  if (!revoked_) {
    ASSIGN_OR_RETURN(revoked_, RevokedTokens::load(device_, root_));
  }
  return &*revoked_;
}

Result<fabric::TokenClaims> RemoteAccess::revoke_token(const std::string& text) {
  ASSIGN_OR_RETURN(const auto token, fabric::parse_token(text, "the token to revoke"));
  if (fabric::are_pool_claims(token.claims)) {
    return fail(ErrorCode::unsupported,
                "a user token cannot be revoked: it ends within a day of when it was made, or with the pool's key");
  }
  ASSIGN_OR_RETURN(const auto claims, fabric::decode_claims(token.claims));
  const auto secret = secret_of(claims, token.claims);
  if (!secret || !fabric::is_same(*secret, token.secret))
    return fail(ErrorCode::permission_denied, "the token was not made by this server, or is void already");
  ASSIGN_OR_RETURN(RevokedTokens* const list, revoked());
  RETURN_IF_ERROR(list->add(claims.serial, {claims.uid, claims.expires_ns}, wall_clock_ns()));
  token_lines_.info("token {:016x} revoked", claims.serial);
  return claims;
}

std::optional<fabric::Secret> RemoteAccess::secret_of(const fabric::TokenClaims& claims,
                                                      std::span<const std::byte> encoded) {
  const auto made_with = key();
  if (!made_with || (*made_with)->id != claims.key_id) return std::nullopt;
  return (*made_with)->secret_of(encoded);
}

void RemoteAccess::vouch(std::string credential, std::weak_ptr<const bool> wanted, Vouched told) {
  if (!vouching_) vouching_ = std::make_unique<Worker>();
  vouching_->add([&loop = loop_, credential = std::move(credential), wanted = std::move(wanted),
                  told = std::move(told)]() mutable {
    if (wanted.expired()) return;
    auto made = std::make_shared<Result<Unmunged>>(unmunge(credential));
    auto peer = std::make_shared<Peer>();
    if (*made) {
      peer->uid = (*made)->uid;
      peer->gid = (*made)->gid;
      peer->groups = groups_of(peer->uid, peer->gid);
      peer->administrator = peer->uid == 0 || peer->uid == ::geteuid();
    }
    loop.post([made, peer, wanted = std::move(wanted), told = std::move(told)] {
      if (wanted.expired()) return;
      if (*made) {
        told(std::move(*peer), std::move((*made)->payload));
      } else {
        told(fail((*made).error()), {});
      }
    });
  });
}

Result<void> RemoteAccess::admit(const RemotePeer& peer, const std::weak_ptr<const bool>& alive) {
  forget_expired(connections_);
  const auto own = connections_.find(peer.token);
  if (own != connections_.end() && own->second.size() >= options_.limits.token_connections) {
    return fail(ErrorCode::busy,
                fmt::format("{} connections with this token are open, as many as may be; close some, or make another "
                            "token with `forebay token create`",
                            options_.limits.token_connections));
  }
  ASSIGN_OR_RETURN(const RevokedTokens* const list, revoked());
  if (list->contains(peer.token)) {
    return fail(ErrorCode::permission_denied,
                "the token was revoked, as that of a Slurm job is when the job is over; make another with `forebay "
                "token create`");
  }
  // Whoever is known as who it is hears the same of a reservation as on this node.
  if (!peer.identified) RETURN_IF_ERROR(check_reservation(peer));
  connections_[peer.token].push_back(alive);
  return {};
}

Result<void> RemoteAccess::check_reservation(const RemotePeer& peer) const {
  for (const auto& [name, reservation] : reservations_.all()) {
    if (reservation->record().id != peer.reservation_id || reservation->retiring()) continue;
    if (access_generation(reservation->record(), peer.uid) == peer.access_generation) return {};
    break;
  }
  // One answer for both: who has no right any more does not learn whether it is still there.
  return fail(ErrorCode::permission_denied,
              "the token's reservation is gone, or rights in it were taken away since the token was made; make another "
              "with `forebay token create`");
}

Result<std::vector<std::uint8_t>> RemoteAccess::offer_data(Connection& connection, bool writes) {
  const std::int64_t now = monotonic_ns();
  std::erase_if(offers_, [&](const auto& offer) {
    // A connection has one data path: whoever asks again has lost its ticket.
    return offer.second.until_ns <= now || offer.second.alive.expired() || offer.second.connection == &connection;
  });
  if (offers_.size() >= options_.limits.tickets || data_.is_full(false)) {
    return fail(ErrorCode::busy,
                fmt::format("the server has {} data paths to clients on other nodes, as many as it may; close readers",
                            options_.limits.data_paths));
  }
  if (paths_of_others(connection) >= options_.limits.token_data_paths) {
    return fail(ErrorCode::busy,
                fmt::format("{} data paths with this token are open, as many as may be; close readers, or make another "
                            "token with `forebay token create`",
                            options_.limits.token_data_paths));
  }
  if (!has_path_for(connection.peer().uid)) {
    return fail(ErrorCode::busy,
                fmt::format("user {} has nearly all data paths, and the rest is kept for others; close "
                            "readers, then try again",
                            connection.peer().uid));
  }
  const fabric::Nonce drawn = fabric::draw_nonce();
  std::vector<std::uint8_t> ticket(drawn.begin(), drawn.end());
  offers_[ticket] = {&connection,
                     connection.alive(),
                     connection.peer().remote->token,
                     connection.peer().uid,
                     writes,
                     now + options_.limits.ticket_ms * ns_per_ms};
  return ticket;
}

bool RemoteAccess::has_path_for(uid_t user) {
  forget_expired(users_paths_);
  std::size_t taken = offers_.size();
  for (const auto& [owner, paths] : users_paths_) taken += paths.size();
  auto own = std::ranges::count_if(offers_, [user](const auto& offer) { return offer.second.user == user; });
  if (const auto found = users_paths_.find(user); found != users_paths_.end())
    own += static_cast<std::ptrdiff_t>(found->second.size());
  // How many there may be at all is asked of the paths themselves.
  const std::size_t places = options_.limits.data_paths;
  return taken >= places || PlaceShares::may_take(places, taken, static_cast<std::size_t>(own));
}

std::size_t RemoteAccess::paths_of_others(const Connection& connection) {
  forget_expired(paths_);
  const std::uint64_t token = connection.peer().remote->token;
  auto count = std::ranges::count_if(offers_, [token](const auto& offer) { return offer.second.token == token; });
  if (const auto with_token = paths_.find(token); with_token != paths_.end()) {
    count += std::ranges::count_if(
        with_token->second, [&connection](const auto& path) { return path.lock().get() != connection.data_path(); });
  }
  return static_cast<std::size_t>(count);
}

Result<void> RemoteAccess::check_ticket(std::span<const std::uint8_t> asked) {
  const auto [ticket, by_fabric] = fabric::split_ticket(asked);
  const auto found = offers_.find({ticket.begin(), ticket.end()});
  const bool valid = found != offers_.end() && found->second.until_ns > monotonic_ns() &&
                     !found->second.alive.expired() && !found->second.connection->closing();
  if (!valid) return fail(ErrorCode::permission_denied, "this ticket for a data path is not valid, or not any more");
  if (!by_fabric) return {};
  if (options_.fabric_provider.empty()) {
    return fail(ErrorCode::unsupported,
                "the server does not offer libfabric: start it with `forebay up --listen … --fabric tcp`, or set "
                "FOREBAY_TRANSPORT=tcp");
  }
  if (data_.is_full(true)) {
    return fail(ErrorCode::busy, fmt::format("the server has {} data paths by libfabric, as many as it may; close "
                                             "readers, or set FOREBAY_TRANSPORT=tcp",
                                             options_.limits.fabric_paths));
  }
  return {};
}

void RemoteAccess::begin_data(std::span<const std::uint8_t> asked, Descriptor socket) {
  const auto [ticket, by_fabric] = fabric::split_ticket(asked);
  auto taken = offers_.extract({ticket.begin(), ticket.end()});
  if (!taken) return;
  Connection& connection = *taken.mapped().connection;
  const auto ended = [this](const Error& why) {
    // Segments that it could write to may be others' now.
    loop_.post([this, why] {
      if (why.code == ErrorCode::unsupported) {
        path_lines_.warning("no data path by libfabric: {}", why.message());
      } else if (why.code == ErrorCode::io_error) {
        path_lines_.error("a data path ended, its client connects again: {}", why.message());
      } else {
        path_lines_.info("a data path ended: {}", why.message());
      }
      reservations_.space_may_be_free();
    });
  };
  std::optional<fabric::FabricChoice> choice;
  if (by_fabric) choice = {options_.fabric_provider, fabric::open_libfabric_endpoint};
  auto path =
      data_.serve(std::move(socket), taken.mapped().writes ? connection.window() : nullptr, std::move(choice), ended);
  if (path) {
    paths_[connection.peer().remote->token].push_back(*path);
    users_paths_[connection.peer().uid].push_back(*path);
    connection.use_data_path(std::move(*path));
  } else {
    connection.close(path.error().message());
  }
}

}  // namespace forebay::server
