// SPDX-License-Identifier: Apache-2.0
#include "fuse_mount.h"

#define FUSE_USE_VERSION 312
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "node_table.h"

namespace forebay::mounting {

namespace {

/// Names come and go with steps; the kernel asks again after so long.
constexpr double entry_seconds = 1.0;
/// What a node is never changes.
constexpr double attribute_seconds = 86400.0;
constexpr unsigned read_bytes_max = 1U << 20U;
constexpr unsigned threads_max = 8;

/// What libfuse said last to this thread; so the error of a mount is that mount's.
thread_local std::string last_message;

void keep_message(fuse_log_level, const char* format, va_list arguments) {
  std::array<char, 512> text{};
  std::vsnprintf(text.data(), text.size(), format, arguments);
  last_message = text.data();
  while (!last_message.empty() && last_message.back() == '\n') {
    last_message.pop_back();
  }
  std::fprintf(stderr, "%s\n", last_message.c_str());
}

}  // namespace

struct FuseMount::Impl {
  explicit Impl(ShownTree& shown) : tree(shown) {}
  ~Impl() {
    if (session == nullptr) {
      return;
    }
    if (is_mounted) {
      fuse_session_unmount(session);
    }
    fuse_remove_signal_handlers(session);
    fuse_session_destroy(session);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  ShownTree& tree;
  NodeTable nodes;
  fuse_session* session = nullptr;
  bool is_mounted = false;
  const uid_t uid = ::geteuid();
  const gid_t gid = ::getegid();

  struct stat attributes_of(const Node& node) const {
    struct stat found{};
    const NodeAttributes& attributes = node.attributes;
    found.st_ino = node.number;
    found.st_uid = uid;
    found.st_gid = gid;
    found.st_nlink = attributes.kind == NodeKind::folder ? 2 : 1;
    found.st_blksize = read_bytes_max;
    switch (attributes.kind) {
      case NodeKind::folder:
        found.st_mode = S_IFDIR | 0555;
        break;
      case NodeKind::file:
        found.st_mode = S_IFREG | 0444;
        found.st_size = static_cast<off_t>(attributes.size_bytes);
        found.st_blocks = static_cast<blkcnt_t>((attributes.size_bytes + 511) / 512);
        break;
      case NodeKind::link:
        found.st_mode = S_IFLNK | 0777;
        found.st_size = static_cast<off_t>(attributes.target.size());
        break;
    }
    found.st_mtim.tv_sec = attributes.time_ns / 1'000'000'000;
    found.st_mtim.tv_nsec = attributes.time_ns % 1'000'000'000;
    found.st_ctim = found.st_atim = found.st_mtim;
    return found;
  }
};

namespace {

struct OpenFolder {
  std::vector<ListedNode> nodes;
};

using OpenFile = std::shared_ptr<const ViewContent>;

FuseMount::Impl& mount_of(fuse_req_t request) {
  return *static_cast<FuseMount::Impl*>(fuse_req_userdata(request));
}

void on_init(void*, fuse_conn_info* connection) {
  // The kernel takes the largest read from this, too.
  connection->max_write = read_bytes_max;
  connection->max_readahead = read_bytes_max;
}

void on_look_up(fuse_req_t request, fuse_ino_t parent, const char* name) {
  FuseMount::Impl& mount = mount_of(request);
  const auto folder = mount.nodes.find(parent);
  if (folder == nullptr) {
    fuse_reply_err(request, ESTALE);
    return;
  }
  const std::string path = folder->path.empty() ? name : folder->path + "/" + name;
  NodeAttributes attributes;
  if (const int error = mount.tree.look_up(path, attributes); error != 0) {
    fuse_reply_err(request, error);
    return;
  }
  const bool is_link = attributes.kind == NodeKind::link;
  const auto node = mount.nodes.looked_up(path, std::move(attributes));
  fuse_entry_param entry{};
  entry.ino = node->number;
  entry.attr = mount.attributes_of(*node);
  entry.attr_timeout = attribute_seconds;
  entry.entry_timeout = is_link ? 0 : entry_seconds;
  if (fuse_reply_entry(request, &entry) == -ENOENT) {
    mount.nodes.forget(node->number, 1);  // The call was interrupted.
  }
}

void on_forget(fuse_req_t request, fuse_ino_t number, std::uint64_t look_ups) {
  mount_of(request).nodes.forget(number, look_ups);
  fuse_reply_none(request);
}

void on_forget_several(fuse_req_t request, std::size_t count, fuse_forget_data* forgotten) {
  for (const fuse_forget_data& one : std::span(forgotten, count)) {
    mount_of(request).nodes.forget(one.ino, one.nlookup);
  }
  fuse_reply_none(request);
}

void on_attributes(fuse_req_t request, fuse_ino_t number, fuse_file_info*) {
  const auto node = mount_of(request).nodes.find(number);
  if (node == nullptr) {
    fuse_reply_err(request, ESTALE);
    return;
  }
  const struct stat found = mount_of(request).attributes_of(*node);
  fuse_reply_attr(request, &found, attribute_seconds);
}

void on_read_link(fuse_req_t request, fuse_ino_t number) {
  const auto node = mount_of(request).nodes.find(number);
  if (node == nullptr) {
    fuse_reply_err(request, ESTALE);
    return;
  }
  fuse_reply_readlink(request, node->attributes.target.c_str());
}

void on_open(fuse_req_t request, fuse_ino_t number, fuse_file_info* file) {
  FuseMount::Impl& mount = mount_of(request);
  const auto node = mount.nodes.find(number);
  if (node == nullptr) {
    fuse_reply_err(request, ESTALE);
    return;
  }
  if ((file->flags & O_ACCMODE) != O_RDONLY) {
    fuse_reply_err(request, EROFS);
    return;
  }
  OpenFile content;
  if (const int error = mount.tree.open(node->path, node->attributes.version, content); error != 0) {
    fuse_reply_err(request, error);
    return;
  }
  auto* opened = new OpenFile(std::move(content));
  file->fh = reinterpret_cast<std::uintptr_t>(opened);
  // Another version is another node: what the kernel has of this one is right for ever.
  file->keep_cache = 1;
  if (fuse_reply_open(request, file) == -ENOENT) {
    delete opened;
  }
}

void on_release(fuse_req_t request, fuse_ino_t, fuse_file_info* file) {
  delete reinterpret_cast<OpenFile*>(file->fh);
  fuse_reply_err(request, 0);
}

void on_read(fuse_req_t request, fuse_ino_t, std::size_t size, off_t offset, fuse_file_info* file) {
  const ViewContent& content = **reinterpret_cast<OpenFile*>(file->fh);
  const auto start = static_cast<std::uint64_t>(offset);
  if (start >= content.size_bytes()) {
    fuse_reply_buf(request, nullptr, 0);
    return;
  }
  const std::uint64_t wanted = std::min<std::uint64_t>(size, content.size_bytes() - start);
  if (const auto direct = content.direct(start, wanted)) {
    fuse_reply_buf(request, reinterpret_cast<const char*>(direct->data()), direct->size());
    return;
  }
  std::vector<std::byte> bytes(wanted);
  if (const int error = content.read(start, bytes); error != 0) {
    fuse_reply_err(request, error);
    return;
  }
  fuse_reply_buf(request, reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

void on_open_folder(fuse_req_t request, fuse_ino_t number, fuse_file_info* file) {
  FuseMount::Impl& mount = mount_of(request);
  const auto node = mount.nodes.find(number);
  if (node == nullptr) {
    fuse_reply_err(request, ESTALE);
    return;
  }
  auto folder = std::make_unique<OpenFolder>();
  folder->nodes = {{".", NodeKind::folder}, {"..", NodeKind::folder}};
  if (const int error = mount.tree.list(node->path, folder->nodes); error != 0) {
    fuse_reply_err(request, error);
    return;
  }
  file->fh = reinterpret_cast<std::uintptr_t>(folder.get());
  if (fuse_reply_open(request, file) == 0) {
    static_cast<void>(folder.release());
  }
}

void on_list_folder(fuse_req_t request, fuse_ino_t, std::size_t size, off_t offset, fuse_file_info* file) {
  const auto& nodes = reinterpret_cast<OpenFolder*>(file->fh)->nodes;
  std::vector<char> out(size);
  std::size_t used = 0;
  for (auto place = static_cast<std::size_t>(offset); place < nodes.size(); ++place) {
    struct stat found{};
    constexpr std::array modes{S_IFDIR, S_IFREG, S_IFLNK};
    found.st_mode = modes.at(static_cast<std::size_t>(nodes[place].kind));
    // No number: a file has one when it is looked up.
    found.st_ino = ~std::uint64_t{0};
    const std::size_t needed = fuse_add_direntry(request, out.data() + used, size - used, nodes[place].name.c_str(),
                                                 &found, static_cast<off_t>(place + 1));
    if (needed > size - used) {
      break;
    }
    used += needed;
  }
  fuse_reply_buf(request, out.data(), used);
}

void on_release_folder(fuse_req_t request, fuse_ino_t, fuse_file_info* file) {
  delete reinterpret_cast<OpenFolder*>(file->fh);
  fuse_reply_err(request, 0);
}

void on_file_system(fuse_req_t request, fuse_ino_t) {
  struct statvfs found{};
  found.f_bsize = found.f_frsize = 4096;
  found.f_namemax = 255;
  fuse_reply_statfs(request, &found);
}

fuse_lowlevel_ops operations() {
  fuse_lowlevel_ops table{};
  table.init = on_init;
  table.lookup = on_look_up;
  table.forget = on_forget;
  table.forget_multi = on_forget_several;
  table.getattr = on_attributes;
  table.readlink = on_read_link;
  table.open = on_open;
  table.release = on_release;
  table.read = on_read;
  table.opendir = on_open_folder;
  table.readdir = on_list_folder;
  table.releasedir = on_release_folder;
  table.statfs = on_file_system;
  return table;
}

}  // namespace

FuseMount::FuseMount(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

std::unique_ptr<FuseMount> FuseMount::mount(ShownTree& tree, const std::string& folder, const std::string& source,
                                            std::string& error) {
  fuse_set_log_func(keep_message);
  last_message.clear();
  // auto_unmount: a process of fusermount3 unmounts if this one dies.
  std::string options = "-oro,nosuid,nodev,noatime,default_permissions,auto_unmount,subtype=forebay,fsname=" + source;
  std::string program = "forebay";
  std::array<char*, 3> words{program.data(), options.data(), nullptr};
  fuse_args arguments = FUSE_ARGS_INIT(2, words.data());
  auto impl = std::make_unique<Impl>(tree);
  const fuse_lowlevel_ops table = operations();
  impl->session = fuse_session_new(&arguments, &table, sizeof(table), impl.get());
  fuse_opt_free_args(&arguments);
  if (impl->session == nullptr || fuse_set_signal_handlers(impl->session) != 0) {
    error = last_message.empty() ? "libfuse refuses the options" : last_message;
    return nullptr;
  }
  if (fuse_session_mount(impl->session, folder.c_str()) != 0) {
    error = last_message.empty() ? "the kernel or fusermount3 refuses the mount" : last_message;
    return nullptr;
  }
  impl->is_mounted = true;
  return std::unique_ptr<FuseMount>(new FuseMount(std::move(impl)));
}

FuseMount::~FuseMount() = default;

int FuseMount::run() {
  fuse_loop_config* configuration = fuse_loop_cfg_create();
  fuse_loop_cfg_set_max_threads(configuration, threads_max);
  fuse_loop_cfg_set_clone_fd(configuration, 0);
  const int status = fuse_session_loop_mt(impl_->session, configuration);
  fuse_loop_cfg_destroy(configuration);
  // A positive status is the signal that ended the loop.
  return status < 0 ? -status : 0;
}

}  // namespace forebay::mounting
