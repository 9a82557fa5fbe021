// SPDX-License-Identifier: Apache-2.0
// What is shown: a read-only tree of folders, files and links by path. "" is its root; paths have no slash in front.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "view_content.h"

namespace forebay::mounting {

enum class NodeKind : std::uint8_t { folder = 0, file = 1, link = 2 };

struct NodeAttributes {
  NodeKind kind = NodeKind::folder;
  std::uint64_t size_bytes = 0;
  std::int64_t time_ns = 0;   ///< of modification, since the Unix epoch
  std::string target;         ///< of a link
  std::uint64_t version = 0;  ///< a file of another version is another file, with other bytes
};

struct ListedNode {
  std::string name;
  NodeKind kind = NodeKind::folder;
};

/// Called from several threads at once. Each call returns 0 or an errno.
class ShownTree {
 public:
  virtual ~ShownTree() = default;
  virtual int look_up(const std::string& path, NodeAttributes& out) = 0;
  virtual int list(const std::string& path, std::vector<ListedNode>& out) = 0;
  virtual int open(const std::string& path, std::uint64_t version, std::shared_ptr<const ViewContent>& out) = 0;
};

}  // namespace forebay::mounting
