// SPDX-License-Identifier: Apache-2.0
// The two ends of a data path, which carries bytes of steps between a remote client and its server. The control
// connection decides which bytes. One goes over TCP, one over libfabric.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <forebay/result.h>

#include "base/device.h"
#include "fabric/incoming.h"
#include "fabric/tcp_socket.h"

namespace forebay::fabric {

/// A path on which nothing moves for so long, although something is under way, ends. Both ends have this rule.
inline constexpr std::int64_t path_silence_ms_max = 60'000;

/// The client's end. One call at a time.
class ClientPath {
 public:
  virtual ~ClientPath() = default;
  ClientPath(const ClientPath&) = delete;
  ClientPath& operator=(const ClientPath&) = delete;

  /// What the server sends under `ticket`, as many bytes as are expected. What the server says instead is the error.
  virtual Result<void> receive(std::uint64_t ticket, Incoming incoming, const KeepWaiting& keep_waiting) = 0;
  /// Sends bytes for a place that was granted. They may be on their way when it returns.
  virtual Result<void> write(std::uint32_t segment, std::uint64_t offset, std::span<const std::byte> bytes,
                             const KeepWaiting& keep_waiting) = 0;
  /// Waits until all that was sent is written; the first failure of them is the error.
  virtual Result<void> finish_writes(const KeepWaiting& keep_waiting) = 0;

  // For who has several paths, without waiting. A call that came to no end is repeated with what is left of its bytes,
  // and nothing else is asked of the path before it has.
  /// How many of the bytes are on their way now.
  virtual Result<std::size_t> write_some(std::uint32_t segment, std::uint64_t offset, std::span<const std::byte> bytes,
                                         const KeepWaiting& keep_waiting) = 0;
  /// Takes what has come. True: all that was expected has.
  virtual Result<bool> receive_some(std::uint64_t ticket, Incoming& incoming, const KeepWaiting& keep_waiting) = 0;
  /// Ready where such a call moves something: to read from, but for write_some() where it waits to send.
  virtual int descriptor() const noexcept = 0;
  virtual bool write_waits_to_send() const noexcept = 0;

  /// libfabric's provider; empty: none.
  virtual std::string provider() const { return {}; }
  /// True after an error that left it in the middle of something: it is of no use any more.
  virtual bool is_broken() const noexcept = 0;

 protected:
  ClientPath() = default;
};

/// What a server sends for one request.
struct Transfer {
  struct Piece {
    std::shared_ptr<const File> file;
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
  };
  std::uint64_t ticket = 0;
  std::vector<Piece> pieces;
};

/// The server's end. Its calls come from the event loop and do not wait.
class ServerPath {
 public:
  static constexpr std::size_t transfers_max = 64;

  virtual ~ServerPath() = default;
  ServerPath(const ServerPath&) = delete;
  ServerPath& operator=(const ServerPath&) = delete;

  /// False if more than transfers_max wait: the client does not keep to the protocol.
  virtual bool send(Transfer transfer) = 0;
  /// The answer to a request that gets no bytes. False likewise.
  virtual bool refuse(std::uint64_t ticket, const Error& error) = 0;
  /// Nothing is sent or written any more once its thread has noticed; nothing that is sent from now on arrives.
  virtual void close() noexcept = 0;

 protected:
  ServerPath() = default;
};

}  // namespace forebay::fabric
