// SPDX-License-Identifier: Apache-2.0
#include "mover/status.h"

#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/file_system_user.h"
#include "base/return_error.h"
#include "base/system_error.h"

namespace forebay::mover {
namespace {

static_assert(std::endian::native == std::endian::little, "access lists are little-endian");

constexpr const char* access_list = "system.posix_acl_access";
constexpr const char* default_list = "system.posix_acl_default";
constexpr std::size_t value_bytes_max = 65536;  // the kernel's own limit

/// As the kernel keeps it in the attribute (linux/posix_acl_xattr.h).
struct ListEntry {
  std::uint16_t tag;
  std::uint16_t bits;
  std::uint32_t id;
};
static_assert(sizeof(ListEntry) == 8);
constexpr std::size_t list_header_bytes = 4;
constexpr std::uint16_t tag_owner = 0x01;
constexpr std::uint16_t tag_group = 0x04;
constexpr std::uint16_t tag_mask = 0x10;
constexpr std::uint16_t tag_other = 0x20;

struct ListBits {
  mode_t owner = 7;
  mode_t group = 7;
  std::optional<mode_t> mask;
  mode_t other = 7;
};

std::optional<ListBits> bits_of(std::string_view list) {
  if (list.size() < list_header_bytes || (list.size() - list_header_bytes) % sizeof(ListEntry) != 0)
    return std::nullopt;
  ListBits bits;
  for (std::size_t place = list_header_bytes; place < list.size(); place += sizeof(ListEntry)) {
    ListEntry entry{};
    std::memcpy(&entry, list.data() + place, sizeof entry);
    const mode_t allowed = entry.bits & 7;
    if (entry.tag == tag_owner) bits.owner = allowed;
    if (entry.tag == tag_group) bits.group = allowed;
    if (entry.tag == tag_mask) bits.mask = allowed;
    if (entry.tag == tag_other) bits.other = allowed;
  }
  return bits;
}

/// The value; nothing if there is none, or it cannot be read.
std::optional<std::string> attribute(int descriptor, const char* name) {
  std::array<char, 1024> small{};
  ssize_t size = ::fgetxattr(descriptor, name, small.data(), small.size());
  if (size >= 0) return std::string(small.data(), static_cast<std::size_t>(size));
  if (errno != ERANGE) return std::nullopt;
  std::string large(value_bytes_max, '\0');
  size = ::fgetxattr(descriptor, name, large.data(), large.size());
  if (size < 0) return std::nullopt;
  large.resize(static_cast<std::size_t>(size));
  return large;
}

/// Whether the system said that the target cannot hold it, or that this user may not set it; else something failed.
bool cannot_be_held(int number) noexcept {
  constexpr std::array numbers{EPERM, EACCES, EOPNOTSUPP, ENOSYS, EINVAL, ERANGE, E2BIG, ENOSPC, EDQUOT, EROFS};
  return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
}

/// What is lacking after a call that failed.
Result<void> note_lacking(std::vector<NotKept>& lacking, NotKept what, const std::string& where) {
  if (!cannot_be_held(errno)) return system_error(errno, std::string("cannot set ") + description_of(what), where);
  if (lacking.empty() || lacking.back() != what) lacking.push_back(what);
  return {};
}

}  // namespace

Result<struct stat> look_at(int descriptor, const std::string& where) {
  struct stat status{};
  if (::fstat(descriptor, &status) != 0) return system_error(errno, "cannot look at", where);
  return status;
}

std::int64_t modified_ns(const struct stat& status) noexcept {
  return static_cast<std::int64_t>(status.st_mtim.tv_sec) * 1'000'000'000 + status.st_mtim.tv_nsec;
}

Result<Status> read_status(int descriptor, bool with_lists, const std::string& where) {
  Status status;
  ASSIGN_OR_RETURN(status.stat, look_at(descriptor, where));
  // Between a user's own ends only.
  with_lists = with_lists && status.stat.st_uid == acting_user();
  status.mode = status.stat.st_mode & (S_ISDIR(status.stat.st_mode) ? 01777 : 0777);
  std::array<char, 1024> small{};
  std::string large;
  std::string_view names;
  ssize_t size = ::flistxattr(descriptor, small.data(), small.size());
  if (size >= 0) {
    names = std::string_view(small.data(), static_cast<std::size_t>(size));
  } else if (errno == ERANGE) {
    large.resize(value_bytes_max);
    size = ::flistxattr(descriptor, large.data(), large.size());
    if (size > 0) names = std::string_view(large.data(), static_cast<std::size_t>(size));
  }
  while (!names.empty()) {
    const std::string name(names.data(), ::strnlen(names.data(), names.size()));
    names.remove_prefix(std::min(names.size(), name.size() + 1));
    if (name.starts_with("user.")) {
      if (auto value = attribute(descriptor, name.c_str())) status.attributes.emplace_back(name, *std::move(value));
      continue;
    }
    if (name != access_list && name != default_list) continue;
    auto list = attribute(descriptor, name.c_str());
    if (!list) continue;
    if (name == access_list) {
      // With a list, the mode shows the mask in place of the group's bits.
      if (const auto bits = bits_of(*list))
        status.mode = (status.mode & ~mode_t{070}) | ((bits->group & bits->mask.value_or(7)) << 3);
    }
    if (with_lists) status.lists.emplace_back(name, *std::move(list));
  }
  return status;
}

ListLimit ListLimit::of(int directory) {
  ListLimit limit;
  const auto list = attribute(directory, default_list);
  if (!list) return limit;
  if (const auto bits = bits_of(*list))
    limit.allowed = 07000 | (bits->owner << 6) | (bits->mask.value_or(bits->group) << 3) | bits->other;
  return limit;
}

const char* description_of(NotKept what) noexcept {
  switch (what) {
    case NotKept::mode:
      return "modes";
    case NotKept::times:
      return "times";
    case NotKept::attributes:
      return "extended attributes";
    case NotKept::lists:
      return "access lists";
    case NotKept::hard_links:
      return "hard links, which became files of their own";
    case NotKept::link_times:
      return "times of links";
    case NotKept::count:
      break;
  }
  return "";
}

Result<std::vector<NotKept>> set_status(int descriptor, const Status& status, ListLimit limit, const Owner& owner,
                                        const std::string& where) {
  std::vector<NotKept> lacking;
  if (owner.user || owner.group) {
    if (::fchown(descriptor, owner.user.value_or(static_cast<uid_t>(-1)),
                 owner.group.value_or(static_cast<gid_t>(-1))) != 0)
      return system_error(errno, "cannot give it to that owner", where);
  }
  ASSIGN_OR_RETURN(const struct stat made, look_at(descriptor, where));
  // Who may not write a file may not set its attributes, owner or not.
  if (!status.attributes.empty() && (made.st_mode & 0200) == 0)
    (void)::fchmod(descriptor, (made.st_mode & 07777) | 0200);
  for (const auto& [name, value] : status.attributes) {
    if (::fsetxattr(descriptor, name.c_str(), value.data(), value.size(), 0) != 0)
      RETURN_IF_ERROR(note_lacking(lacking, NotKept::attributes, where));
  }
  // A directory has the set-group-id bit of its place.
  const mode_t wanted = limit.of_mode(status.mode) | (S_ISDIR(made.st_mode) ? made.st_mode & S_ISGID : 0);
  ASSIGN_OR_RETURN(const struct stat before, look_at(descriptor, where));
  if ((before.st_mode & 07777) != wanted) {
    if (::fchmod(descriptor, wanted) != 0) {
      RETURN_IF_ERROR(note_lacking(lacking, NotKept::mode, where));
    } else {
      ASSIGN_OR_RETURN(const struct stat after, look_at(descriptor, where));
      if ((after.st_mode & 07777) != wanted) lacking.push_back(NotKept::mode);
    }
  }
  for (const auto& [name, value] : status.lists) {
    if (::fsetxattr(descriptor, name.c_str(), value.data(), value.size(), 0) != 0)
      RETURN_IF_ERROR(note_lacking(lacking, NotKept::lists, where));
  }
  const std::array<timespec, 2> times{status.stat.st_atim, status.stat.st_mtim};
  if (::futimens(descriptor, times.data()) != 0) RETURN_IF_ERROR(note_lacking(lacking, NotKept::times, where));
  return lacking;
}

}  // namespace forebay::mover
