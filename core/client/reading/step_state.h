// SPDX-License-Identifier: Apache-2.0
// One step as a reader holds it: its pin, the metadata of all ranks, and what is made of that when it is first asked
// for. Steps and views share it. Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <forebay/reader.h>

#include "base/made_once.h"
#include "base/return_error.h"
#include "client/reading/reader_link.h"
#include "protocol/step_metadata.h"

namespace forebay::client {

class StepState {
 public:
  /// A block in the metadata of the rank that wrote it.
  struct BlockReference {
    const format::Variable* variable = nullptr;
    std::uint32_t block = 0;  ///< of this rank's variable
    std::size_t number = 0;   ///< of all blocks, as readers count them
  };

  /// Reads, checks and decodes the metadata of a step that was delivered. Errors: corrupt, step_gone, io_error.
  static Result<std::shared_ptr<const StepState>> load(std::shared_ptr<Pin> pin,
                                                       const wire::StepDescriptor& descriptor);

  ~StepState();
  StepState(const StepState&) = delete;
  StepState& operator=(const StepState&) = delete;

  const Pin& pin() const noexcept { return *pin_; }
  ReaderLink& link() const noexcept { return pin_->link(); }
  const StepSummary& summary() const noexcept { return summary_; }
  /// "stream run1/flow, step 17".
  std::string where() const;

  const std::vector<VariableInfo>& variables() const;
  const VariableInfo* find(std::string_view name) const;
  const std::vector<Attribute>& attributes() const;

  /// Position in variables() of one of them, or of the one with the same name if it is a copy. not_found if there is
  /// none, invalid_argument if the ranks wrote things under this name that do not go together.
  Result<std::size_t> index_of(const VariableInfo& variable) const;
  /// Block `block` of VariableInfo::blocks.
  BlockReference block(std::size_t variable, std::size_t block) const;
  /// Calls visit(block number, BlockReference) for each block in order, returning Result<void>.
  template <class Visit>
  Result<void> for_each_block(std::size_t variable, Visit&& visit) const;

  /// The stretch of a segment that was read last for the sake of a few bytes: what follows mostly is asked for next.
  struct ReadAhead {
    std::mutex mutex;  ///< whoever does not get it at once reads without
    std::uint32_t segment = 0;
    std::uint16_t member = 0;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    std::uint64_t last_end = 0;
    BufferPool::Buffer buffer;
  };
  ReadAhead& read_ahead() const noexcept { return read_ahead_; }

  /// The server had committed it just before it gave it out.
  bool is_fresh() const noexcept { return fresh_; }
  /// A view of it does not fault unless the reader's own user, root or the server's user truncates a segment.
  bool may_map() const noexcept { return may_map_; }

  /// True if the block has been found whole already (Verify::first and automatic).
  bool is_verified(const BlockReference& block) const;
  void set_verified(const BlockReference& block) const;
  /// corrupt if the checksum that was taken of all its bytes is not the block's, which is noted as whole else.
  Result<void> compare(const BlockReference& block, std::uint32_t checksum, std::uint32_t taken) const;

 private:
  struct Part {
    std::uint32_t rank = 0;
    std::unique_ptr<std::byte[]> bytes;
    const format::StepMetadata* metadata = nullptr;
    std::shared_ptr<const AttributeSet> attributes;  ///< null: the metadata has them, or there are none
  };
  /// Blocks of one variable that come from one rank.
  struct Source {
    const format::Variable* variable = nullptr;
    std::uint32_t first_block = 0;
    std::uint32_t block_count = 0;
    std::uint32_t next = 0;  ///< in sources_, of the same variable; 0: none
  };
  struct Index {
    std::vector<VariableInfo> variables;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> ends;  ///< first and last source of each variable
    std::vector<Source> sources;
  };

  StepState(std::shared_ptr<Pin> pin, StepSummary summary, bool fresh, bool may_map) noexcept
      : pin_(std::move(pin)), summary_(std::move(summary)), fresh_(fresh), may_map_(may_map) {}
  Result<Part> load_part(const wire::PartReference& reference) const;
  Result<std::shared_ptr<const AttributeSet>> load_attributes(const wire::AttributeSet& reference,
                                                              std::uint32_t rank) const;
  /// `bytes` from these extents, whose lengths add up to it, with this checksum. `what` names them in errors.
  /// `may_be_carried`: they are in the step's own space, which a small remote step brings along.
  Result<std::unique_ptr<std::byte[]>> read_checked(const std::vector<wire::Extent>& extents, std::uint64_t bytes,
                                                    std::uint32_t crc, const char* what, bool may_be_carried) const;
  AttributeSets::Merged merge() const;
  const Index& index() const;
  Index build_index() const;
  static void add_to_index(const Part& part, Index& index,
                           std::unordered_map<std::string_view, std::uint32_t>& by_name);

  // Constant after load().
  const std::shared_ptr<Pin> pin_;
  const StepSummary summary_;
  const bool fresh_;
  const bool may_map_;
  std::vector<Part> parts_;

  mutable MadeOnce<Index> index_;
  mutable MadeOnce<std::unordered_map<std::string_view, std::uint32_t>> names_;
  mutable MadeOnce<AttributeSets::Merged> attributes_;
  mutable ReadAhead read_ahead_;
  mutable std::mutex verified_mutex_;
  mutable std::set<std::pair<const format::Variable*, std::uint32_t>> verified_;  // guarded by verified_mutex_
};

template <class Visit>
Result<void> StepState::for_each_block(std::size_t variable, Visit&& visit) const {
  const Index& all = index();
  std::size_t number = 0;
  std::uint32_t source = all.ends[variable].first;
  do {
    const Source& from = all.sources[source];
    for (std::uint32_t block = 0; block < from.block_count; ++block, ++number) {
      RETURN_IF_ERROR(visit(number, BlockReference{from.variable, block, number}));
    }
    source = from.next;
  } while (source != 0);
  return {};
}

}  // namespace forebay::client
