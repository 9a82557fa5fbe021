// SPDX-License-Identifier: Apache-2.0
#include "node_table.h"

namespace forebay::mounting {

NodeTable::NodeTable() {
  entries_[root_number] = {std::make_shared<Node>(Node{root_number, "", {}}), 1};
  numbers_[key_of("", {})] = root_number;
}

std::string NodeTable::key_of(const std::string& path, const NodeAttributes& attributes) {
  std::string key = path;
  key += '\0';
  key += static_cast<char>('0' + static_cast<int>(attributes.kind));
  key += std::to_string(attributes.version);
  // A link that leads elsewhere is another node, so that the kernel's copy is never an old one.
  key += '\0';
  key += attributes.target;
  return key;
}

std::shared_ptr<const Node> NodeTable::looked_up(const std::string& path, NodeAttributes attributes) {
  const std::string key = key_of(path, attributes);
  const std::lock_guard lock(mutex_);
  const auto [place, is_new] = numbers_.try_emplace(key, next_number_);
  if (is_new) {
    entries_[next_number_] = {std::make_shared<Node>(Node{next_number_, path, std::move(attributes)}), 0};
    ++next_number_;
  }
  Entry& entry = entries_.at(place->second);
  ++entry.look_ups;
  return entry.node;
}

std::shared_ptr<const Node> NodeTable::find(std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(number);
  return found == entries_.end() ? nullptr : found->second.node;
}

void NodeTable::forget(std::uint64_t number, std::uint64_t look_ups) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(number);
  if (found == entries_.end() || number == root_number) {
    return;
  }
  Entry& entry = found->second;
  if (entry.look_ups > look_ups) {
    entry.look_ups -= look_ups;
    return;
  }
  numbers_.erase(key_of(entry.node->path, entry.node->attributes));
  entries_.erase(found);
}

std::size_t NodeTable::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace forebay::mounting
