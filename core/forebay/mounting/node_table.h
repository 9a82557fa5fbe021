// SPDX-License-Identifier: Apache-2.0
// The nodes that the kernel knows, by number. A number is never used for another node.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "shown_tree.h"

namespace forebay::mounting {

/// What never changes of a node; so the kernel may keep it.
struct Node {
  std::uint64_t number = 0;
  std::string path;
  NodeAttributes attributes;
};

/// Usable from any thread.
class NodeTable {
 public:
  static constexpr std::uint64_t root_number = 1;

  NodeTable();

  /// The node of this path and these attributes; counts one look-up of the kernel.
  std::shared_ptr<const Node> looked_up(const std::string& path, NodeAttributes attributes);
  /// Null: the kernel names a node that it has forgotten.
  std::shared_ptr<const Node> find(std::uint64_t number) const;
  /// The kernel gives so many look-ups back.
  void forget(std::uint64_t number, std::uint64_t look_ups);
  std::size_t size() const;

 private:
  struct Entry {
    std::shared_ptr<const Node> node;
    std::uint64_t look_ups = 0;
  };
  static std::string key_of(const std::string& path, const NodeAttributes& attributes);

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::unordered_map<std::uint64_t, Entry> entries_;
  std::unordered_map<std::string, std::uint64_t> numbers_;
  std::uint64_t next_number_ = root_number + 1;
};

}  // namespace forebay::mounting
