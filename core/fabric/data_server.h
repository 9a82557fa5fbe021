// SPDX-License-Identifier: Apache-2.0
// The data paths of a server's remote clients: a thread for each, so that a slow or dead client keeps nobody else
// waiting. They read and write files, and know nothing of the server's state.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "fabric/data_path.h"
#include "fabric/fabric_server_path.h"
#include "fabric/write_window.h"

namespace forebay::fabric {

class DataServer {
 public:
  /// A path that ends by itself says why, from its own thread.
  using Ended = std::function<void(const Error& why)>;

  /// At most `paths_max` paths, of which `fabric_paths_max` by a fabric, which have buffers of some MiB. `silence_ms`:
  /// see path_silence_ms_max.
  DataServer(std::size_t paths_max, std::size_t fabric_paths_max, std::int64_t silence_ms) noexcept
      : paths_max_(paths_max), fabric_paths_max_(fabric_paths_max), silence_ms_(silence_ms) {}
  /// Closes all paths and waits for their threads.
  ~DataServer();
  DataServer(const DataServer&) = delete;
  DataServer& operator=(const DataServer&) = delete;

  /// Takes over a connected socket. With a window the client writes there, without one it is sent what it asks for.
  /// With a fabric the bytes travel by it, else by the socket. busy if there are too many.
  Result<std::shared_ptr<ServerPath>> serve(Descriptor socket, std::shared_ptr<WriteWindow> window,
                                            std::optional<FabricChoice> fabric, Ended ended);
  bool is_full(bool by_fabric);

 private:
  struct Running {
    std::shared_ptr<RunningPath> path;
    bool by_fabric = false;
    std::shared_ptr<std::atomic<bool>> finished;
    std::thread thread;
  };
  /// Joins the threads that are at their end.
  void tidy();

  const std::size_t paths_max_;
  const std::size_t fabric_paths_max_;
  const std::int64_t silence_ms_;
  std::list<Running> running_;  // of the event loop's thread
};

}  // namespace forebay::fabric
