// SPDX-License-Identifier: Apache-2.0
// Requests for bytes, from the event loop to the thread of a data path. Thread-safe.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>

#include "fabric/data_path.h"

namespace forebay::fabric {

class TransferQueue {
 public:
  struct Job {
    Transfer transfer;
    std::optional<Error> refusal;  ///< what the client is told instead
  };

  /// False if ServerPath::transfers_max wait.
  bool add(Job job);
  void close();
  /// Waits for the next one; nothing once the queue is closed.
  std::optional<Job> wait();
  /// Nothing if there is none now.
  std::optional<Job> try_take();
  bool is_closed();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;  // guarded by mutex_
  bool closed_ = false;   // guarded by mutex_
};

}  // namespace forebay::fabric
