// SPDX-License-Identifier: Apache-2.0
#include "storage/files_image.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <vector>

#include "base/descriptor.h"
#include "base/return_error.h"
#include "base/system_error.h"

namespace forebay::storage {
namespace {

constexpr std::size_t words_bytes_max = 2000;

/// Where it lies; a server's PATH need not have the folders of administrators' programs.
std::optional<std::string> path_of(const std::string& program) {
  for (const char* const folder : {"/usr/sbin/", "/sbin/", "/usr/bin/", "/bin/"}) {
    std::string path = folder + program;
    if (::access(path.c_str(), X_OK) == 0) return path;
  }
  return std::nullopt;
}

tl::unexpected<Error> missing(const std::string& program) {
  return fail(ErrorCode::unsupported,
              program + " is not installed; install it (xfsprogs has mkfs.xfs), or let files/ have no images");
}

/// Runs a program to its end. io_error, with what it wrote, if it fails.
Result<void> run(const std::string& program, std::vector<std::string> arguments, const std::string& where) {
  const auto path = path_of(program);
  if (!path) return missing(program);
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) return system_error(errno, "cannot start " + program, where);
  const Descriptor words(pipe[0]);
  Descriptor end(pipe[1]);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, end.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, end.get(), STDERR_FILENO);
  // The server takes signals through a descriptor and blocks them; a program that inherits that cannot be ended.
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  std::vector<char*> argv{const_cast<char*>(path->c_str())};
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_t child = 0;
  const int started = ::posix_spawn(&child, path->c_str(), &actions, &attributes, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (started != 0) return system_error(started, "cannot start " + program, where);
  end = Descriptor();
  std::string said;
  std::array<char, 512> buffer{};
  while (true) {
    const ssize_t count = ::read(words.get(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    if (said.size() < words_bytes_max) said.append(buffer.data(), static_cast<std::size_t>(count));
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  for (char& letter : said) letter = letter == '\n' ? ' ' : letter;
  return fail(ErrorCode::io_error, program + " failed: " + said, where);
}

}  // namespace

Result<void> check_files_images() {
  if (::geteuid() != 0) {
    return fail(ErrorCode::permission_denied,
                "images for files/ are mounted, which only root may do; start the instance as root, or without them");
  }
  for (const char* const program : {"mkfs.xfs", "mount"}) {
    if (!path_of(program)) return missing(program);
  }
  return {};
}

Result<void> make_files_image(const std::string& image) {
  // Nothing is discarded: the image's space stays allocated, so that the pool cannot run out below it.
  return run("mkfs.xfs", {"-q", "-f", "-K", image}, image);
}

Result<void> mount_files_image(const std::string& image, const std::string& directory) {
  return run("mount", {"-t", "xfs", "-o", "loop,nosuid,nodev", image, directory}, directory);
}

Result<void> unmount_files_image(const std::string& directory) {
  if (::umount2(directory.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) == 0 || errno == EINVAL || errno == ENOENT) return {};
  return system_error(errno, "cannot unmount", directory);
}

bool is_mount(const std::string& directory) {
  struct stat own{};
  struct stat above{};
  return ::lstat(directory.c_str(), &own) == 0 && ::lstat((directory + "/..").c_str(), &above) == 0 &&
         own.st_dev != above.st_dev;
}

}  // namespace forebay::storage
