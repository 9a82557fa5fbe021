// SPDX-License-Identifier: Apache-2.0
// forebay-job begin|end: what Slurm's prolog and epilog run on each node of each job, so it costs milliseconds. `begin`
// looks whether the node sees the job's files, and links the node's own private scratch; `end` removes the link, and
// links that lead nowhere. Which links there are follows from the snapshot that the manager keeps below the root.
//
// A failure of the node ends with status 1: Slurm then drains it and requeues the job. What the job's user has caused
// costs the job alone: it is told, the job starts without its private scratch, and the status is 0.
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/descriptor.h"
#include "base/open_below.h"
#include "configuration_file.h"
#include "node_list.h"
#include "snapshot_file.h"

namespace {

using forebay::Descriptor;
using forebay::slurm::ConfigurationFile;
using forebay::slurm::part_of_job;
using forebay::slurm::Snapshot;

constexpr const char* usage =
    "usage: forebay-job begin|end [JOB] [--node NAME] [--root DIR]\n"
    "JOB and NAME are what Slurm tells a prolog: $SLURM_JOB_ID, $SLURMD_NODENAME\n"
    "example: forebay-job begin 17\n";

[[noreturn]] void fail(const std::string& text) {
  std::fputs(("error: " + text + "\n").c_str(), stderr);
  std::exit(1);
}

std::string reason() {
  return std::generic_category().message(errno);
}

struct Call {
  bool begins = false;
  std::string job;
  std::uint64_t number = 0;
  std::string node;
  std::string root;
  std::string nodes;
  std::string node_folder;
};

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

std::string this_node() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0) fail("the node's name is not known: " + reason());
  const std::string_view whole(name);
  return std::string(whole.substr(0, whole.find('.')));
}

bool is_node_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name.front() != '.' && name.front() != '-' &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
             std::string_view::npos;
}

/// The number of a job; 0 if it is none.
std::uint64_t job_number(std::string_view text) {
  std::uint64_t number = 0;
  const auto [after, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && after == text.data() + text.size();
  return whole && !text.empty() && text.front() != '0' && text.size() <= 19 ? number : 0;
}

Call read_call(int argc, char** argv) {
  Call call;
  const std::string_view verb = argc > 1 ? argv[1] : "";
  if (verb == "--help" || verb == "-h") {
    std::fputs(usage, stdout);
    std::exit(0);
  }
  if (verb != "begin" && verb != "end") {
    std::fputs(usage, stderr);
    std::exit(2);
  }
  call.begins = verb == "begin";
  call.job = environment("SLURM_JOB_ID");
  call.node = environment("SLURMD_NODENAME");
  bool options = true;
  for (int at = 2; at < argc; ++at) {
    const std::string_view word = argv[at];
    if (options && word == "--") {
      options = false;
    } else if (options && (word == "--node" || word == "--root") && at + 1 < argc) {
      (word == "--node" ? call.node : call.root) = argv[++at];
    } else if (!options || !word.starts_with("-")) {
      call.job = word;
    } else {
      std::fputs(usage, stderr);
      std::exit(2);
    }
  }
  call.number = job_number(call.job);
  if (call.number == 0) fail("'" + call.job.substr(0, 80) + "' is no job number");
  if (call.node.empty()) call.node = this_node();
  if (!is_node_name(call.node)) fail("'" + call.node.substr(0, 80) + "' is no node's name");
  std::string problem;
  const auto configuration = ConfigurationFile::read(problem);
  if (!configuration) fail(problem);
  const auto root = configuration->text("", "root", "/var/lib/forebay", problem);
  const auto nodes = configuration->text("slurm", "nodes", "", problem);
  const auto node_folder = configuration->text("slurm", "node_folder", "", problem);
  if (!root || !nodes || !node_folder) fail(problem);
  if (call.root.empty()) call.root = *root;
  call.nodes = *nodes;
  call.node_folder = *node_folder;
  return call;
}

std::map<std::string, std::string> variables_of(const Call& call) {
  const std::string path = call.root + "/slurm/snapshot";
  const auto unreadable = [&] { fail("this node cannot read what jobs have, or it is not whole (" + path + ")"); };
  const Snapshot head(path);
  if (!head.is_whole()) unreadable();
  const auto part = part_of_job(path, head, call.number);
  if (!part) unreadable();
  std::map<std::string, std::string> variables;
  const std::string lines = std::string(part->section("paths " + call.job).value_or(std::string_view()));
  for (std::size_t begin = 0; begin < lines.size();) {
    const std::size_t end = std::min(lines.find('\n', begin), lines.size());
    const std::string line = lines.substr(begin, end - begin);
    if (const auto equals = line.find('='); equals != std::string::npos)
      variables.emplace(line.substr(0, equals), line.substr(equals + 1));
    begin = end + 1;
  }
  return variables;
}

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

std::string parent_of(const std::string& path) {
  return path.substr(0, path.rfind('/'));
}

/// A folder that is this very name, not what a link leads to; not valid, with the reason in errno. What is mounted on
/// it is not asked, so that a file system that never answers holds up nothing.
Descriptor look_at_folder(int parent, const std::string& name) {
  return Descriptor(::openat(parent, name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

bool is_directory(const std::string& path) {
  return look_at_folder(AT_FDCWD, path).valid();
}

/// Makes `node` in the folder `private` of the files, with the rights of that folder's owner: the job's user, who may
/// have put anything there, or have destroyed the reservation. Returns what is wrong by the user's doing; "" if nothing
/// is.
std::string make_private(const std::string& files, const std::string& node, bool sees_root) {
  const Descriptor top = look_at_folder(AT_FDCWD, files);
  if (!top.valid() && errno == ENOENT && sees_root) return "the reservation is gone";
  if (!top.valid()) fail("this node does not see the job's files: " + reason() + " (" + files + ")");
  const Descriptor folder = look_at_folder(top.get(), "private");
  if (!folder.valid()) {
    if (errno == ENOTDIR || errno == ELOOP || errno == ENOENT) return "private is no folder";
    fail("this node does not see the job's private scratch: " + reason() + " (" + files + "/private)");
  }
  if (!forebay::on_same_mount(top.get(), folder.get())) return "another file system is mounted on private";
  struct stat owner{};
  struct stat whole{};
  if (::fstat(folder.get(), &owner) != 0 || ::fstat(top.get(), &whole) != 0)
    fail("the job's private scratch cannot be examined: " + reason());
  if (whole.st_uid != 0 && owner.st_uid != whole.st_uid) return "private belongs to another user";
  const bool as_owner = ::geteuid() == 0 && owner.st_uid != 0;
  if (as_owner && (::setgroups(1, &owner.st_gid) != 0 || ::setegid(owner.st_gid) != 0 || ::seteuid(owner.st_uid) != 0))
    fail("cannot act as the job's user: " + reason());
  const bool made = ::mkdirat(folder.get(), node.c_str(), 0700) == 0 || errno == EEXIST;
  const int error = errno;
  const bool is_folder = made && look_at_folder(folder.get(), node).valid();
  if (as_owner && (::seteuid(0) != 0 || ::setegid(0) != 0)) fail("cannot be root again: " + reason());
  if (!made && (error == EIO || error == ESTALE || error == ENOTCONN || error == EROFS)) {
    errno = error;
    fail("the node's private scratch cannot be made: " + reason() + " (" + files + "/private/" + node + ")");
  }
  if (!made) return std::generic_category().message(error);
  return is_folder ? "" : "it is no folder";
}

/// Removes links of jobs whose reservation has gone, because the job's epilog has not run. A link reads
/// FILES/private/NODE. Only FILES is looked for: what lies in it has names that users can change.
void remove_dangling(const std::string& node_folder) {
  DIR* const listed = ::opendir(node_folder.c_str());
  if (listed == nullptr) return;
  std::vector<std::string> names;
  while (const dirent* const entry = ::readdir(listed)) {
    if (job_number(entry->d_name) != 0) names.emplace_back(entry->d_name);
  }
  ::closedir(listed);
  std::ranges::sort(names);
  for (const std::string& name : names) {
    const std::string link = node_folder + "/" + name;
    char target[PATH_MAX];
    const ssize_t size = ::readlink(link.c_str(), target, sizeof target);
    if (size <= 0 || static_cast<std::size_t>(size) == sizeof target) continue;
    const std::string folder = parent_of(std::string(target, static_cast<std::size_t>(size)));
    if (!folder.ends_with("/private")) continue;
    struct stat status{};
    if (::lstat(parent_of(folder).c_str(), &status) != 0 && errno == ENOENT && ::unlink(link.c_str()) == 0)
      std::printf("removed %s\n", link.c_str());
  }
}

int begin(const Call& call) {
  if (!call.nodes.empty()) {
    const auto named = forebay::slurm::names_node(call.nodes, call.node);
    if (!named) fail("[slurm] nodes is no list of nodes; write n[1-4],login1");
    // A failing prolog takes the node from all jobs, also from those without burst buffers.
    if (!*named) return 0;
  }
  const auto variables = variables_of(call);
  const bool sees_root = is_directory(call.root + "/reservations");
  for (const auto& [name, value] : variables) {
    if (!name.starts_with("DW_") || name == "DW_JOB_PRIVATE" || is_directory(without_slash(value))) continue;
    if (!sees_root) fail("this node does not see $" + name + " (" + value + ")");
    std::fprintf(stderr, "job %s: $%s is gone: somebody destroyed the reservation (%s)\n", call.job.c_str(),
                 name.c_str(), value.c_str());
  }
  // What the file has only the job's user may read; root on this node may be nobody to the root's file system. The
  // token of a job that its user cancels just now goes before the snapshot says so.
  struct stat status{};
  if (const auto token = variables.find("FOREBAY_TOKEN_FILE");
      token != variables.end() && ::lstat(token->second.c_str(), &status) != 0) {
    if (errno != ENOENT || !is_directory(parent_of(token->second)))
      fail("this node does not see $FOREBAY_TOKEN_FILE (" + token->second + ")");
    std::fprintf(stderr, "job %s has no token: it is over, or its reservation is gone\n", call.job.c_str());
  }
  const auto own = variables.find("DW_JOB_PRIVATE");
  const auto striped = variables.find("DW_JOB_STRIPED");
  if (own == variables.end() || striped == variables.end()) return 0;
  const std::string files = parent_of(without_slash(striped->second));
  const std::string link = without_slash(own->second);
  if (link.starts_with(files + "/")) return 0;
  const std::string wrong = make_private(files, call.node, sees_root);
  if (::mkdir(parent_of(link).c_str(), 0755) != 0 && errno != EEXIST)
    fail("the folder for links cannot be made: " + reason() + " (" + parent_of(link) + ")");
  remove_dangling(parent_of(link));
  if (!wrong.empty()) {
    ::unlink(link.c_str());
    std::fprintf(stderr, "job %s has no private scratch here, by its user's doing: %s (%s/private/%s)\n",
                 call.job.c_str(), wrong.c_str(), files.c_str(), call.node.c_str());
    return 0;
  }
  const std::string made = parent_of(link) + "/." + call.job + ".new";
  if ((::unlink(made.c_str()) != 0 && errno != ENOENT) ||
      ::symlink((files + "/private/" + call.node).c_str(), made.c_str()) != 0 ||
      ::rename(made.c_str(), link.c_str()) != 0)
    fail("the link to the private scratch cannot be made: " + reason() + " (" + link + ")");
  std::printf("made %s\n", link.c_str());
  return 0;
}

int end(const Call& call) {
  if (call.node_folder.empty()) return 0;
  remove_dangling(call.node_folder);
  const std::string link = call.node_folder + "/" + call.job;
  struct stat status{};
  if (::lstat(link.c_str(), &status) != 0 || !S_ISLNK(status.st_mode)) return 0;
  if (::unlink(link.c_str()) != 0 && errno != ENOENT)
    fail("the link cannot be removed: " + reason() + " (" + link + ")");
  std::printf("removed %s\n", link.c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const Call call = read_call(argc, argv);
  const int status = call.begins ? begin(call) : end(call);
  return std::fflush(stdout) == 0 ? status : 1;
}
