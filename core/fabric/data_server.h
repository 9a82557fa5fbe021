// SPDX-License-Identifier: Apache-2.0
// The data paths of a server's remote clients over TCP: a thread for each, so that a slow or dead client keeps nobody
// else waiting. They read and write files, and know nothing of the server's state.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>

#include "fabric/data_path.h"
#include "fabric/write_window.h"

namespace forebay::fabric {

class DataServer {
 public:
  /// A path that ends by itself says why, from its own thread.
  using Ended = std::function<void(const Error& why)>;

  explicit DataServer(std::size_t paths_max) noexcept : paths_max_(paths_max) {}
  /// Closes all paths and waits for their threads.
  ~DataServer();
  DataServer(const DataServer&) = delete;
  DataServer& operator=(const DataServer&) = delete;

  /// Takes over a connected socket. With a window the client writes there, without one it is sent what it asks for.
  /// busy if there are too many.
  Result<std::shared_ptr<ServerPath>> serve(Descriptor socket, std::shared_ptr<WriteWindow> window, Ended ended);
  bool is_full();

 private:
  struct Running {
    std::shared_ptr<ServerPath> path;
    std::shared_ptr<std::atomic<bool>> finished;
    std::thread thread;
  };
  /// Joins the threads that are at their end.
  void tidy();

  const std::size_t paths_max_;
  std::list<Running> running_;  // of the event loop's thread
};

}  // namespace forebay::fabric
