// SPDX-License-Identifier: Apache-2.0
#include "storage/files_access.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <memory>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include <forebay/admin.h>

#include "base/descriptor.h"
#include "base/return_error.h"
#include "base/system_error.h"
#include "storage/access_list.h"

namespace forebay::storage {
namespace {

constexpr std::size_t depth_max = 256;

/// What the record says of each user and group.
struct Shares {
  std::uint32_t owner = 0;
  std::uint32_t owning_group = 0;
  std::map<std::uint32_t, Rights> users;   ///< but for the owner
  std::map<std::uint32_t, Rights> groups;  ///< but for the owner's
  Rights of_owning_group = Rights::write;

  explicit Shares(const reservation::ReservationT& record) : owner(record.owner_uid), owning_group(record.owner_gid) {
    for (const auto& share : record.shares) {
      const auto rights = static_cast<Rights>(share->rights);
      if (static_cast<Share::Kind>(share->kind) == Share::Kind::user) {
        users[share->id] = rights;
      } else if (share->id == owning_group) {
        of_owning_group = rights;
      } else {
        groups[share->id] = rights;
      }
    }
  }

  /// Groups that may do something.
  std::map<std::uint32_t, Rights> groups_with_rights() const {
    std::map<std::uint32_t, Rights> found = groups;
    found[owning_group] = of_owning_group;
    std::erase_if(found, [](const auto& entry) { return entry.second == Rights::none; });
    return found;
  }
};

AccessList::Bits bits_of(Rights rights, bool enter) {
  const AccessList::Bits execute = enter ? 1 : 0;
  if (rights == Rights::none) return 0;
  return static_cast<AccessList::Bits>((rights == Rights::read ? 4 : 6) | execute);
}

class Walk {
 public:
  explicit Walk(const Shares& shares) : shares_(shares) {}

  Result<void> run(const std::string& files) {
    Descriptor top(::open(files.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    struct stat status{};
    if (!top.valid() || ::fstat(top.get(), &status) != 0) return system_error(errno, "cannot open files/", files);
    device_ = status.st_dev;
    path_ = files;
    // From the top: where rights are taken away, the first list closes the door.
    return directory(std::move(top), status, 0);
  }

 private:
  Result<void> directory(Descriptor descriptor, const struct stat& status, std::size_t depth) {
    if (depth == depth_max)
      return fail(ErrorCode::unsupported, fmt::format("folders are nested deeper than {}", depth_max), path_);
    RETURN_IF_ERROR(give(descriptor.get(), status, depth == 0));
    const int number = descriptor.get();
    const std::unique_ptr<DIR, int (*)(DIR*)> entries(::fdopendir(number), ::closedir);
    if (!entries) return system_error(errno, "cannot list a folder", path_);
    (void)descriptor.release();
    while (true) {
      errno = 0;
      const dirent* entry = ::readdir(entries.get());
      if (entry == nullptr && errno != 0) return system_error(errno, "cannot list a folder", path_);
      if (entry == nullptr) return {};
      const std::string_view name = entry->d_name;
      if (name == "." || name == "..") continue;
      const std::size_t length = path_.size();
      path_.append("/").append(name);
      RETURN_IF_ERROR(below(number, entry->d_name, depth));
      path_.resize(length);
    }
  }

  Result<void> below(int parent, const char* name, std::size_t depth) {
    struct stat status{};
    // What is no file and no folder is not opened: a device or a pipe may not like it.
    if (::fstatat(parent, name, &status, AT_SYMLINK_NOFOLLOW) != 0 || !concerns(status)) return {};
    Descriptor descriptor(::openat(parent, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    // Gone, or another one by now, or a file that this user keeps from the server.
    if (!descriptor.valid() && (errno == ENOENT || errno == ELOOP || errno == EACCES || errno == ENXIO)) return {};
    if (!descriptor.valid() || ::fstat(descriptor.get(), &status) != 0)
      return system_error(errno, "cannot open what lies in files/", path_);
    if (!concerns(status)) return {};
    if (S_ISDIR(status.st_mode)) return directory(std::move(descriptor), status, depth + 1);
    return give(descriptor.get(), status, false);
  }

  bool concerns(const struct stat& status) const {
    if (status.st_dev != device_) return false;
    if (S_ISDIR(status.st_mode)) return true;
    // Somebody may have linked another user's file into the tree.
    return S_ISREG(status.st_mode) && (status.st_nlink == 1 || status.st_uid == shares_.owner);
  }

  Result<void> give(int descriptor, const struct stat& status, bool top) {
    ASSIGN_OR_RETURN(auto known, AccessList::read(descriptor, AccessList::Kind::access));
    const bool enter = S_ISDIR(status.st_mode) || (status.st_mode & S_IXUSR) != 0;
    AccessList list = known.value_or(AccessList::of_mode(status.st_mode));
    const AccessList::Bits owning = bits_of(shares_.of_owning_group, enter);
    if (top) {
      list.other = 0;
      list.group = status.st_gid == shares_.owning_group ? owning : 0;
      if (status.st_gid != shares_.owning_group) list.groups[shares_.owning_group] = owning;
    } else {
      // The owner's group keeps what the file's owner gave it, at most.
      if (status.st_gid == shares_.owning_group) list.group &= owning;
      if (const auto entry = list.groups.find(shares_.owning_group); entry != list.groups.end())
        entry->second &= owning;
    }
    for (const auto& [id, rights] : shares_.users) list.users[id] = bits_of(rights, enter);
    for (const auto& [id, rights] : shares_.groups) list.groups[id] = bits_of(rights, enter);
    // What others made in the owner's reservation is the owner's to use.
    if (status.st_uid != shares_.owner) list.users[shares_.owner] = bits_of(Rights::write, enter);
    RETURN_IF_ERROR(write(list, descriptor, AccessList::Kind::access));
    if (!S_ISDIR(status.st_mode)) return {};
    AccessList later;
    later.owner = 7;
    later.users[shares_.owner] = 7;
    for (const auto& [id, rights] : shares_.users) later.users[id] = bits_of(rights, true);
    // A file belongs to its maker's group, which need not be the owner's.
    later.groups[shares_.owning_group] = bits_of(shares_.of_owning_group, true);
    for (const auto& [id, rights] : shares_.groups) later.groups[id] = bits_of(rights, true);
    return write(later, descriptor, AccessList::Kind::by_default);
  }

  Result<void> write(const AccessList& list, int descriptor, AccessList::Kind kind) const {
    auto written = list.write(descriptor, kind);
    // A server that is not root cannot open what others made, but they got the defaults of their folder.
    if (!written && written.error().code == ErrorCode::permission_denied && ::geteuid() != 0) return {};
    if (!written) written.error().where = path_;
    return written;
  }

  const Shares& shares_;
  dev_t device_ = 0;
  std::string path_;
};

}  // namespace

Result<void> check_files_access(const reservation::ReservationT& record, const std::string& files) {
  ASSIGN_OR_RETURN(const bool supported, AccessList::supported(files));
  if (supported) return {};
  const Shares shares(record);
  const auto groups = shares.groups_with_rights();
  struct stat status{};
  if (::lstat(files.c_str(), &status) != 0) return system_error(errno, "cannot look at files/", files);
  // Where the server could not give files/ to the owner, they are one more who needs an entry.
  if (shares.users.empty() && groups.size() <= 1 && status.st_uid == shares.owner) return {};
  std::string what =
      "the file system of files/ has no POSIX access lists, so one group can have rights, and no single user";
  if (groups.size() > 1)
    what +=
        fmt::format("; take them from the group that has them first (`forebay share {} --group {} --rights none`)",
                    record.name, shares.of_owning_group == Rights::none ? groups.begin()->first : shares.owning_group);
  return fail(ErrorCode::unsupported, what + ", or put the root on a file system that has access lists", files);
}

Result<void> set_files_access(const reservation::ReservationT& record, const std::string& files) {
  const Shares shares(record);
  ASSIGN_OR_RETURN(const bool supported, AccessList::supported(files));
  if (supported) return Walk(shares).run(files);
  const auto groups = shares.groups_with_rights();
  const std::uint32_t group = groups.empty() ? shares.owning_group : groups.begin()->first;
  const Rights rights = groups.empty() ? Rights::none : groups.begin()->second;
  const auto mode = static_cast<mode_t>(0700 | bits_of(rights, true) << 3);
  struct stat status{};
  if (::lstat(files.c_str(), &status) != 0) return system_error(errno, "cannot look at files/", files);
  // Closed first: nobody of the one group comes in by what the other may do.
  if (status.st_gid != group && (::chmod(files.c_str(), 0700) != 0 || ::lchown(files.c_str(), ~uid_t{0}, group) != 0))
    return system_error(errno, fmt::format("cannot give files/ to group {}", group), files);
  if (::chmod(files.c_str(), mode) != 0) return system_error(errno, "cannot set the mode of files/", files);
  return {};
}

}  // namespace forebay::storage
