// SPDX-License-Identifier: Apache-2.0
#include "fabric/data_server.h"

#include <algorithm>
#include <utility>

#include "base/return_error.h"
#include "fabric/tcp_server_path.h"

namespace forebay::fabric {

DataServer::~DataServer() {
  for (Running& running : running_) running.path->close();
  for (Running& running : running_) running.thread.join();
}

void DataServer::tidy() {
  for (auto running = running_.begin(); running != running_.end();) {
    if (!*running->finished) {
      ++running;
      continue;
    }
    running->thread.join();
    running = running_.erase(running);
  }
}

bool DataServer::is_full(bool by_fabric) {
  tidy();
  if (running_.size() >= paths_max_) return true;
  const auto of_fabric = std::ranges::count(running_, true, &Running::by_fabric);
  return by_fabric && static_cast<std::size_t>(of_fabric) >= fabric_paths_max_;
}

Result<std::shared_ptr<ServerPath>> DataServer::serve(Descriptor socket, std::shared_ptr<WriteWindow> window,
                                                      std::optional<FabricChoice> fabric, Ended ended) {
  const bool by_fabric = fabric.has_value();
  if (is_full(by_fabric)) return fail(ErrorCode::busy, "the server has as many data paths to remote clients as it may");
  std::shared_ptr<RunningPath> path;
  if (by_fabric) {
    ASSIGN_OR_RETURN(path,
                     FabricServerPath::make(std::move(socket), std::move(window), std::move(*fabric), silence_ms_));
  } else {
    path = std::make_shared<TcpServerPath>(std::move(socket), std::move(window), silence_ms_);
  }
  auto finished = std::make_shared<std::atomic<bool>>(false);
  std::thread thread([path, finished, ended = std::move(ended)] {
    if (auto ran = path->run(); !ran) ended(ran.error());
    *finished = true;
  });
  running_.push_back({path, by_fabric, std::move(finished), std::move(thread)});
  return std::shared_ptr<ServerPath>(path);
}

}  // namespace forebay::fabric
