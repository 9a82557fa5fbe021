// SPDX-License-Identifier: Apache-2.0
#include "fabric/data_server.h"

#include <utility>

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

bool DataServer::is_full() {
  tidy();
  return running_.size() >= paths_max_;
}

Result<std::shared_ptr<ServerPath>> DataServer::serve(Descriptor socket, std::shared_ptr<WriteWindow> window,
                                                      Ended ended) {
  if (is_full()) return fail(ErrorCode::busy, "the server has as many data paths to remote clients as it may");
  auto path = std::make_shared<TcpServerPath>(std::move(socket), std::move(window));
  auto finished = std::make_shared<std::atomic<bool>>(false);
  std::thread thread([path, finished, ended = std::move(ended)] {
    if (auto ran = path->run(); !ran) ended(ran.error());
    *finished = true;
  });
  running_.push_back({path, std::move(finished), std::move(thread)});
  return std::shared_ptr<ServerPath>(path);
}

}  // namespace forebay::fabric
