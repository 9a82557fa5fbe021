// SPDX-License-Identifier: Apache-2.0
// Threads for what may take long: syncs, creating and deleting files, reading data to check it. The server's own jobs
// begin in order. Those that users ask for take turns, user by user, so that nobody waits for all that another wants.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace forebay::server {

class Worker {
 public:
  /// How many jobs of one user may wait.
  static constexpr std::size_t waiting_of_user_max = 256;

  /// With one thread, a job begins when the one before has ended.
  explicit Worker(unsigned threads = 1);
  /// Finishes the jobs that were added.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Nothing happens once the worker is ending.
  void add(std::function<void()> job);
  /// A job for a user. The last of the threads for users is for one who runs none, and one thread is for the server's
  /// own jobs; all of this where there are several. False, and nothing happens, if too many of the user's jobs wait.
  /// `wanted`: once it has expired, nobody waits for the job any more, and it does not begin.
  bool add_for(uid_t user, const std::weak_ptr<const bool>& wanted, std::function<void()> job);
  /// The same with a job that runs in any case: the caller bounds how many there are.
  void add_for(uid_t user, std::function<void()> job);
  /// Waits until nothing is left to do.
  void finish();
  /// Finishes the jobs that were added, and takes no more.
  void end();

 private:
  struct UsersJob {
    std::optional<std::weak_ptr<const bool>> wanted;  ///< unset: always
    std::function<void()> run;
    bool is_wanted() const { return !wanted || !wanted->expired(); }
  };
  void run();
  /// A job that may begin now, and whose it is; an empty function if there is none.
  struct Turn {
    std::function<void()> job;
    const uid_t* user = nullptr;  ///< a key of running_; null: the server's own
  };
  Turn next();
  bool may_run(uid_t user) const;
  bool nothing_waits() const { return jobs_.empty() && users_jobs_.empty(); }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable idle_;
  std::deque<std::function<void()>> jobs_;            // guarded by mutex_
  std::map<uid_t, std::deque<UsersJob>> users_jobs_;  // guarded by mutex_: no empty ones
  std::map<uid_t, unsigned> running_;                 // guarded by mutex_: threads by user, none with 0
  uid_t last_user_ = 0;                               // guarded by mutex_: whose turn it was
  unsigned busy_ = 0;                                 // guarded by mutex_: threads that run a job
  unsigned busy_for_users_ = 0;                       // guarded by mutex_
  bool ending_ = false;                               // guarded by mutex_
  const unsigned thread_count_;
  std::vector<std::thread> threads_;
};

}  // namespace forebay::server
