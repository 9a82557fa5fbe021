// SPDX-License-Identifier: Apache-2.0
// libdatawarp: see datawarp.h. What may throw stays inside `guarded`, so that no exception meets a C program.
#include "datawarp.h"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "calling.h"

// What programs link against, and nothing else of what is in here.
#pragma GCC visibility push(default)
struct dw_failed_stage {
  std::vector<std::pair<std::string, int>> stages;
  std::size_t at = 0;
};
#pragma GCC visibility pop

namespace {

using forebay::datawarp::call;
using forebay::datawarp::environment;
using forebay::datawarp::make_absolute;
using forebay::datawarp::own_umask;
using forebay::datawarp::resolve;

constexpr int list_items_max = 1'000'000;
constexpr int stripe_bytes = 8 << 20;

constexpr const char* file = "file";
constexpr const char* directory = "directory";

template <class Function>
int without_exceptions(Function&& function) noexcept {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    return -ENOMEM;
  } catch (...) {
    return -EIO;
  }
}

/// A thread that is cancelled goes when the call is over: in the middle the C library would end the program.
template <class Function>
int guarded(Function&& function) noexcept {
  int before = 0;
  ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
  const int result = without_exceptions(std::forward<Function>(function));
  ::pthread_setcancelstate(before, nullptr);
  return result;
}

/// What the program may see is told at once; the stage, which has its rights too, looks again.
int check_source(const std::string& path, const char* kind) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) return -errno;
  if (kind == directory) return S_ISDIR(status.st_mode) ? 0 : -ENOTDIR;
  return S_ISREG(status.st_mode) ? 0 : S_ISDIR(status.st_mode) ? -EISDIR : -EINVAL;
}

int stage_in(const char* dw, const char* pfs, const char* kind) {
  std::string inside, outside, body;
  if (const int error = resolve(dw, inside); error != 0) return error;
  if (const int error = make_absolute(pfs, outside); error != 0) return error;
  if (const int error = check_source(outside, kind); error != 0) return error;
  return call("stage_in", {{"kind", kind}, {"path", inside}, {"pfs", outside}, {"umask", own_umask()}, {"job", ""}},
              body);
}

int stage_out(const char* dw, const char* pfs, dw_stage_type type, const char* kind) {
  std::string inside, outside, body;
  if (const int error = resolve(dw, inside); error != 0) return error;
  switch (type) {
    case DW_REVOKE_STAGE_AT_JOB_END:
      return call("revoke", {{"kind", kind}, {"path", inside}}, body);
    case DW_ACTIVATE_DEFERRED_STAGE:
      return call("activate", {{"kind", kind}, {"path", inside}}, body);
    case DW_STAGE_IMMEDIATE:
    case DW_STAGE_AT_JOB_END:
      break;
    default:
      return -EINVAL;
  }
  if (const int error = make_absolute(pfs, outside); error != 0) return error;
  if (const int error = check_source(inside, kind); error != 0) return error;
  return call(type == DW_STAGE_AT_JOB_END ? "defer" : "stage_out",
              {{"kind", kind},
               {"path", inside},
               {"pfs", outside},
               {"umask", own_umask()},
               {"job", environment("SLURM_JOB_ID")}},
              body);
}

/// Does it for each of a list; the first error.
template <class Function>
int for_each(const char** list, Function&& function) {
  if (list == nullptr) return -EINVAL;
  for (int at = 0; list[at] != nullptr; ++at) {
    if (at == list_items_max) return -E2BIG;
    if (const int error = function(list[at]); error != 0) return error;
  }
  return 0;
}

/// A file of this name in a folder.
int name_below(const char* folder, const char* name, std::string& path) {
  if (folder == nullptr || *folder == '\0') return -EINVAL;
  std::string absolute;
  if (const int error = make_absolute(name, absolute); error != 0) return error;
  path = std::string(folder) + "/" + absolute.substr(absolute.rfind('/') + 1);
  return 0;
}

struct Counts {
  int numbers[4] = {};
};

int query(const char* dw, const char* kind, Counts& counts) {
  std::string inside, body;
  if (const int error = resolve(dw, inside); error != 0) return error;
  if (const int error = call("query", {{"kind", kind}, {"path", inside}}, body); error != 0) return error;
  const char* at = body.data();
  const char* const end = at + body.size();
  for (int& sum : counts.numbers) {
    long long number = 0;
    const auto [after, error] = std::from_chars(at, end, number);
    if (error != std::errc() || number < 0) return -EIO;
    sum = number > INT_MAX - sum ? INT_MAX : sum + static_cast<int>(number);
    at = after == end ? after : after + 1;
  }
  return 0;
}

template <class Function>
int queried(int* complete, int* pending, int* deferred, int* failed, Function&& function) noexcept {
  if (complete == nullptr || pending == nullptr || deferred == nullptr || failed == nullptr) return -EINVAL;
  return guarded([&] {
    Counts counts;
    if (const int error = function(counts); error != 0) return error;
    *complete = counts.numbers[0];
    *pending = counts.numbers[1];
    *deferred = counts.numbers[2];
    *failed = counts.numbers[3];
    return 0;
  });
}

int until_over(const char* name, const char* dw, const char* kind) {
  std::string inside, body;
  if (const int error = resolve(dw, inside); error != 0) return error;
  return call(name, {{"kind", kind}, {"path", inside}}, body, true);
}

/// That of an open file lies in a reservation; -ENODATA if not.
int check_place(int fd) {
  struct stat status{};
  if (::fstat(fd, &status) != 0) return -errno;
  char path[PATH_MAX];
  const ssize_t size = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path);
  if (size < 0) return -errno;
  if (size == 0 || static_cast<std::size_t>(size) == sizeof path || path[0] != '/') return -ENODATA;
  std::string body;
  const int error = call("place", {{"path", std::string_view(path, static_cast<std::size_t>(size))}}, body);
  return error == -EINVAL ? -ENODATA : error;
}

int open_failed(const char* dw, dw_failed_stage_t** handle) {
  std::string inside, body;
  if (const int error = resolve(dw, inside); error != 0) return error;
  if (const int error = call("failed", {{"path", inside}}, body); error != 0) return error;
  auto opened = std::make_unique<dw_failed_stage>();
  for (std::string_view left = body; !left.empty();) {
    std::string_view texts[2];
    for (auto& text : texts) {
      const auto end = left.find('\0');
      if (end == std::string_view::npos) return -EIO;
      text = left.substr(0, end);
      left.remove_prefix(end + 1);
    }
    int number = 0;
    std::from_chars(texts[1].data(), texts[1].data() + texts[1].size(), number);
    opened->stages.emplace_back(texts[0], number);
  }
  *handle = opened.release();
  return 0;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int dw_stage_file_in(const char* dw_file, const char* pfs_file) {
  return guarded([&] { return stage_in(dw_file, pfs_file, file); });
}

int dw_stage_file_out(const char* dw_file, const char* pfs_file, dw_stage_type type) {
  return guarded([&] { return stage_out(dw_file, pfs_file, type, file); });
}

int dw_stage_directory_in(const char* dw_dir, const char* pfs_dir) {
  return guarded([&] { return stage_in(dw_dir, pfs_dir, directory); });
}

int dw_stage_directory_out(const char* dw_dir, const char* pfs_dir, dw_stage_type type) {
  return guarded([&] { return stage_out(dw_dir, pfs_dir, type, directory); });
}

int dw_stage_list_in(const char* dw_dir, const char** pfs_list) {
  return guarded([&] {
    return for_each(pfs_list, [&](const char* pfs_file) {
      std::string inside;
      if (const int error = name_below(dw_dir, pfs_file, inside); error != 0) return error;
      return stage_in(inside.c_str(), pfs_file, file);
    });
  });
}

int dw_stage_list_out(const char** dw_list, const char* pfs_dir, dw_stage_type type) {
  return guarded([&] {
    const bool names_no_target = type == DW_REVOKE_STAGE_AT_JOB_END || type == DW_ACTIVATE_DEFERRED_STAGE;
    return for_each(dw_list, [&](const char* dw_file) {
      if (names_no_target) return stage_out(dw_file, nullptr, type, file);
      std::string outside;
      if (const int error = name_below(pfs_dir, dw_file, outside); error != 0) return error;
      return stage_out(dw_file, outside.c_str(), type, file);
    });
  });
}

int dw_query_file_stage(const char* dw_file, int* complete, int* pending, int* deferred, int* failed) {
  return queried(complete, pending, deferred, failed, [&](Counts& counts) { return query(dw_file, file, counts); });
}

int dw_query_directory_stage(const char* dw_dir, int* complete, int* pending, int* deferred, int* failed) {
  return queried(complete, pending, deferred, failed, [&](Counts& counts) { return query(dw_dir, directory, counts); });
}

int dw_query_list_stage(const char** dw_list, int* complete, int* pending, int* deferred, int* failed) {
  return queried(complete, pending, deferred, failed, [&](Counts& counts) {
    return for_each(dw_list, [&](const char* dw_file) { return query(dw_file, file, counts); });
  });
}

int dw_wait_file_stage(const char* dw_file) {
  return guarded([&] { return until_over("wait", dw_file, file); });
}

int dw_wait_directory_stage(const char* dw_dir) {
  return guarded([&] { return until_over("wait", dw_dir, directory); });
}

int dw_wait_list_stage(const char** dw_list) {
  return guarded([&] {
    // All are waited for, whichever fails.
    int first = 0;
    const int error = for_each(dw_list, [&](const char* dw_file) {
      const int one = until_over("wait", dw_file, file);
      if (first == 0) first = one;
      return 0;
    });
    return error != 0 ? error : first;
  });
}

int dw_terminate_file_stage(const char* dw_file) {
  return guarded([&] { return until_over("terminate", dw_file, file); });
}

int dw_terminate_directory_stage(const char* dw_dir) {
  return guarded([&] { return until_over("terminate", dw_dir, directory); });
}

int dw_terminate_list_stage(const char** dw_list) {
  return guarded(
      [&] { return for_each(dw_list, [&](const char* dw_file) { return until_over("terminate", dw_file, file); }); });
}

int dw_set_stage_concurrency(const char* dw_instance_path, unsigned int concurrent_stages) {
  return guarded([&] {
    std::string inside, body;
    if (concurrent_stages == 0) return -EINVAL;
    if (const int error = resolve(dw_instance_path, inside); error != 0) return error;
    return call("concurrency", {{"path", inside}, {"stages", std::to_string(concurrent_stages)}}, body);
  });
}

int dw_open_failed_stage(const char* dw_instance_path, dw_failed_stage_t** handle) {
  if (handle == nullptr) return -EINVAL;
  return guarded([&] { return open_failed(dw_instance_path, handle); });
}

int dw_read_failed_stage(dw_failed_stage_t* handle, char* path, int path_size, int* ret_errno) {
  if (handle == nullptr || path == nullptr || path_size <= 0 || ret_errno == nullptr) return -EINVAL;
  if (handle->at == handle->stages.size()) return -ENOENT;
  const auto& [name, number] = handle->stages[handle->at];
  if (name.size() >= static_cast<std::size_t>(path_size)) return -ERANGE;
  std::memcpy(path, name.c_str(), name.size() + 1);
  *ret_errno = number;
  ++handle->at;
  return 0;
}

int dw_close_failed_stage(dw_failed_stage_t* handle) {
  if (handle == nullptr) return -EINVAL;
  delete handle;
  return 0;
}

int dw_get_stripe_configuration(int fd, int* stripe_size, int* stripe_width, int* starting_index) {
  if (stripe_size == nullptr || stripe_width == nullptr || starting_index == nullptr) return -EINVAL;
  return guarded([&] {
    if (const int error = check_place(fd); error != 0) return error;
    *stripe_size = stripe_bytes;
    *stripe_width = 1;
    *starting_index = 0;
    return 0;
  });
}

int dw_set_stripe_configuration(int fd, int stripe_size, int stripe_width) {
  if (stripe_size <= 0 || stripe_width <= 0) return -EINVAL;
  return guarded([&] { return check_place(fd); });
}

char* dw_get_mds_path(const char* dw_root, uint64_t) {
  return dw_root == nullptr ? nullptr : ::strdup(dw_root);
}

char* dw_get_accounting_data_json(const char* path, int* ecode) {
  char* text = nullptr;
  const int error = guarded([&] {
    std::string inside, body;
    if (const int wrong = resolve(path, inside); wrong != 0) return wrong;
    if (const int wrong = call("accounting", {{"path", inside}}, body); wrong != 0) return wrong;
    text = ::strdup(body.c_str());
    return text == nullptr ? -ENOMEM : 0;
  });
  if (ecode != nullptr) *ecode = error;
  return text;
}

int dw_wait_sync_complete(int) {
  return -EOPNOTSUPP;
}

}  // extern "C"
#pragma GCC visibility pop
