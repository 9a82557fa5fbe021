// SPDX-License-Identifier: Apache-2.0
#include "storage/access_list.h"

#include <endian.h>
#include <sys/xattr.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "base/system_error.h"

namespace forebay::storage {
namespace {

// The kernel's own layout (linux/posix_acl_xattr.h), little-endian; entries are sorted by tag, then by id.
constexpr std::uint32_t attribute_version = 2;
constexpr std::uint32_t no_id = ~std::uint32_t{0};
constexpr AccessList::Bits all_bits = 7;
enum Tag : std::uint16_t { user_object = 1, user = 2, group_object = 4, group = 8, mask = 16, others = 32 };
struct Entry {
  std::uint16_t tag;
  std::uint16_t bits;
  std::uint32_t id;
};
static_assert(sizeof(Entry) == 8);
constexpr std::size_t attribute_bytes_max = 65536;
constexpr std::size_t usual_bytes = 512;

const char* attribute_of(AccessList::Kind kind) {
  return kind == AccessList::Kind::access ? "system.posix_acl_access" : "system.posix_acl_default";
}

/// The name of what a descriptor of this process stands for, whoever renames it.
std::string name_of(int descriptor) {
  return "/proc/self/fd/" + std::to_string(descriptor);
}

}  // namespace

Result<bool> AccessList::supported(const std::string& path) {
  if (::getxattr(path.c_str(), attribute_of(Kind::access), nullptr, 0) >= 0 || errno == ENODATA) return true;
  if (errno == EOPNOTSUPP) return false;
  return system_error(errno, "cannot read the access list", path);
}

Result<std::optional<AccessList>> AccessList::read(int descriptor, Kind kind) {
  // Most have few entries, and there may be millions of files.
  std::vector<char> bytes(usual_bytes);
  ssize_t size = ::getxattr(name_of(descriptor).c_str(), attribute_of(kind), bytes.data(), bytes.size());
  if (size < 0 && errno == ERANGE) {
    bytes.resize(attribute_bytes_max);
    size = ::getxattr(name_of(descriptor).c_str(), attribute_of(kind), bytes.data(), bytes.size());
  }
  if (size < 0 && (errno == ENODATA || errno == EOPNOTSUPP)) return std::optional<AccessList>();
  if (size < 0) return system_error(errno, "cannot read the access list");
  AccessList list;
  for (std::size_t offset = sizeof attribute_version; offset + sizeof(Entry) <= static_cast<std::size_t>(size);
       offset += sizeof(Entry)) {
    Entry entry;
    std::memcpy(&entry, bytes.data() + offset, sizeof entry);
    const Bits bits = le16toh(entry.bits);
    const std::uint32_t id = le32toh(entry.id);
    switch (le16toh(entry.tag)) {
      case Tag::user_object:
        list.owner = bits;
        break;
      case Tag::user:
        list.users[id] = bits;
        break;
      case Tag::group_object:
        list.group = bits;
        break;
      case Tag::group:
        list.groups[id] = bits;
        break;
      case Tag::others:
        list.other = bits;
        break;
      case Tag::mask:
        list.mask = bits;
        break;
      default:
        break;
    }
  }
  return std::optional(std::move(list));
}

AccessList AccessList::of_mode(mode_t mode) {
  AccessList list;
  list.owner = static_cast<Bits>(mode >> 6 & 7);
  list.group = static_cast<Bits>(mode >> 3 & 7);
  list.other = static_cast<Bits>(mode & 7);
  list.mask = list.group;
  return list;
}

Result<void> AccessList::write(int descriptor, Kind kind) const {
  std::vector<Entry> entries;
  const auto add = [&entries](Tag tag, Bits bits, std::uint32_t id = no_id) {
    entries.push_back({htole16(tag), htole16(bits), htole32(id)});
  };
  add(user_object, owner);
  for (const auto& [id, bits] : users) add(user, bits, id);
  add(group_object, group);
  for (const auto& [id, bits] : groups) add(Tag::group, bits, id);
  // The kernel asks for one where there are such entries.
  if (mask || !users.empty() || !groups.empty()) add(Tag::mask, mask.value_or(all_bits));
  add(others, other);
  const std::uint32_t version = htole32(attribute_version);
  std::vector<char> bytes(sizeof version + entries.size() * sizeof(Entry));
  std::memcpy(bytes.data(), &version, sizeof version);
  std::memcpy(bytes.data() + sizeof version, entries.data(), entries.size() * sizeof(Entry));
  if (::setxattr(name_of(descriptor).c_str(), attribute_of(kind), bytes.data(), bytes.size(), 0) != 0)
    return system_error(errno, "cannot set the access list");
  return {};
}

}  // namespace forebay::storage
