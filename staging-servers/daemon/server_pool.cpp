// SPDX-License-Identifier: Apache-2.0
#include "daemon/server_pool.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include <forebay/address.h>

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/log.h"
#include "base/return_error.h"
#include "base/system_error.h"
#include "base/uuid.h"
#include "protocol/message.h"

namespace forebay::server {
namespace {

constexpr const char* directory_name = "pool-directory";
constexpr std::uint64_t directory_bytes_max = std::uint64_t{64} << 20;
constexpr std::size_t key_bytes_max = 4096;
// Clients come back with newer claims when it is over: their connections end with it.
constexpr std::int64_t claims_s = std::int64_t{24} * 3600;
constexpr std::int64_t ns_per_s = 1'000'000'000;

Result<std::string> read_key(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file.valid()) return system_error(errno, "cannot read the pool's key", path);
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) return system_error(errno, "cannot look at the pool's key", path);
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    return fail(ErrorCode::permission_denied,
                "others may read the pool's key, and whoever has it may do everything in the pool; chmod 600 it", path);
  std::string text(key_bytes_max, '\0');
  const ssize_t count = ::read(file.get(), text.data(), text.size());
  if (count < 0) return system_error(errno, "cannot read the pool's key", path);
  text.resize(static_cast<std::size_t>(count));
  return text;
}

}  // namespace

Result<void> ServerPool::join(const std::string& key_path) {
  ASSIGN_OR_RETURN(const auto text, read_key(key_path));
  auto key = fabric::TokenKey::parse(text, key_path);
  if (!key)
    return fail(ErrorCode::corrupt, "this is no key of a pool; copy the one that `forebay servers key` made", key_path);
  auto known = read_whole(device_, root_ + "/" + directory_name, directory_bytes_max);
  if (known) {
    protocol::Message message{protocol::MessageType::pool_directory, 0, std::move(*known), {}};
    // One that was damaged is as good as none: the manager says it again.
    if (const auto directory = protocol::body_of<wire::PoolDirectory>(message)) {
      wire::PoolDirectoryT unpacked;
      (*directory)->UnPackTo(&unpacked);
      if (!take(unpacked)) homes_.clear();
    }
  } else if (known.error().code != ErrorCode::not_found) {
    return fail(std::move(known.error()));
  }
  key_ = *key;
  return {};
}

Result<wire::HomeAnswerT> ServerPool::home(const Peer& peer, const wire::HomeQueryT& query, bool is_own) const {
  wire::HomeAnswerT answer;
  if (query.administrator && !peer.administrator)
    return fail(ErrorCode::permission_denied, "only the server's own user and root administer the pool");
  const bool for_token = query.lifetime_s > 0;
  if (for_token && (query.administrator || !query.server.empty() || !query.reservation.empty()))
    return fail(ErrorCode::protocol, "a user token is for the pool, and for nothing else");
  if (query.lifetime_s > claims_s) return fail(ErrorCode::invalid_argument, "a user token lives for a day at most");
  if (for_token && peer.uid == 0)
    return fail(ErrorCode::permission_denied,
                "root gets no user token: whoever had it could do everything in the pool");
  if (for_token && !key_) {
    return fail(ErrorCode::not_found,
                "this server belongs to no pool; make a token for one reservation with `forebay token create RES`");
  }
  fabric::PoolClaims claims;
  if (!query.reservation.empty()) {
    if (!key_ || is_own) return answer;
    const auto home = homes_.find(query.reservation);
    if (home == homes_.end()) return answer;
    answer.server = home->second.server;
    claims.reservation_id = home->second.id;
  } else {
    // Who has no pool has its manager on its own node.
    if (!key_ && query.server.empty() && peer.remote) return answer;
    if (!key_ || (query.server.empty() && manager_.empty())) {
      return fail(ErrorCode::not_found,
                  "this server belongs to no pool; start it with `forebay up --join HOST:PORT --key FILE`");
    }
    if (!query.server.empty() && !peer.administrator)
      return fail(ErrorCode::permission_denied, "a user reaches a server of the pool by a reservation's name");
    answer.server = query.server.empty() ? manager_ : query.server;
  }
  claims.uid = peer.uid;
  claims.gid = peer.gid;
  claims.groups.assign(peer.groups.begin(), peer.groups.end());
  claims.administrator = peer.administrator;
  if (for_token) claims.expires_ns = wall_clock_ns() + static_cast<std::int64_t>(query.lifetime_s) * ns_per_s;
  // What another server, or MUNGE, has said of it is not said anew: else nobody would ever look at it again.
  if (peer.remote) {
    claims.expires_ns = for_token ? std::min(claims.expires_ns, peer.remote->expires_ns) : peer.remote->expires_ns;
  }
  const fabric::Token token = introduction(std::move(claims));
  const auto* begin = reinterpret_cast<const std::uint8_t*>(token.claims.data());
  answer.claims.assign(begin, begin + token.claims.size());
  answer.secret.assign(token.secret.begin(), token.secret.end());
  return answer;
}

fabric::Token ServerPool::introduction(fabric::PoolClaims claims) const {
  claims.key_id = key_->id;
  const std::int64_t latest_ns = wall_clock_ns() + claims_s * ns_per_s;
  claims.expires_ns = claims.expires_ns == 0 ? latest_ns : std::min(claims.expires_ns, latest_ns);
  claims.serial = random_number();
  fabric::Token token;
  token.claims = fabric::encode(claims);
  token.secret = key_->secret_of(token.claims);
  return token;
}

fabric::Token ServerPool::own_introduction() const {
  if (!key_) return {};
  fabric::PoolClaims claims;
  claims.uid = ::geteuid();
  claims.gid = ::getegid();
  claims.administrator = true;
  return introduction(std::move(claims));
}

fabric::Token ServerPool::segments_introduction(std::uint32_t uid, const std::string& reservation_id,
                                                std::int64_t expires_ns) const {
  fabric::PoolClaims claims;
  claims.reservation_id = reservation_id;
  claims.uid = uid;
  claims.gid = static_cast<std::uint32_t>(-1);
  claims.segments_only = true;
  claims.expires_ns = expires_ns;
  return introduction(std::move(claims));
}

const PoolServer* ServerPool::find_server(const std::string& uuid) const {
  const auto found = servers_.find(uuid);
  return found == servers_.end() ? nullptr : &found->second;
}

Result<void> ServerPool::learn(const wire::PoolDirectoryT& directory) {
  if (!key_) return fail(ErrorCode::refused, "this server belongs to no pool; start it with `forebay up --join`");
  RETURN_IF_ERROR(take(directory));
  auto packed = std::make_shared<flatbuffers::DetachedBuffer>(protocol::pack(directory));
  errands_.add([&device = device_, root = root_, packed] {
    const auto bytes = std::as_bytes(std::span(packed->data(), packed->size()));
    if (auto written = write_whole(device, root, directory_name, bytes); !written)
      log::warning("after a restart names of the pool are not known until its manager comes: {}",
                   written.error().message());
  });
  return {};
}

Result<void> ServerPool::take(const wire::PoolDirectoryT& directory) {
  std::map<std::string, Home, std::less<>> homes;
  if (!directory.manager.empty()) RETURN_IF_ERROR(parse_server(directory.manager));
  for (const auto& entry : directory.homes) {
    if (!is_valid_name(entry->name) || !is_uuid(entry->id))
      return fail(ErrorCode::invalid_argument, "an entry of the pool's directory has no name or no id");
    RETURN_IF_ERROR(parse_server(entry->server));
    homes[entry->name] = {entry->id, entry->server};
  }
  std::map<std::string, PoolServer, std::less<>> servers;
  for (const auto& entry : directory.servers) {
    if (!is_uuid(entry->uuid)) return fail(ErrorCode::invalid_argument, "a server of the pool's directory has no uuid");
    RETURN_IF_ERROR(parse_server(entry->server));
    servers[entry->uuid] = {entry->name, entry->server};
  }
  homes_ = std::move(homes);
  servers_ = std::move(servers);
  manager_ = directory.manager;
  return {};
}

std::optional<fabric::Secret> ServerPool::secret_of(const fabric::PoolClaims& claims,
                                                    std::span<const std::byte> encoded) const {
  if (!key_ || key_->id != claims.key_id) return std::nullopt;
  return key_->secret_of(encoded);
}

}  // namespace forebay::server
