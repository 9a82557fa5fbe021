// SPDX-License-Identifier: Apache-2.0
#include "client/reading/step_state.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/bounds.h"
#include "base/checksum.h"
#include "base/coverage.h"
#include "base/return_error.h"
#include "protocol/record_conversion.h"
#include "protocol/step_agreement.h"

namespace forebay {

std::string fault_of(const VariableInfo& variable) {
  if (!variable.conflict.empty()) return "it cannot be read: " + variable.conflict;
  if (variable.kind != ShapeKind::global_array) return {};
  // What most programs write needs no counting.
  if (variable.blocks.size() == 1 && variable.blocks.front().count == variable.shape) return {};
  std::vector<CoveringBlock> blocks;
  blocks.reserve(variable.blocks.size());
  for (const BlockInfo& block : variable.blocks) blocks.push_back({block.start, block.count, block.rank});
  return to_text(coverage_of(variable.shape, blocks));
}

}  // namespace forebay

namespace forebay::client {

using protocol::block_count;
using protocol::kind_of;
using protocol::name_of;
using protocol::type_of;

namespace {

std::vector<std::uint64_t> copy_of(std::span<const std::uint64_t> numbers) {
  return {numbers.begin(), numbers.end()};
}

std::vector<wire::Extent> extents_of(const flatbuffers::Vector<const wire::Extent*>* extents) {
  std::vector<wire::Extent> list;
  if (extents == nullptr) return list;
  for (const wire::Extent* extent : *extents) list.push_back(*extent);
  return list;
}

std::span<const std::uint64_t> shape_of(const format::Variable& variable) {
  return variable.shape() == nullptr ? std::span<const std::uint64_t>()
                                     : std::span(variable.shape()->data(), variable.shape()->size());
}

void append_blocks(VariableInfo& info, const format::Variable& variable, std::uint32_t rank) {
  if (protocol::is_single_value(variable)) {
    BlockInfo& block = info.blocks.emplace_back();
    block.rank = rank;
    block.size_bytes = variable.value() == nullptr ? 0 : variable.value()->size();
    return;
  }
  const std::uint32_t blocks = block_count(variable);
  const std::size_t dimensions = variable.dimensions();
  info.blocks.reserve(info.blocks.size() + blocks);
  for (std::uint32_t i = 0; i < blocks; ++i) {
    BlockInfo& block = info.blocks.emplace_back();
    block.rank = rank;
    block.count = copy_of(protocol::block_extents(variable, i));
    if (variable.starts() != nullptr) {
      const std::uint64_t* start = variable.starts()->data() + i * dimensions;
      block.start.assign(start, start + dimensions);
    }
    block.size_bytes = protocol::block_bytes(variable, i);
    if (variable.checksums() != nullptr) {
      block.has_checksum = true;
      block.checksum = variable.checksums()->Get(i);
    }
    if (variable.statistics() != nullptr && block.size_bytes > 0) {
      block.has_statistics = true;
      std::memcpy(block.min, variable.statistics()->data() + i * protocol::statistics_bytes, sizeof block.min);
      std::memcpy(block.max, variable.statistics()->data() + i * protocol::statistics_bytes + sizeof block.min,
                  sizeof block.max);
    }
  }
}

// Lays the blocks of a joined array one after another, and says how many local values there are. False on overflow.
bool complete(VariableInfo& info) {
  if (info.kind == ShapeKind::local_value) info.shape = {info.blocks.size()};
  if (info.kind != ShapeKind::joined_array) return true;
  const std::size_t joined =
      static_cast<std::size_t>(std::ranges::find(info.shape, joined_dimension) - info.shape.begin());
  std::uint64_t next = 0;
  for (BlockInfo& block : info.blocks) {
    block.start.assign(info.shape.size(), 0);
    block.start[joined] = next;
    const auto end = checked_add(next, block.count[joined]);
    if (!end) return false;
    next = *end;
  }
  info.shape[joined] = next;
  return true;
}

}  // namespace

Result<std::shared_ptr<const StepState>> StepState::load(std::shared_ptr<Pin> pin,
                                                         const wire::StepDescriptor& descriptor) {
  StepSummary summary;
  if (descriptor.summary() != nullptr) summary = protocol::from_wire(*descriptor.summary());
  std::shared_ptr<StepState> state(
      new StepState(std::move(pin), std::move(summary), descriptor.fresh(), descriptor.may_map()));
  AttributeSets& sets = state->link().attribute_sets();
  const std::uint64_t begun = sets.begin_step();
  if (descriptor.parts() != nullptr) {
    state->parts_.reserve(descriptor.parts()->size());
    for (const wire::PartReference* reference : *descriptor.parts()) {
      auto part = state->load_part(*reference);
      if (!part) {
        // Bytes of a step that was not pinned may have been written anew.
        if (!state->pin().pinned()) {
          RETURN_IF_ERROR(state->pin().check_kept());
        }
        part.error().where = state->where() + ", metadata of rank " + std::to_string(reference->rank()) +
                             (part.error().where.empty() ? "" : ", " + part.error().where);
        return fail(std::move(part.error()));
      }
      state->parts_.push_back(std::move(*part));
    }
  }
  sets.end_step(begun);
  std::ranges::stable_sort(state->parts_, {}, &Part::rank);
  return state;
}

Result<std::unique_ptr<std::byte[]>> StepState::read_checked(const std::vector<wire::Extent>& extents,
                                                             std::uint64_t bytes, std::uint32_t crc, const char* what,
                                                             bool may_be_carried) const {
  const auto do_not_add_up = [&](std::string place) {
    return fail(ErrorCode::corrupt, std::string("the extents of ") + what + " do not add up to its size",
                std::move(place));
  };
  std::uint64_t total = 0;
  std::vector<std::shared_ptr<Segment>> segments;
  for (const wire::Extent& extent : extents) {
    ASSIGN_OR_RETURN(auto segment, pin_->segment(extent.segment()));
    RETURN_IF_ERROR(segment->check(extent.member(), extent.offset(), extent.length()));
    if (extent.length() > bytes - total) return do_not_add_up(segment->place(extent.offset()));
    total += extent.length();
    segments.push_back(std::move(segment));
  }
  if (total != bytes || bytes == 0) return do_not_add_up({});
  auto read = std::make_unique_for_overwrite<std::byte[]>(bytes);
  std::span<std::byte> rest(read.get(), bytes);
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const std::span<std::byte> out = rest.first(extents[i].length());
    RETURN_IF_ERROR(link().is_remote() && !may_be_carried ? link().fetch(*pin_, {&extents[i], 1}, out)
                                                          : segments[i]->file().read_at(extents[i].offset(), out));
    rest = rest.subspan(extents[i].length());
  }
  if (crc32c({read.get(), bytes}) != crc) {
    return fail(ErrorCode::corrupt, std::string(what) + " does not match its checksum",
                segments.front()->place(extents.front().offset()));
  }
  return read;
}

Result<StepState::Part> StepState::load_part(const wire::PartReference& reference) const {
  Part part;
  part.rank = reference.rank();
  const std::uint64_t bytes = reference.metadata_bytes();
  ASSIGN_OR_RETURN(part.bytes, read_checked(extents_of(reference.metadata()), bytes, reference.metadata_crc(),
                                            "step metadata", true));
  ASSIGN_OR_RETURN(part.metadata, protocol::decode_step_metadata({part.bytes.get(), bytes}));
  if (part.metadata->rank() != part.rank) return fail(ErrorCode::corrupt, "step metadata is that of another rank");
  if (reference.attributes() != nullptr) {
    ASSIGN_OR_RETURN(part.attributes, load_attributes(*reference.attributes(), part.rank));
  }
  return part;
}

Result<std::shared_ptr<const AttributeSet>> StepState::load_attributes(const wire::AttributeSet& reference,
                                                                       std::uint32_t rank) const {
  AttributeSets& sets = link().attribute_sets();
  const AttributeSets::Key key{summary_.epoch, reference.step(), rank};
  if (auto known = sets.find(key)) return known;
  // The last page is not full.
  std::vector<wire::Extent> extents = extents_of(reference.extents());
  std::uint64_t left = reference.bytes();
  for (wire::Extent& extent : extents) {
    const std::uint64_t length = std::min(extent.length(), left);
    extent = wire::Extent(extent.segment(), extent.member(), 0, extent.offset(), length);
    left -= length;
  }
  auto set = std::make_shared<AttributeSet>();
  set->size = reference.bytes();
  ASSIGN_OR_RETURN(set->bytes, read_checked(extents, set->size, reference.crc(), "an attribute set", false));
  ASSIGN_OR_RETURN(set->table, protocol::decode_attributes({set->bytes.get(), set->size}));
  sets.add(key, set);
  return std::shared_ptr<const AttributeSet>(std::move(set));
}

StepState::~StepState() {
  if (read_ahead_.buffer) link().buffers().give_back(std::move(read_ahead_.buffer));
}

std::string StepState::where() const {
  return link().where() + ", step " + std::to_string(summary_.step);
}

const StepState::Index& StepState::index() const {
  return index_.get([this] { return build_index(); });
}

StepState::Index StepState::build_index() const {
  Index index;
  std::unordered_map<std::string_view, std::uint32_t> by_name;
  for (const Part& part : parts_) add_to_index(part, index, by_name);
  for (std::size_t i = 0; i < index.variables.size(); ++i) {
    if (!complete(index.variables[i])) index.variables[i].conflict = "the blocks of the joined array are too many";
  }
  return index;
}

void StepState::add_to_index(const Part& part, Index& index,
                             std::unordered_map<std::string_view, std::uint32_t>& by_name) {
  const auto* variables = part.metadata->variables();
  if (variables == nullptr) return;
  const bool first_part = index.variables.empty();
  const std::size_t known = index.variables.size();
  if (!first_part && by_name.empty()) {
    by_name.reserve(known);
    for (std::uint32_t i = 0; i < known; ++i) by_name.emplace(name_of(*index.sources[index.ends[i].first].variable), i);
  }
  if (first_part) {
    index.variables.reserve(variables->size());
    index.sources.reserve(variables->size());
    index.ends.reserve(variables->size());
  }
  std::uint32_t position = 0;
  for (const format::Variable* variable : *variables) {
    const std::uint32_t likely = position++;
    std::optional<std::uint32_t> found;
    if (!first_part) {
      // Ranks mostly write the same variables in the same order.
      if (likely < known && index.variables[likely].name == name_of(*variable)) {
        found = likely;
      } else if (const auto entry = by_name.find(name_of(*variable)); entry != by_name.end()) {
        found = entry->second;
      }
    }
    const auto source = static_cast<std::uint32_t>(index.sources.size());
    if (!found) {
      const auto added = static_cast<std::uint32_t>(index.variables.size());
      VariableInfo& info = index.variables.emplace_back();
      info.name = name_of(*variable);
      info.type = type_of(*variable);
      info.kind = kind_of(*variable);
      info.shape = copy_of(shape_of(*variable));
      index.ends.emplace_back(source, source);
      index.sources.push_back({variable, 0, block_count(*variable), 0});
      append_blocks(info, *variable, part.rank);
      if (!first_part) by_name.emplace(name_of(*variable), added);
      continue;
    }
    VariableInfo& info = index.variables[*found];
    auto& [first, last] = index.ends[*found];
    const format::Variable& defined = *index.sources[first].variable;
    if (const char* conflict = protocol::conflict_between(defined, *variable)) {
      const std::uint32_t rank = info.blocks.empty() ? 0 : info.blocks.front().rank;
      if (info.conflict.empty())
        info.conflict = "ranks wrote it with " + protocol::conflict_text(conflict, rank, defined, part.rank, *variable);
      continue;
    }
    index.sources.push_back({variable, static_cast<std::uint32_t>(info.blocks.size()), block_count(*variable), 0});
    index.sources[last].next = source;
    last = source;
    append_blocks(info, *variable, part.rank);
  }
}

const std::vector<VariableInfo>& StepState::variables() const {
  return index().variables;
}

const VariableInfo* StepState::find(std::string_view name) const {
  const Index& all = index();
  const auto& names = names_.get([&] {
    std::unordered_map<std::string_view, std::uint32_t> made;
    made.reserve(all.variables.size());
    for (std::uint32_t i = 0; i < all.variables.size(); ++i) made.emplace(all.variables[i].name, i);
    return made;
  });
  const auto found = names.find(name);
  return found == names.end() ? nullptr : &all.variables[found->second];
}

const std::vector<Attribute>& StepState::attributes() const {
  return *attributes_.get([this] { return merge(); });
}

AttributeSets::Merged StepState::merge() const {
  std::vector<const format::AttributeTable*> tables;
  std::vector<std::shared_ptr<const AttributeSet>> sets;
  for (const Part& part : parts_) {
    if (part.attributes) sets.push_back(part.attributes);
    const auto* table = part.attributes ? part.attributes->table : protocol::attributes_of(*part.metadata);
    if (table != nullptr) tables.push_back(table);
  }
  if (!sets.empty() && sets.size() == tables.size()) return link().attribute_sets().merged(sets);
  return std::make_shared<const std::vector<Attribute>>(merge_attributes(tables));
}

Result<std::size_t> StepState::index_of(const VariableInfo& variable) const {
  const Index& all = index();
  const VariableInfo* found = &variable;
  const std::less<const VariableInfo*> before;
  if (all.variables.empty() || before(found, all.variables.data()) ||
      !before(found, all.variables.data() + all.variables.size()))
    found = find(variable.name);
  if (found == nullptr) return fail(ErrorCode::not_found, "the step has no variable " + variable.name, where());
  const auto position = static_cast<std::size_t>(found - all.variables.data());
  if (!found->conflict.empty()) {
    return fail(ErrorCode::invalid_argument, "variable " + variable.name + " cannot be read: " + found->conflict,
                where());
  }
  return position;
}

StepState::BlockReference StepState::block(std::size_t variable, std::size_t block) const {
  const Index& all = index();
  std::uint32_t source = all.ends[variable].first;
  while (block >= all.sources[source].first_block + all.sources[source].block_count) source = all.sources[source].next;
  return {all.sources[source].variable, static_cast<std::uint32_t>(block - all.sources[source].first_block), block};
}

bool StepState::is_verified(const BlockReference& block) const {
  const std::lock_guard lock(verified_mutex_);
  return verified_.contains({block.variable, block.block});
}

void StepState::set_verified(const BlockReference& block) const {
  const std::lock_guard lock(verified_mutex_);
  verified_.emplace(block.variable, block.block);
}

Result<void> StepState::compare(const BlockReference& block, std::uint32_t checksum, std::uint32_t taken) const {
  if (taken == checksum) {
    set_verified(block);
    return {};
  }
  const auto place = protocol::block_place(*block.variable, block.block);
  const format::Piece& piece = protocol::piece_of(*block.variable, place.first_piece);
  return fail(ErrorCode::corrupt,
              "the block does not match its checksum; the step's data has changed on the SSD or on the way",
              "block " + std::to_string(block.number) + ", segment " + std::to_string(piece.segment()) + " @ " +
                  std::to_string(piece.offset()));
}

}  // namespace forebay::client
