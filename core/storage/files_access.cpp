// SPDX-License-Identifier: Apache-2.0
#include "storage/files_access.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/descriptor.h"
#include "base/file_system_user.h"
#include "base/open_below.h"
#include "base/return_error.h"
#include "base/system_error.h"
#include "storage/access_list.h"
#include "storage/files_shares.h"
#include "storage/tree_walk.h"

namespace forebay::storage {
namespace {

constexpr std::size_t places_max = 3;
constexpr std::uint32_t groups_min = 1024;
constexpr std::uint32_t group_max = ~std::uint32_t{0} - 1;  // the last one means nobody

Result<Descriptor> open_files(const std::string& files) {
  Descriptor top(::open(files.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!top.valid()) return system_error(errno, "cannot open files/", files);
  return top;
}

/// Where the file system has no access lists.
Result<void> set_mode_for_one_group(const FilesShares& shares, const std::string& files) {
  const auto groups = shares.groups_with_rights();
  const std::uint32_t group = groups.empty() ? shares.owning_group() : groups.begin()->first;
  const Rights rights = groups.empty() ? Rights::none : groups.begin()->second;
  const auto mode = static_cast<mode_t>(0700 | bits_of(rights) << 3);
  struct stat status{};
  if (::lstat(files.c_str(), &status) != 0) return system_error(errno, "cannot look at files/", files);
  // Closed first: nobody of the one group comes in by what the other may do.
  if (status.st_gid != group && (::chmod(files.c_str(), 0700) != 0 || ::lchown(files.c_str(), ~uid_t{0}, group) != 0))
    return system_error(errno, fmt::format("cannot give files/ to group {}", group), files);
  if (::chmod(files.c_str(), mode) != 0) return system_error(errno, "cannot set the mode of files/", files);
  return {};
}

}  // namespace

Result<GroupRange> GroupRange::parse(const std::string& text) {
  GroupRange range;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, range.first);
  const bool has_dash = first.ec == std::errc() && first.ptr != end && *first.ptr == '-';
  const auto last = std::from_chars(has_dash ? first.ptr + 1 : end, end, range.last);
  if (has_dash && last.ec == std::errc() && last.ptr == end && range.first > 0 && range.last <= group_max &&
      range.first <= range.last && range.last - range.first >= groups_min - 1) {
    return range;
  }
  return fail(ErrorCode::invalid_argument,
              fmt::format("files_groups is a range of at least {} group ids that nobody is in, such as "
                          "\"2000000000-2000999999\", not \"{}\"",
                          groups_min, text.substr(0, 40)));
}

std::optional<GroupRange> GroupRange::usual_in(const std::string& gid_map) {
  const GroupRange usual;
  std::istringstream lines(gid_map);
  std::uint64_t first = 0;
  std::uint64_t outside = 0;
  std::uint64_t count = 0;
  GroupRange largest{0, 0};
  std::uint64_t most = 0;
  while (lines >> first >> outside >> count) {
    if (first <= usual.first && usual.last < first + count) return usual;
    if (count <= most) continue;
    most = count;
    largest.last = static_cast<std::uint32_t>(std::min<std::uint64_t>(first + count - 1, group_max));
    largest.first = largest.last - std::min(largest.last, groups_min - 1);
  }
  if (most <= groups_min) return std::nullopt;
  return largest;
}

struct FilesAccessPass::Impl final : TreeVisitor {
  enum class Purpose : std::uint8_t { shares, adoption };

  Impl(const reservation::ReservationT& record, Purpose wanted) : shares(record), purpose(wanted) {}

  // TreeVisitor
  Enter folder(const TreeWalk& walk, const std::string& name, int descriptor, const struct stat& status,
               Enter above) override {
    const bool owners = status.st_uid == shares.owner();
    if (walk.depth() == 0 && purpose == Purpose::shares) {
      if (owners_first) set_top(walk, descriptor, status);
      return owners_first ? Enter::all : Enter::folders;
    }
    // The owner's folders first: others may have made any number of theirs.
    if (purpose == Purpose::shares && owners_first && !owners) {
      leaves_some = true;
      return Enter::nothing;
    }
    if (purpose == Purpose::shares && !owners_first && owners && above == Enter::folders) return Enter::folders;
    set(walk, name, descriptor, status);
    return Enter::all;
  }

  void entry(const TreeWalk& walk, int parent, const char* name, const struct statx& seen) override {
    if (S_ISLNK(seen.stx_mode)) return;
    const Descriptor opened = open_below(parent, name, O_PATH, Mounts::refused);
    struct stat status{};
    if (!opened.valid() || ::fstat(opened.get(), &status) != 0) {
      if (errno != ENOENT && errno != ELOOP) missed(walk, name, system_error(errno, "cannot open it").value());
      return;
    }
    // Another one may have the name by now. A folder is met when it is looked for the next time.
    if (!S_ISLNK(status.st_mode) && !S_ISDIR(status.st_mode)) set(walk, name, opened.get(), status);
  }

  void missed(const TreeWalk& walk, const std::string& name, Error why) override {
    if (report.unfinished++ < places_max)
      report.unfinished_places.push_back(walk.place(name) + " (" + why.what.substr(0, 80) + ")");
  }

  void set_top(const TreeWalk& walk, int descriptor, const struct stat& status) {
    auto known = AccessList::read(descriptor, AccessList::Kind::access);
    auto by_default = AccessList::read(descriptor, AccessList::Kind::by_default);
    if (!known || !by_default) {
      missed(walk, ".", known ? by_default.error() : known.error());
      return;
    }
    const AccessList before = known->value_or(AccessList::of_mode(status.st_mode));
    replace(walk, ".", descriptor, status, AccessList::Kind::access, before, shares.of_top(before, status));
    const AccessList later = *by_default ? shares.given_by_default(**by_default) : shares.fresh_default();
    replace(walk, ".", descriptor, status, AccessList::Kind::by_default, by_default->value_or(AccessList()), later);
  }

  void set(const TreeWalk& walk, const std::string& name, int descriptor, const struct stat& status) {
    auto known = AccessList::read(descriptor, AccessList::Kind::access);
    if (!known) return missed(walk, name, known.error());
    const AccessList before = known->value_or(AccessList::of_mode(status.st_mode));
    const bool owners = status.st_uid == shares.owner();
    const bool marked = shares.are_on(before);
    const bool adopts = purpose == Purpose::adoption && owners;
    if (adopts) {
      replace(walk, name, descriptor, status, AccessList::Kind::access, before, shares.adopted(before, status));
    } else if (purpose == Purpose::shares && marked) {
      replace(walk, name, descriptor, status, AccessList::Kind::access, before, shares.given(before, status));
    } else if (purpose == Purpose::shares && owners) {
      replace(walk, name, descriptor, status, AccessList::Kind::access, before, shares.taken(before, status));
      if (shares.give_anything()) leave(walk, name);
    } else if (!marked) {
      leave(walk, name);
    }
    if (!S_ISDIR(status.st_mode) || (!adopts && (purpose == Purpose::adoption || !(marked || owners)))) return;
    auto by_default = AccessList::read(descriptor, AccessList::Kind::by_default);
    if (!by_default) return missed(walk, name, by_default.error());
    // Whose folder it is may have taken the list away: what is made there is then theirs alone.
    if (!*by_default && !adopts) return;
    const AccessList had = by_default->value_or(AccessList());
    AccessList later = !*by_default                               ? shares.fresh_default()
                       : adopts || (marked && shares.are_on(had)) ? shares.given_by_default(had)
                                                                  : shares.taken(had, status);
    replace(walk, name, descriptor, status, AccessList::Kind::by_default, had, later);
  }

  void replace(const TreeWalk& walk, const std::string& name, int descriptor, const struct stat& status,
               AccessList::Kind kind, const AccessList& before, const AccessList& after) {
    if (before == after) return;
    auto written = after.write(descriptor, kind);
    if (written) {
      ++report.changed;
    } else if (written.error().code == ErrorCode::permission_denied && status.st_uid != acting_user() &&
               acting_user() != 0) {
      // A server that is not root cannot change what others made; they got the defaults of their folder.
      leave(walk, name);
    } else {
      missed(walk, name, written.error());
    }
  }

  void leave(const TreeWalk& walk, const std::string& name) {
    if (report.untouched++ < places_max) report.untouched_places.push_back(walk.place(name));
  }

  void begin(Descriptor top, std::string shown) {
    begun = std::move(top);
    shown_as = std::move(shown);
    walk.emplace(Descriptor(::fcntl(begun.get(), F_DUPFD_CLOEXEC, 0)), shown_as, *this);
  }

  const FilesShares shares;
  const Purpose purpose;
  std::optional<FileSystemUser> acts_as;
  Descriptor begun;
  std::string shown_as;
  std::optional<TreeWalk> walk;
  bool owners_first = true;
  bool leaves_some = false;
  FilesAccessReport report;
};

FilesAccessPass::FilesAccessPass(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
FilesAccessPass::~FilesAccessPass() = default;

const FilesAccessReport& FilesAccessPass::report() const noexcept {
  return impl_->report;
}

Result<std::unique_ptr<FilesAccessPass>> FilesAccessPass::of_shares(const reservation::ReservationT& record,
                                                                    const std::string& files) {
  auto impl = std::make_unique<Impl>(record, Impl::Purpose::shares);
  ASSIGN_OR_RETURN(const bool supported, AccessList::supported(files));
  if (supported) {
    ASSIGN_OR_RETURN(auto top, open_files(files));
    impl->begin(std::move(top), "files");
  } else {
    RETURN_IF_ERROR(set_mode_for_one_group(impl->shares, files));
  }
  return std::unique_ptr<FilesAccessPass>(new FilesAccessPass(std::move(impl)));
}

Result<std::unique_ptr<FilesAccessPass>> FilesAccessPass::of_adoption(const reservation::ReservationT& record,
                                                                      const std::string& files,
                                                                      const std::string& path) {
  auto impl = std::make_unique<Impl>(record, Impl::Purpose::adoption);
  const std::string where = "reservation " + record.name;
  ASSIGN_OR_RETURN(const bool supported, AccessList::supported(files));
  if (!supported || record.files_group == 0) {
    return fail(ErrorCode::unsupported,
                "what is made in files/ is not marked here: its file system has no POSIX access lists, or this user "
                "namespace too few groups",
                where);
  }
  if (::geteuid() != record.owner_uid) impl->acts_as = FileSystemUser{record.owner_uid, record.owner_gid, {}};
  ASSIGN_OR_RETURN(Descriptor top, open_files(files));
  const ActingAs acting(impl->acts_as ? &*impl->acts_as : nullptr, IfImpossible::tell);
  if (!acting.possible()) {
    return fail(
        ErrorCode::unsupported,
        fmt::format("this server is not root, and cannot act as user {}, who owns the reservation", record.owner_uid),
        where);
  }
  const bool all = path.empty() || path == ".";
  Descriptor opened = open_below(top.get(), all ? "." : path, O_PATH, Mounts::refused);
  struct stat status{};
  if (!opened.valid() || ::fstat(opened.get(), &status) != 0) {
    const std::string place = "files/" + path.substr(0, 100);
    if (errno == EXDEV || errno == ELOOP) {
      return fail(ErrorCode::invalid_argument,
                  "the path leads out of the reservation's files, or through a link; name what it stands for", place);
    }
    return system_error(errno, "cannot open what is to be adopted", place);
  }
  if (S_ISLNK(status.st_mode))
    return fail(ErrorCode::invalid_argument, "this is a link; name what it stands for", "files/" + path.substr(0, 100));
  if (S_ISDIR(status.st_mode)) {
    impl->begin(std::move(opened), all ? "files" : "files/" + path);
  } else {
    impl->begin(std::move(top), "files");
    impl->set(*impl->walk, path, opened.get(), status);
    impl->walk.reset();
  }
  return std::unique_ptr<FilesAccessPass>(new FilesAccessPass(std::move(impl)));
}

bool FilesAccessPass::advance(std::size_t entries_max) {
  if (!impl_->walk) return true;
  const ActingAs acting(impl_->acts_as ? &*impl_->acts_as : nullptr, IfImpossible::tell);
  if (!acting.possible()) {
    impl_->missed(*impl_->walk, ".", {ErrorCode::permission_denied, "the server can act as the owner no more", {}});
    return true;
  }
  if (!impl_->walk->advance(entries_max)) return false;
  if (!impl_->owners_first || !impl_->leaves_some) return true;
  impl_->owners_first = false;
  impl_->walk.emplace(Descriptor(::fcntl(impl_->begun.get(), F_DUPFD_CLOEXEC, 0)), impl_->shown_as, *impl_);
  return false;
}

Result<void> check_files_access(const reservation::ReservationT& record, const std::string& files) {
  ASSIGN_OR_RETURN(const bool supported, AccessList::supported(files));
  if (supported) return {};
  const FilesShares shares(record);
  const auto groups = shares.groups_with_rights();
  struct stat status{};
  if (::lstat(files.c_str(), &status) != 0) return system_error(errno, "cannot look at files/", files);
  // Where the server could not give files/ to the owner, they are one more who needs an entry.
  if (!shares.has_users() && groups.size() <= 1 && status.st_uid == shares.owner()) return {};
  std::string what =
      "the file system of files/ has no POSIX access lists, so one group can have rights, and no single user";
  if (groups.size() > 1)
    what += fmt::format("; take them from the group that has them first (`forebay share {} --group {} --rights none`)",
                        record.name,
                        shares.of_owning_group() == Rights::none ? groups.begin()->first : shares.owning_group());
  return fail(ErrorCode::unsupported, what + ", or put the root on a file system that has access lists", files);
}

Result<void> set_files_access(const reservation::ReservationT& record, const std::string& files) {
  // Without such lists, the mode's bits say all that a reservation without shares needs.
  ASSIGN_OR_RETURN(const bool supported, AccessList::supported(files));
  if (!supported || record.files_group == 0) return {};
  ASSIGN_OR_RETURN(auto pass, FilesAccessPass::of_shares(record, files));
  while (!pass->advance(std::numeric_limits<std::size_t>::max())) {
  }
  if (pass->report().unfinished == 0) return {};
  return fail(ErrorCode::io_error, "cannot set the access lists: " + pass->report().unfinished_places.front(), files);
}

}  // namespace forebay::storage
