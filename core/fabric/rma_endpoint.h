// SPDX-License-Identifier: Apache-2.0
// One end of a connection between two processes that read and write each other's memory (RMA): what the fabric path
// needs of libfabric. The paths know this interface only, so that tests can put a network of their own below them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <forebay/result.h>

namespace forebay::fabric {

/// An endpoint's address is not longer.
inline constexpr std::size_t endpoint_address_bytes_max = 128;

/// Where the other end finds exposed memory.
struct MemoryPlace {
  std::uint64_t key = 0;
  std::uint64_t address = 0;
};
static_assert(sizeof(MemoryPlace) == 16);

enum class PeerMay : std::uint8_t { read, write };

/// The other end may use it until this is destroyed; an access that has begun by then goes on. Only the end of the
/// endpoint stops that.
class ExposedMemory {
 public:
  virtual ~ExposedMemory() = default;
  ExposedMemory(const ExposedMemory&) = delete;
  ExposedMemory& operator=(const ExposedMemory&) = delete;
  virtual MemoryPlace place() const noexcept = 0;

 protected:
  ExposedMemory() = default;
};

/// For one peer, because its end is the only way to end what is under way. One thread starts operations and asks for
/// completions; others may expose memory and take it back meanwhile.
class RmaEndpoint {
 public:
  /// Operations have the caller's numbers, below this. One number is used for one operation at a time.
  static constexpr std::uint32_t operations_max = 32;
  struct Completion {
    std::uint32_t operation = 0;
    std::optional<Error> error;
  };

  /// Once it returns nobody reads or writes memory through it any more.
  virtual ~RmaEndpoint() = default;
  RmaEndpoint(const RmaEndpoint&) = delete;
  RmaEndpoint& operator=(const RmaEndpoint&) = delete;

  /// What the other end passes to set_peer().
  virtual std::span<const std::byte> address() const noexcept = 0;
  /// `node`: the numeric address of the node that the peer is on. protocol if `address` is not of that node.
  virtual Result<void> set_peer(std::span<const std::byte> address, const std::string& node) = 0;
  /// Own operations read and write this memory, and no other. Once, before them.
  virtual Result<void> use_memory(std::span<std::byte> memory) = 0;
  /// Under a random key.
  virtual Result<std::unique_ptr<ExposedMemory>> expose(std::span<std::byte> memory, PeerMay may) = 0;

  // These start an operation. False: not now; ask for completions, then try again.
  virtual Result<bool> read(std::uint32_t operation, std::span<std::byte> into, const MemoryPlace& from) = 0;
  /// Completes when the bytes are in the peer's memory.
  virtual Result<bool> write(std::uint32_t operation, std::span<const std::byte> from, const MemoryPlace& to) = 0;
  virtual Result<bool> receive(std::uint32_t operation, std::span<std::byte> into) = 0;
  /// At most 64 bytes, which are copied. Does not complete.
  virtual Result<bool> send(std::span<const std::byte> bytes) = 0;

  /// Moves everything on. Nothing if no operation has ended.
  virtual Result<std::optional<Completion>> next() = 0;
  /// Becomes readable when next() may have something, if may_sleep() has said so just before.
  virtual int descriptor() const noexcept = 0;
  virtual bool may_sleep() = 0;
  /// Children that this process starts do not inherit the sockets that there are by now.
  virtual void close_on_exec() noexcept = 0;

 protected:
  RmaEndpoint() = default;
};

/// What both ends know of each other's libfabric.
struct FabricIdentity {
  std::string provider;  ///< "tcp", "verbs", …
  std::uint32_t library_version = 0;
};

struct OpenedEndpoint {
  std::unique_ptr<RmaEndpoint> endpoint;
  FabricIdentity identity;
};

/// Opens an endpoint of a provider at `source`, a numeric address of this node. May take a second.
using EndpointMaker = std::function<Result<OpenedEndpoint>(const std::string& provider, const std::string& source)>;

}  // namespace forebay::fabric
