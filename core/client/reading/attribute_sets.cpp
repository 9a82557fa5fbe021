// SPDX-License-Identifier: Apache-2.0
#include "client/reading/attribute_sets.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "protocol/step_metadata.h"

namespace forebay::client {

std::uint64_t AttributeSets::begin_step() {
  const std::lock_guard lock(mutex_);
  return ++now_;
}

std::shared_ptr<const AttributeSet> AttributeSets::find(const Key& key) {
  const std::lock_guard lock(mutex_);
  const auto found = sets_.find(key);
  if (found == sets_.end()) return nullptr;
  found->second.used = now_;
  return found->second.set;
}

void AttributeSets::add(const Key& key, std::shared_ptr<const AttributeSet> set) {
  const std::lock_guard lock(mutex_);
  sets_.insert_or_assign(key, Entry{std::move(set), now_});
}

void AttributeSets::end_step(std::uint64_t begun) {
  const std::lock_guard lock(mutex_);
  if (sets_.empty()) return;
  std::vector<std::pair<std::uint64_t, Key>> idle;
  std::size_t bytes = 0;
  for (const auto& [key, entry] : sets_) {
    if (entry.used >= begun) continue;
    idle.emplace_back(entry.used, key);
    bytes += entry.set->size;
  }
  std::ranges::sort(idle);
  for (auto oldest = idle.begin(); bytes > idle_bytes_max; ++oldest) {
    const auto found = sets_.find(oldest->second);
    bytes -= found->second.set->size;
    sets_.erase(found);
  }
}

AttributeSets::Merged AttributeSets::merged(const std::vector<std::shared_ptr<const AttributeSet>>& sets) {
  {
    const std::lock_guard lock(mutex_);
    if (merged_ && merged_from_ == sets) return merged_;
  }
  std::vector<const format::AttributeTable*> tables;
  tables.reserve(sets.size());
  for (const auto& set : sets) tables.push_back(set->table);
  auto made = std::make_shared<const std::vector<Attribute>>(merge_attributes(tables));
  const std::lock_guard lock(mutex_);
  merged_from_ = sets;
  merged_ = made;
  return made;
}

std::vector<Attribute> merge_attributes(const std::vector<const format::AttributeTable*>& tables) {
  std::unordered_set<std::string_view> names;
  std::vector<Attribute> attributes;
  for (const format::AttributeTable* table : tables) {
    if (table->attributes() == nullptr) continue;
    for (const format::Attribute* attribute : *table->attributes()) {
      const std::string_view name(attribute->name()->data(), attribute->name()->size());
      if (names.insert(name).second) attributes.push_back({std::string(name), protocol::attribute_value(*attribute)});
    }
  }
  return attributes;
}

}  // namespace forebay::client
