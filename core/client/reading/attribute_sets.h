// SPDX-License-Identifier: Apache-2.0
// Attribute sets that a reader has read: steps refer to them, and each is read once. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include <forebay/protocol/step_metadata_generated.h>
#include <forebay/reader.h>

namespace forebay::client {

/// A set as its rank wrote it, checked.
struct AttributeSet {
  std::unique_ptr<std::byte[]> bytes;
  std::size_t size = 0;
  const format::AttributeTable* table = nullptr;  ///< in `bytes`
};

class AttributeSets {
 public:
  using Key = std::tuple<std::uint32_t, std::uint64_t, std::uint32_t>;  ///< epoch, step that brought it, rank
  using Merged = std::shared_ptr<const std::vector<Attribute>>;

  /// The next step is loaded: what find() and add() do from here on is for that one, or for one that another thread
  /// loads. Returns the moment.
  std::uint64_t begin_step();
  /// Null if it is to be read.
  std::shared_ptr<const AttributeSet> find(const Key& key);
  void add(const Key& key, std::shared_ptr<const AttributeSet> set);
  /// The step has all its sets. Of those that no step since `begun` uses, some are kept for steps to come.
  void end_step(std::uint64_t begun);

  /// The attributes of parts with these sets, in order of ranks; for a name that several have, the first one's. Steps
  /// with the same sets as the one before share them.
  Merged merged(const std::vector<std::shared_ptr<const AttributeSet>>& sets);

 private:
  /// Of sets that the newest steps do not use.
  static constexpr std::size_t idle_bytes_max = std::size_t{64} << 20;

  struct Entry {
    std::shared_ptr<const AttributeSet> set;
    std::uint64_t used = 0;  ///< the moment
  };

  std::mutex mutex_;
  // Guarded by mutex_:
  std::map<Key, Entry> sets_;
  std::uint64_t now_ = 0;
  std::vector<std::shared_ptr<const AttributeSet>> merged_from_;
  Merged merged_;
};

/// The attributes of tables, in order; for a name that several have, the first one's.
std::vector<Attribute> merge_attributes(const std::vector<const format::AttributeTable*>& tables);

}  // namespace forebay::client
