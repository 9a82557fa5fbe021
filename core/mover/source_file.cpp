// SPDX-License-Identifier: Apache-2.0
#include "mover/source_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>

#include "base/return_error.h"
#include "base/system_error.h"
#include "mover/file_system.h"

namespace forebay::mover {
namespace {

constexpr std::chrono::milliseconds look_again(200);  // whether the stage was told to stop

tl::unexpected<Error> written(const std::string& name, ErrorCode code = ErrorCode::busy) {
  return fail(code,
              "a program has this file open for writing, so a copy would not be whole; close it there, then run the "
              "same command again",
              name);
}

/// Returns when no program has the file open for writing; busy if nobody wants to wait. Refused if that takes too long,
/// for trying again would not help; also where other files have taken all of the time.
Result<void> await_closed(Work& work, int descriptor, const std::string& where) {
  if (!work.closed_until) return written(where);
  const Descriptor events(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  // Without it (all of a user's are taken) the file is looked at again and again.
  if (events.valid()) (void)::inotify_add_watch(events.get(), path.c_str(), IN_CLOSE_WRITE);
  while (writers_of(descriptor, true) == Writers::some) {
    RETURN_IF_ERROR(work.check_not_stopped());
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(*work.closed_until - std::chrono::steady_clock::now());
    if (left.count() <= 0) return written(where, ErrorCode::refused);
    pollfd pending{events.get(), POLLIN, 0};
    (void)::poll(&pending, 1, static_cast<int>(std::min(left, look_again).count()));
    std::array<std::byte, 4096> buffer;
    if (events.valid()) (void)!::read(events.get(), buffer.data(), buffer.size());
  }
  return {};
}

}  // namespace

tl::unexpected<Error> not_stageable(const std::string& name) {
  return fail(ErrorCode::unsupported, "only files, directories and symbolic links can be staged; this is neither",
              name);
}

Result<SourceFile> SourceFile::open(Work& work, int directory, const std::string& name, const std::string& shown) {
  const ActingAs acting(work.source.user);
  SourceFile file;
  const std::string where = work.source_name(shown);
  file.descriptor_ = open_below(directory, name, O_RDONLY, work.source.mounts);
  if (!file.descriptor_.valid()) {
    // Somebody holds a lease on it: they write, or are about to.
    if (errno == EWOULDBLOCK) return written(where);
    if (errno == ELOOP || errno == ENOTDIR || errno == ENOENT) return changed(where);
    if (errno == ENXIO) return not_stageable(where);
    if (errno == EXDEV)
      return fail(ErrorCode::permission_denied, "another file system is mounted there, inside the reservation's files",
                  where);
    return system_error(errno, "cannot open", where);
  }
  ASSIGN_OR_RETURN(file.status_, read_status(file.descriptor_.get(), work.carries_lists, where));
  if (!S_ISREG(file.status_.stat.st_mode)) return not_stageable(where);
  file.local_ = is_local(file.descriptor_.get());
  auto probed = file.probe(work, shown, true);
  if (!probed && probed.error().code == ErrorCode::busy) {
    RETURN_IF_ERROR(await_closed(work, file.descriptor_.get(), where));
    // It was being written until now.
    ASSIGN_OR_RETURN(file.status_, read_status(file.descriptor_.get(), work.carries_lists, where));
    probed = file.probe(work, shown, true);
  }
  RETURN_IF_ERROR(probed);
  return file;
}

Result<void> SourceFile::check_unchanged(Work& work, const std::string& shown) const {
  const ActingAs acting(work.source.user);
  ASSIGN_OR_RETURN(const struct stat now, look_at(descriptor_.get(), work.source_name(shown)));
  if (now.st_size != status_.stat.st_size || modified_ns(now) != modified_ns(status_.stat))
    return changed(work.source_name(shown));
  return probe(work, shown, false);
}

Result<void> SourceFile::probe(Work& work, const std::string& shown, bool tell) const {
  switch (writers_of(descriptor_.get(), local_)) {
    case Writers::some:
      return written(work.source_name(shown));
    case Writers::unknown:
      if (work.must_know_writers)
        return fail(ErrorCode::unsupported,
                    "nobody can tell here whether a program has this file open for writing (the file system has no "
                    "leases, or the file is another user's); use --complete rename or marker=NAME",
                    work.source_name(shown));
      if (tell) work.report.unprobed(shown);
      return {};
    case Writers::none:
      return {};
  }
  return {};
}

}  // namespace forebay::mover
