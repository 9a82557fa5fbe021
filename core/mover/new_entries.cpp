// SPDX-License-Identifier: Apache-2.0
#include "mover/new_entries.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <utility>

#include "base/fail_point.h"
#include "base/joined_checksum.h"
#include "base/return_error.h"
#include "base/system_error.h"
#include "mover/file_system.h"
#include "mover/kept_files.h"

namespace forebay::mover {
namespace {

constexpr std::uint64_t large_bytes = std::uint64_t{64} << 20;
constexpr std::uint64_t range_bytes = std::uint64_t{32} << 20;
constexpr std::size_t batch_files_max = 65536;
// Where each file is synced for itself it stays open until then.
constexpr std::size_t batch_open_max = 256;
constexpr std::size_t few_files = 16;  // so many are synced one by one, rather than the whole file system
constexpr mode_t building_mode = 0700;

std::string directory_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

std::string name_of(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

/// The directory `path` below `folder`; itself if it is empty.
Descriptor open_directory(int folder, const std::string& path) {
  return open_below(folder, path.empty() ? "." : path, O_RDONLY | O_DIRECTORY, Mounts::refused);
}

std::string descriptor_path(int descriptor) {
  return "/proc/self/fd/" + std::to_string(descriptor);
}

}  // namespace

/// One that is copied in ranges; the thread that does the last one finishes it.
struct NewEntries::LargeFile {
  SourceFile source;
  Descriptor target;
  std::string built;
  std::string shown;
  bool sparse = false;
  std::vector<std::uint32_t> checksums;
  std::atomic<std::size_t> left = 0;
  std::atomic<bool> read_back = true;  ///< each range was; else the whole file is at the end

  Range range(std::size_t number) const {
    const std::uint64_t offset = number * range_bytes;
    return {offset, std::min(range_bytes, source.size() - offset)};
  }
};

NewEntries::NewEntries(Work& work, const OwnFolder& folder, int target_top)
    : work_(work),
      folder_(folder),
      target_top_(target_top),
      syncs_whole_(syncs_whole(folder.descriptor())),
      batch_max_(syncs_whole_ ? batch_files_max : batch_open_max),
      limit_(ListLimit::of(folder.descriptor())) {}

NewEntries::~NewEntries() {
  // Tasks work with this object.
  if (!finished_) work_.pool.drop();
}

Result<EntryKind> NewEntries::add(std::shared_ptr<DirectoryPair> pair, const std::string& name,
                                  const std::string& built, const std::string& shown) {
  RETURN_IF_ERROR(work_.check_not_stopped());
  struct stat status{};
  {
    const ActingAs acting(work_.source.user);
    if (::fstatat(pair->source.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno == ENOENT) return changed(work_.source_name(shown));
      return system_error(errno, "cannot look at", work_.source_name(shown));
    }
  }
  auto into = std::make_shared<DirectoryPair>();
  into->source = Descriptor(::fcntl(pair->source.get(), F_DUPFD_CLOEXEC, 0));
  into->target = Descriptor(::fcntl(folder_.descriptor(), F_DUPFD_CLOEXEC, 0));
  if (!into->source.valid() || !into->target.valid())
    return system_error(errno, "cannot open", work_.source_name(shown));
  if (S_ISDIR(status.st_mode)) {
    RETURN_IF_ERROR(build_tree(std::move(into), name, built, shown));
    return EntryKind::directory;
  }
  if (S_ISLNK(status.st_mode)) {
    RETURN_IF_ERROR(copy_link(into->source.get(), name, folder_.descriptor(), built, shown));
    return EntryKind::link;
  }
  if (!S_ISREG(status.st_mode)) return not_stageable(work_.source_name(shown));
  if (!is_later_link(status, name, into, built, shown)) submit_file(into, name, built, built, shown);
  return EntryKind::file;
}

Result<void> NewEntries::build_tree(std::shared_ptr<DirectoryPair> pair, const std::string& name,
                                    const std::string& built, const std::string& shown) {
  TwoTrees walk(work_);
  RETURN_IF_ERROR(enter_directory(walk, pair, name, built, "", built, shown, true));
  const std::shared_ptr<DirectoryPair> top = walk.here().pair;
  while (!walk.ended()) {
    WalkLevel& level = walk.here();
    const std::string at = level.path.empty() ? built : built + "/" + level.path;
    const std::string at_shown = level.path.empty() ? shown : shown.empty() ? level.path : shown + "/" + level.path;
    if (level.next == level.names.size()) {
      ASSIGN_OR_RETURN(Status status, [&] {
        const ActingAs acting(work_.source.user);
        return read_status(level.pair->source.get(), work_.carries_lists, work_.source_name(at_shown));
      }());
      directories_.push_back({at, at_shown, std::move(status)});
      RETURN_IF_ERROR(walk.leave());
      continue;
    }
    const std::string child = level.names[level.next++];
    RETURN_IF_ERROR(build_child(walk, child, at + "/" + child, at_shown.empty() ? child : at_shown + "/" + child, top));
    bool full = false;
    {
      const std::lock_guard lock(mutex_);
      full = batch_.size() + later_links_.size() >= batch_max_;
    }
    if (full || directories_.size() >= batch_max_) RETURN_IF_ERROR(settle(false));
  }
  return {};
}

Result<void> NewEntries::build_child(TwoTrees& walk, const std::string& name, const std::string& built,
                                     const std::string& shown, const std::shared_ptr<DirectoryPair>& top) {
  RETURN_IF_ERROR(work_.check_not_stopped());
  const std::shared_ptr<DirectoryPair> pair = walk.here().pair;
  const std::string path = walk.here().child(name);
  if (is_own_folder_name(name)) {
    work_.report.note("left out, since a stage that was interrupted made it: " + work_.source_name(shown));
    return {};
  }
  struct stat status{};
  {
    const ActingAs acting(work_.source.user);
    if (::fstatat(pair->source.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno == ENOENT) return changed(work_.source_name(shown));
      return system_error(errno, "cannot look at", work_.source_name(shown));
    }
  }
  if (S_ISDIR(status.st_mode)) return enter_directory(walk, pair, name, name, path, built, shown, false);
  if (S_ISLNK(status.st_mode)) return copy_link(pair->source.get(), name, pair->target.get(), name, shown);
  if (!S_ISREG(status.st_mode)) return not_stageable(work_.source_name(shown));
  if (!is_later_link(status, path, top, built, shown)) submit_file(pair, name, name, built, shown);
  return {};
}

Result<void> NewEntries::enter_directory(TwoTrees& walk, const std::shared_ptr<DirectoryPair>& pair,
                                         const std::string& name, const std::string& target_name,
                                         const std::string& path, const std::string& built, const std::string& shown,
                                         bool is_top) {
  auto next = std::make_shared<DirectoryPair>();
  ASSIGN_OR_RETURN(next->source, open_source_directory(work_, pair->source.get(), name, shown));
  {
    const ActingAs acting(work_.target.user);
    const std::string where = work_.target_name(shown);
    bool found = false;
    if (::mkdirat(pair->target.get(), target_name.c_str(), building_mode) != 0) {
      if (errno != EEXIST) return system_error(errno, "cannot make the directory", where);
      found = true;
    }
    next->target = open_below(pair->target.get(), target_name, O_RDONLY | O_DIRECTORY, Mounts::refused);
    if (!next->target.valid() && found) {
      // An earlier run left something else there, or a directory that is closed already.
      RETURN_IF_ERROR(remove_entry(pair->target.get(), target_name, where));
      if (::mkdirat(pair->target.get(), target_name.c_str(), building_mode) != 0)
        return system_error(errno, "cannot make the directory", where);
      next->target = open_below(pair->target.get(), target_name, O_RDONLY | O_DIRECTORY, Mounts::refused);
      found = false;
    }
    if (!next->target.valid()) return system_error(errno, "cannot open the directory", where);
    if (found) {
      struct stat there{};
      if (::fstat(next->target.get(), &there) != 0) return system_error(errno, "cannot look at", where);
      if ((there.st_mode & 0700) != 0700 &&
          ::fchmod(next->target.get(), building_mode | (there.st_mode & S_ISGID)) != 0)
        return system_error(errno, "cannot open the directory for writing", where);
    }
    RETURN_IF_ERROR(walk.enter(next, is_top ? "" : path));
    if (found) {
      // What the source does not have (any more) must not come into the tree.
      ASSIGN_OR_RETURN(const std::vector<std::string> names, names_in(next->target.get(), where));
      const std::vector<std::string>& wanted = walk.here().names;
      for (const std::string& there : names)
        if (!std::binary_search(wanted.begin(), wanted.end(), there))
          RETURN_IF_ERROR(remove_entry(next->target.get(), there, where));
    }
  }
  (void)built;
  return {};
}

bool NewEntries::is_later_link(const struct stat& status, const std::string& source_path,
                               const std::shared_ptr<DirectoryPair>& top, const std::string& built,
                               const std::string& shown) {
  const FileIdentity source = FileIdentity::of(status);
  if (status.st_nlink < 2 || work_.links.claim(source, shown)) return false;
  const std::lock_guard lock(mutex_);
  later_links_.push_back({source, source_path, top, built, shown});
  return true;
}

void NewEntries::submit_file(std::shared_ptr<DirectoryPair> pair, std::string name, std::string target_name,
                             std::string built, std::string shown) {
  work_.pool.submit([this, pair = std::move(pair), name = std::move(name), target_name = std::move(target_name),
                     built = std::move(built),
                     shown = std::move(shown)] { return copy_file(*pair, name, target_name, built, shown); });
}

Result<void> NewEntries::copy_file(DirectoryPair& pair, const std::string& name, const std::string& target_name,
                                   const std::string& built, const std::string& shown) {
  RETURN_IF_ERROR(work_.check_not_stopped());
  ASSIGN_OR_RETURN(SourceFile source, SourceFile::open(work_, pair.source.get(), name, shown));
  const struct stat& about = source.status().stat;
  work_.report.begin(shown.empty() ? name : shown);
  Descriptor target;
  {
    const ActingAs acting(work_.target.user);
    const mode_t mode = limit_.of_mode(source.status().mode) | (source.status().attributes.empty() ? 0 : 0200);
    const auto make = [&] {
      return Descriptor(
          ::openat(pair.target.get(), target_name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
    };
    target = make();
    if (!target.valid() && errno == EEXIST) {
      ASSIGN_OR_RETURN(const bool taken, take_over(source, pair.target.get(), target_name, built, shown));
      if (taken) return {};
      RETURN_IF_ERROR(remove_entry(pair.target.get(), target_name, work_.target_name(shown)));
      target = make();
    }
    if (!target.valid()) return system_error(errno, "cannot make the file", work_.target_name(shown));
  }
  if (source.size() >= large_bytes) return copy_large(std::move(source), std::move(target), built, shown);
  const bool sparse = is_sparse(about);
  ASSIGN_OR_RETURN(const std::uint32_t checksum,
                   copy_range(source.descriptor(), target.get(), {0, source.size()}, sparse, work_.advance(),
                              work_.source_name(shown), work_.target_name(shown)));
  if (sparse && ::ftruncate(target.get(), about.st_size) != 0)
    return system_error(errno, "cannot set the size", work_.target_name(shown));
  fail_point("mover.file.copied");
  RETURN_IF_ERROR(source.check_unchanged(work_, shown));
  ASSIGN_OR_RETURN(Made made, complete(source, std::move(target), checksum, built, shown));
  this->made(std::move(made), FileIdentity::of(about), about.st_nlink > 1, false);
  return {};
}

Result<NewEntries::Made> NewEntries::complete(const SourceFile& source, Descriptor target, std::uint32_t checksum,
                                              const std::string& built, const std::string& shown) {
  const std::string where = work_.target_name(shown);
  ASSIGN_OR_RETURN(const struct stat about, look_at(target.get(), where));
  {
    const ActingAs acting(work_.owner.user || work_.owner.group ? nullptr : work_.target.user);
    RETURN_IF_ERROR(set_kept(target.get(), source.status(), shown));
  }
  Made made;
  made.built = built;
  made.shown = shown;
  made.row = {shown, source.size(), modified_ns(source.status().stat), checksum};
  made.target = FileIdentity::of(about);
  if ((limit_.of_mode(source.status().mode) & 0400) == 0) {
    // It could not be opened again to read it.
    if (::fsync(target.get()) != 0) return system_error(errno, "cannot sync", where);
    forget_pages(target.get(), {0, source.size()});
    ASSIGN_OR_RETURN(const std::uint32_t found,
                     checksum_of_range(target.get(), {0, source.size()}, work_.silent_advance(), where));
    if (found != checksum) return reads_differently(where);
    made.verified = true;
  }
  made.descriptor = std::move(target);
  return made;
}

Result<void> NewEntries::set_kept(int descriptor, const Status& status, const std::string& shown) {
  ASSIGN_OR_RETURN(const std::vector<NotKept> lacking,
                   set_status(descriptor, status, limit_, work_.owner, work_.target_name(shown)));
  for (const NotKept what : lacking) work_.report.not_kept(what, shown);
  return {};
}

void NewEntries::made(Made made, FileIdentity source, bool has_links, bool kept) {
  if (has_links) work_.links.put(source, {made.built, false, made.target, made.row});
  work_.report.finished(kept);
  const std::lock_guard lock(mutex_);
  if (syncs_whole_ && descriptors_kept_ >= few_files) {
    made.descriptor.reset();
  } else {
    ++descriptors_kept_;
  }
  batch_.push_back(std::move(made));
}

Result<bool> NewEntries::take_over(SourceFile& source, int directory, const std::string& target_name,
                                   const std::string& built, const std::string& shown) {
  Descriptor there = open_below(directory, target_name, O_RDONLY, Mounts::refused);
  struct stat about{};
  if (!there.valid() || ::fstat(there.get(), &about) != 0) return false;
  if (!S_ISREG(about.st_mode) || about.st_uid != acting_user()) return false;
  if (about.st_nlink > 1 && source.status().stat.st_nlink == 1) return false;
  ASSIGN_OR_RETURN(const std::optional<std::uint32_t> checksum, same_content(work_, source, there.get(), shown));
  if (!checksum) return false;
  work_.report.advance(source.size());
  RETURN_IF_ERROR(source.check_unchanged(work_, shown));
  ASSIGN_OR_RETURN(Made made, complete(source, std::move(there), *checksum, built, shown));
  this->made(std::move(made), FileIdentity::of(source.status().stat), source.status().stat.st_nlink > 1, true);
  return true;
}

Result<void> NewEntries::copy_large(SourceFile source, Descriptor target, const std::string& built,
                                    const std::string& shown) {
  auto file = std::make_shared<LargeFile>();
  file->sparse = is_sparse(source.status().stat);
  file->source = std::move(source);
  file->target = std::move(target);
  file->built = built;
  file->shown = shown;
  // Also where the last range is a hole.
  if (::ftruncate(file->target.get(), file->source.status().stat.st_size) != 0)
    return system_error(errno, "cannot set the size", work_.target_name(shown));
  const std::size_t count = static_cast<std::size_t>((file->source.size() + range_bytes - 1) / range_bytes);
  file->checksums.resize(count);
  file->left = count;
  for (std::size_t number = 0; number < count; ++number)
    work_.pool.submit_from_task([this, file, number]() -> Result<void> {
      RETURN_IF_ERROR(copy_large_range(*file, number));
      return --file->left == 0 ? finish_large(*file) : Result<void>();
    });
  return {};
}

Result<void> NewEntries::copy_large_range(LargeFile& file, std::size_t number) {
  const Range range = file.range(number);
  const std::string where = work_.target_name(file.shown);
  ASSIGN_OR_RETURN(file.checksums[number], copy_range(file.source.descriptor(), file.target.get(), range, file.sparse,
                                                      work_.advance(), work_.source_name(file.shown), where));
  if (!file.read_back) return {};
  constexpr unsigned int flags = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  if (::sync_file_range(file.target.get(), static_cast<off_t>(range.offset), static_cast<off_t>(range.length), flags) !=
      0) {
    if (errno == EIO || errno == ENOSPC || errno == EDQUOT) return system_error(errno, "cannot sync", where);
    file.read_back = false;
    return {};
  }
  forget_pages(file.target.get(), range);
  ASSIGN_OR_RETURN(const std::uint32_t found,
                   checksum_of_range(file.target.get(), range, work_.silent_advance(), where));
  if (found != file.checksums[number]) return reads_differently(where);
  return {};
}

Result<void> NewEntries::finish_large(LargeFile& file) {
  const std::string where = work_.target_name(file.shown);
  std::uint32_t checksum = file.checksums[0];
  for (std::size_t number = 1; number < file.checksums.size(); ++number)
    checksum = joined_checksum(checksum, file.checksums[number], file.range(number).length);
  RETURN_IF_ERROR(file.source.check_unchanged(work_, file.shown));
  const int descriptor = file.target.get();
  if (!file.read_back) {
    if (::fsync(descriptor) != 0) return system_error(errno, "cannot sync", where);
    forget_pages(descriptor, {0, file.source.size()});
    ASSIGN_OR_RETURN(const std::uint32_t found,
                     checksum_of_range(descriptor, {0, file.source.size()}, work_.silent_advance(), where));
    if (found != checksum) return reads_differently(where);
  }
  const struct stat about = file.source.status().stat;
  ASSIGN_OR_RETURN(Made made, complete(file.source, std::move(file.target), checksum, file.built, file.shown));
  made.verified = true;
  if (::fsync(made.descriptor.get()) != 0) return system_error(errno, "cannot sync", where);
  this->made(std::move(made), FileIdentity::of(about), about.st_nlink > 1, false);
  return {};
}

Result<void> NewEntries::copy_link(int source_directory, const std::string& name, int target_directory,
                                   const std::string& target_name, const std::string& shown) {
  std::array<char, PATH_MAX> buffer{};
  struct stat about{};
  std::string text;
  {
    const ActingAs acting(work_.source.user);
    const std::string where = work_.source_name(shown);
    const Descriptor link = open_below(source_directory, name, O_PATH, work_.source.mounts);
    if (!link.valid() || ::fstat(link.get(), &about) != 0 || !S_ISLNK(about.st_mode)) return changed(where);
    const ssize_t size = ::readlinkat(link.get(), "", buffer.data(), buffer.size());
    if (size < 0) return system_error(errno, "cannot read the link", where);
    text.assign(buffer.data(), static_cast<std::size_t>(size));
  }
  const ActingAs acting(work_.target.user);
  const std::string where = work_.target_name(shown);
  if (::symlinkat(text.c_str(), target_directory, target_name.c_str()) != 0) {
    if (errno != EEXIST) return system_error(errno, "cannot make the link", where);
    RETURN_IF_ERROR(remove_entry(target_directory, target_name, where));
    if (::symlinkat(text.c_str(), target_directory, target_name.c_str()) != 0)
      return system_error(errno, "cannot make the link", where);
  }
  const std::array<timespec, 2> times{about.st_atim, about.st_mtim};
  if (::utimensat(target_directory, target_name.c_str(), times.data(), AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == EIO) return system_error(errno, "cannot set the times of the link", where);
    work_.report.not_kept(NotKept::link_times, shown);
  }
  if (work_.owner.user || work_.owner.group) {
    const ActingAs as_root(nullptr);
    if (::fchownat(target_directory, target_name.c_str(), work_.owner.user.value_or(static_cast<uid_t>(-1)),
                   work_.owner.group.value_or(static_cast<gid_t>(-1)), AT_SYMLINK_NOFOLLOW) != 0)
      return system_error(errno, "cannot give it to that owner", where);
  }
  return {};
}

Result<void> NewEntries::finish() {
  RETURN_IF_ERROR(settle(true));
  finished_ = true;
  return {};
}

Result<void> NewEntries::settle(bool last) {
  RETURN_IF_ERROR(work_.pool.wait());
  RETURN_IF_ERROR(make_links());
  RETURN_IF_ERROR(work_.pool.wait());
  // Those that stay open for their owner get modes and times now, to be synced with the files; the others at the end.
  RETURN_IF_ERROR(set_directories(true));
  RETURN_IF_ERROR(sync_batch(last));
  fail_point("mover.batch.synced");
  RETURN_IF_ERROR(verify_batch());
  if (last) RETURN_IF_ERROR(set_directories(false));
  return {};
}

Result<void> NewEntries::make_links() {
  std::vector<LaterLink> links;
  {
    const std::lock_guard lock(mutex_);
    links.swap(later_links_);
  }
  for (const LaterLink& link : links) {
    const std::optional<FirstName> first = work_.links.find(link.source);
    if (!first) return changed(work_.source_name(link.shown));
    RETURN_IF_ERROR(make_link(link, *first));
  }
  return {};
}

Result<void> NewEntries::make_link(const LaterLink& link, const FirstName& first) {
  const std::string where = work_.target_name(link.shown);
  const std::string name = name_of(link.built);
  {
    const ActingAs acting(work_.target.user);
    const Descriptor parent = open_directory(folder_.descriptor(), directory_of(link.built));
    if (!parent.valid()) return system_error(errno, "cannot open the directory", where);
    const Descriptor file = first.published ? open_below(target_top_, first.path, O_PATH, work_.target.mounts)
                                            : open_below(folder_.descriptor(), first.path, O_PATH, Mounts::refused);
    struct stat about{};
    const bool is_it = file.valid() && ::fstat(file.get(), &about) == 0 && FileIdentity::of(about) == first.target;
    bool linked = false;
    if (is_it) {
      linked =
          ::linkat(AT_FDCWD, descriptor_path(file.get()).c_str(), parent.get(), name.c_str(), AT_SYMLINK_FOLLOW) == 0;
      if (!linked && errno == EEXIST) {
        RETURN_IF_ERROR(remove_entry(parent.get(), name, where));
        linked =
            ::linkat(AT_FDCWD, descriptor_path(file.get()).c_str(), parent.get(), name.c_str(), AT_SYMLINK_FOLLOW) == 0;
      }
    }
    if (linked) {
      work_.report.advance(first.row.size_bytes);
      work_.report.finished(false);
      FileRow row = first.row;
      row.path = link.shown;
      link_rows_.push_back(std::move(row));
      return {};
    }
    if (is_it) {
      if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS && errno != EMLINK && errno != EXDEV &&
          errno != ENOENT)
        return system_error(errno, "cannot make a second name", where);
      work_.report.not_kept(NotKept::hard_links, link.shown);
    }
  }
  // A file of its own, where the target has no second names, or the first one was replaced by somebody.
  auto pair = std::make_shared<DirectoryPair>();
  pair->source = Descriptor(::fcntl(link.top->source.get(), F_DUPFD_CLOEXEC, 0));
  {
    const ActingAs acting(work_.target.user);
    pair->target = open_directory(folder_.descriptor(), directory_of(link.built));
  }
  if (!pair->source.valid() || !pair->target.valid()) return system_error(errno, "cannot open the directory", where);
  work_.pool.submit(
      [this, pair, link, name] { return copy_file(*pair, link.source_path, name, link.built, link.shown); });
  return {};
}

Result<void> NewEntries::sync_batch(bool last) {
  const std::lock_guard lock(mutex_);
  const std::string& where = work_.target.text;
  const bool all_open =
      std::all_of(batch_.begin(), batch_.end(), [](const Made& made) { return made.descriptor.valid(); });
  if (syncs_whole_ && !(last && all_open && batch_.size() <= few_files && !directories_set_)) {
    if (::syncfs(folder_.descriptor()) != 0) return system_error(errno, "cannot sync", where);
  } else {
    for (const Made& made : batch_)
      (void)::sync_file_range(made.descriptor.get(), 0, 0, SYNC_FILE_RANGE_WRITE);  // fsync tells what fails
    for (const Made& made : batch_)
      if (::fsync(made.descriptor.get()) != 0) return system_error(errno, "cannot sync", work_.target_name(made.shown));
    if (last && ::fsync(folder_.descriptor()) != 0) return system_error(errno, "cannot sync", where);
  }
  for (Made& made : batch_) made.descriptor.reset();
  descriptors_kept_ = 0;
  directories_set_ = false;
  return {};
}

Result<void> NewEntries::verify_batch() {
  constexpr std::size_t share = 64;
  for (std::size_t begin = 0; begin < batch_.size(); begin += share) {
    const std::size_t end = std::min(batch_.size(), begin + share);
    work_.pool.submit([this, begin, end]() -> Result<void> {
      for (std::size_t place = begin; place < end; ++place)
        if (!batch_[place].verified) RETURN_IF_ERROR(verify(batch_[place]));
      return {};
    });
  }
  RETURN_IF_ERROR(work_.pool.wait());
  std::vector<FileRow> rows;
  rows.swap(link_rows_);
  for (Made& made : batch_) rows.push_back(std::move(made.row));
  std::sort(rows.begin(), rows.end(), [](const FileRow& left, const FileRow& right) { return left.path < right.path; });
  for (const FileRow& row : rows) work_.report.row(row);
  batch_.clear();
  return {};
}

Result<void> NewEntries::verify(Made& made) {
  const ActingAs acting(work_.target.user);
  const std::string where = work_.target_name(made.shown);
  const Descriptor file = open_below(folder_.descriptor(), made.built, O_RDONLY, Mounts::refused);
  if (!file.valid()) return system_error(errno, "cannot read back", where);
  ASSIGN_OR_RETURN(const struct stat about, look_at(file.get(), where));
  const auto size = static_cast<std::uint64_t>(about.st_size);
  if (FileIdentity::of(about) != made.target || size != made.row.size_bytes) return reads_differently(where);
  forget_pages(file.get(), {0, size});
  ASSIGN_OR_RETURN(const std::uint32_t found, checksum_of_range(file.get(), {0, size}, work_.silent_advance(), where));
  if (found != made.row.checksum) return reads_differently(where);
  return {};
}

Result<void> NewEntries::set_directories(bool open_ones) {
  std::vector<MadeDirectory> later;
  for (MadeDirectory& directory : directories_) {
    const bool is_open = (limit_.of_mode(directory.status.mode) & 0500) == 0500;
    if (is_open != open_ones) {
      later.push_back(std::move(directory));
      continue;
    }
    RETURN_IF_ERROR(set_directory(directory));
    directories_set_ = true;
  }
  directories_ = std::move(later);
  return {};
}

Result<void> NewEntries::set_directory(const MadeDirectory& directory) {
  const std::string where = work_.target_name(directory.shown);
  Descriptor opened;
  {
    const ActingAs acting(work_.target.user);
    opened = open_directory(folder_.descriptor(), directory.built);
    if (!opened.valid()) return system_error(errno, "cannot open the directory", where);
  }
  const bool is_top = directory.built.find('/') == std::string::npos;
  Status status = directory.status;
  const bool is_late = is_top && (limit_.of_mode(status.mode) & 0300) != 0300;
  if (is_late) status.mode |= 0700;
  {
    const ActingAs acting(work_.owner.user || work_.owner.group ? nullptr : work_.target.user);
    RETURN_IF_ERROR(set_kept(opened.get(), status, directory.shown));
  }
  if (!syncs_whole_ || (limit_.of_mode(directory.status.mode) & 0500) != 0500) {
    if (::fsync(opened.get()) != 0) return system_error(errno, "cannot sync", where);
  }
  if (is_late) late_modes_.insert_or_assign(directory.built, LateMode{std::move(opened), directory.status});
  return {};
}

}  // namespace forebay::mover
