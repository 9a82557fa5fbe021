// SPDX-License-Identifier: Apache-2.0
#include "mover/source_file.h"

#include <fcntl.h>

#include <cerrno>

#include "base/return_error.h"
#include "base/system_error.h"
#include "mover/file_system.h"

namespace forebay::mover {
namespace {

tl::unexpected<Error> written(const std::string& name) {
  return fail(ErrorCode::busy,
              "a program has this file open for writing, so a copy would not be whole; close it there, then run the "
              "same command again",
              name);
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
  RETURN_IF_ERROR(file.probe(work, shown, true));
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
      if (tell) work.report.unprobed(shown);
      return {};
    case Writers::none:
      return {};
  }
  return {};
}

}  // namespace forebay::mover
