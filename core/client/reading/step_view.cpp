// SPDX-License-Identifier: Apache-2.0
// Views: the bytes of a step where they lie, mapped into the reader.
#include <algorithm>
#include <set>

#include "base/return_error.h"
#include "client/reading/block_reader.h"
#include "client/reading/step_impl.h"
#include "client/segments/mapping.h"

namespace forebay {

using client::StepState;

namespace {

/// `bytes` of a block in memory of this process, from a server on another node or from what another user writes: all of
/// it, or the box.
Result<std::shared_ptr<const client::Mapping>> fetched(const StepState& state, const StepState::BlockReference& block,
                                                       std::uint64_t bytes, const client::BoxPair* box) {
  ASSIGN_OR_RETURN(auto memory, client::Mapping::of_memory(bytes));
  client::BlockReader reader(state);
  auto read = box == nullptr ? reader.read_whole(block, memory->bytes().data())
                             : reader.read_box(block, *box, memory->bytes().data());
  if (read) read = reader.finish();
  // A step that is gone explains whatever else went wrong.
  RETURN_IF_ERROR(state.pin().check_after_read());
  RETURN_IF_ERROR(read);
  RETURN_IF_ERROR(memory->make_read_only());
  return std::shared_ptr<const client::Mapping>(std::move(memory));
}

/// What a view keeps: the step, so that its space is not used again, and the mapping.
struct ViewOwner {
  std::shared_ptr<const StepState> state;
  std::vector<std::shared_ptr<client::Segment>> segments;
  std::vector<std::shared_ptr<const void>> members;  ///< tells that something is mapped that they have
  std::shared_ptr<const client::Mapping> mapping;
};

/// Where the pieces lie one behind another in the mappings of their segments; null if they do not.
Result<const std::byte*> mapped_in_place(std::span<const format::Piece> pieces,
                                         std::span<const std::shared_ptr<client::Segment>> segments) {
  const std::byte* first = nullptr;
  const std::byte* end = nullptr;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    auto mapped = segments[i]->map();
    if (!mapped && pieces.size() > 1) return nullptr;  // The pieces alone may still find addresses.
    if (!mapped) return fail(std::move(mapped.error()));
    const std::byte* begin = *mapped + pieces[i].offset();
    if (i == 0) first = begin;
    if (i > 0 && begin != end) return nullptr;
    end = begin + pieces[i].length();
  }
  return first;
}

/// Finds the pieces of a block, and keeps with the owner what holds them where they are. False: the block is not to be
/// mapped, because some of it is on another node, or another user may write its segments, or too much is mapped
/// already. `where` is of the block, for errors.
Result<bool> hold_pieces(const StepState& state, const StepState::BlockReference& reference, const std::string& where,
                         std::vector<format::Piece>& pieces, ViewOwner& owner) {
  const client::Pin& pin = state.pin();
  if (!pin.pinned() || !(state.may_map() || state.link().options().trust_writer)) return false;
  const auto place = protocol::block_place(*reference.variable, reference.block);
  std::set<std::uint16_t> members;
  for (std::uint32_t i = 0; i < place.piece_count; ++i) {
    pieces.push_back(protocol::piece_of(*reference.variable, place.first_piece + i));
    const format::Piece& piece = pieces.back();
    if (piece.member() == 0 && state.link().is_remote()) return false;
    if (piece.member() != 0 && !state.link().segment_here(piece.segment(), piece.member())) return false;
    ASSIGN_OR_RETURN(auto segment, pin.segment(piece.segment()));
    if (segment->is_remote()) return false;
    auto checked = segment->check(piece.member(), piece.offset(), piece.length());
    if (checked) checked = segment->check_file(piece.offset(), piece.length());
    if (!checked) {
      checked.error().where = where + ", " + checked.error().where;
      return fail(std::move(checked.error()));
    }
    owner.segments.push_back(std::move(segment));
    if (piece.member() != 0) members.insert(piece.member());
  }
  for (const std::uint16_t member : members) {
    auto begun = state.link().begin_mapping(member);
    // What is here can be read in any case.
    const ErrorCode code = begun ? ErrorCode::protocol : begun.error().code;
    if (!begun && (code == ErrorCode::no_space || code == ErrorCode::unavailable)) return false;
    if (!begun) return fail(std::move(begun.error()));
    owner.members.push_back(std::move(*begun));
  }
  RETURN_IF_ERROR(pin.check_held());
  return true;
}

}  // namespace

Result<Step::View> Step::Impl::view(std::size_t variable, std::size_t block, const Box& box) const {
  const VariableInfo& info = state->variables()[variable];
  if (!state->pin().pinned() && !state->link().is_remote()) {
    return fail(ErrorCode::unsupported,
                "the step is not pinned (readers without a name hold too much of the reservation), so only copies are "
                "safe; use read",
                state->where());
  }
  RETURN_IF_ERROR(state->pin().check());
  const StepState::BlockReference reference = state->block(variable, block);
  const auto place = protocol::block_place(*reference.variable, reference.block);
  if (place.bytes == 0 || element_count(box.count) == 0)
    return fail(ErrorCode::unsupported, "a box without elements has no bytes to view; use read", state->where());
  auto owner = std::make_shared<ViewOwner>();
  owner->state = state;
  std::vector<format::Piece> pieces;
  ASSIGN_OR_RETURN(const bool held,
                   hold_pieces(*state, reference, state->where() + ", variable " + info.name, pieces, *owner));
  const bool copied = !held;
  if (!copied && state->link().options().verify == Verify::first && !state->is_verified(reference)) {
    client::BlockReader reader(*state);
    if (auto verified = reader.verify(reference); !verified) {
      verified.error().where = state->where() + ", variable " + info.name + ", " + verified.error().where;
      return fail(std::move(verified.error()));
    }
  }

  View view;
  // A checksum is of the whole block.
  const Verify verify = state->link().options().verify;
  const bool checks = verify == Verify::read || (verify == Verify::first && !state->is_verified(reference));
  const bool box_only = copied && !checks && box.count != info.blocks[block].count;
  if (copied) {
    const Dimensions origin(box.count.size(), 0);
    const client::BoxPair pair{box.count, info.blocks[block].count, box.start, box.count, origin};
    const std::uint64_t bytes = box_only ? element_count(box.count) * element_size(info.type) : place.bytes;
    auto memory = fetched(*state, reference, bytes, box_only ? &pair : nullptr);
    if (!memory) {
      memory.error().where = state->where() + ", variable " + info.name + ", " + memory.error().where;
      return fail(std::move(memory.error()));
    }
    owner->mapping = std::move(*memory);
    view.data = owner->mapping->bytes().data();
  }
  if (!copied) {
    ASSIGN_OR_RETURN(view.data, mapped_in_place(pieces, owner->segments));
  }
  if (view.data == nullptr) {
    ASSIGN_OR_RETURN(auto mapping, client::Mapping::map(state->link().segments(), pieces, false));
    view.data = mapping->bytes().data();
    owner->mapping = std::move(mapping);
  }

  const Dimensions& extents = box_only ? box.count : info.blocks[block].count;
  view.strides_bytes.resize(extents.size());
  std::uint64_t stride = element_size(info.type);
  for (std::size_t d = extents.size(); d-- > 0;) {
    view.strides_bytes[d] = static_cast<std::int64_t>(stride);
    if (!box_only) view.data += box.start[d] * stride;
    stride *= extents[d];
  }
  view.owner = std::move(owner);
  return view;
}

Result<Step::View> Step::view_block(const VariableInfo& variable, std::size_t block, const Box& box) const {
  ASSIGN_OR_RETURN(auto index, impl_->state->index_of(variable));
  const VariableInfo& info = impl_->state->variables()[index];
  if (info.kind == ShapeKind::global_value || info.kind == ShapeKind::local_value) {
    ASSIGN_OR_RETURN(auto value, impl_->value(info, block));
    return View{value.data(), {}, impl_->state};
  }
  RETURN_IF_ERROR(impl_->check_block(info, block, box));
  return impl_->view(index, block, box);
}

Result<Step::FileParts> Step::file_parts(const VariableInfo& variable, std::size_t block) const {
  const StepState& state = *impl_->state;
  ASSIGN_OR_RETURN(auto index, state.index_of(variable));
  const VariableInfo& info = state.variables()[index];
  const bool is_value = info.kind == ShapeKind::global_value || info.kind == ShapeKind::local_value;
  if (is_value) return FileParts{};
  if (block >= info.blocks.size()) {
    return fail(ErrorCode::invalid_argument,
                "variable " + info.name + " has " + std::to_string(info.blocks.size()) + " blocks", state.where());
  }
  RETURN_IF_ERROR(state.pin().check());
  auto owner = std::make_shared<ViewOwner>();
  owner->state = impl_->state;
  std::vector<format::Piece> pieces;
  ASSIGN_OR_RETURN(const bool held, hold_pieces(state, state.block(index, block),
                                                state.where() + ", variable " + info.name, pieces, *owner));
  if (!held) return FileParts{};
  FileParts found;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const int descriptor = owner->segments[i]->file().descriptor();
    if (descriptor < 0) return FileParts{};
    found.parts.push_back({descriptor, pieces[i].offset(), pieces[i].length()});
  }
  found.owner = std::move(owner);
  return found;
}

Result<Step::View> Step::view(const VariableInfo& variable, const Box& box) const {
  ASSIGN_OR_RETURN(auto index, impl_->state->index_of(variable));
  const VariableInfo& info = impl_->state->variables()[index];
  if (info.kind == ShapeKind::global_value && box.count.empty()) return view_block(info, 0, box);
  if (info.kind == ShapeKind::local_array) {
    return fail(ErrorCode::invalid_argument,
                "variable " + info.name + " is a local array: its blocks are viewed one by one (view_block)",
                impl_->state->where());
  }
  if (auto checked = client::check_box(box.start, box.count, info.shape, "the box"); !checked) {
    return fail(ErrorCode::invalid_argument, "variable " + info.name + ": " + checked.error().what,
                impl_->state->where());
  }
  const auto merge = [&] {
    return fail(ErrorCode::unsupported,
                "no single block of variable " + info.name +
                    " covers the box, so there is nothing to view in one piece; use read",
                impl_->state->where());
  };
  if (info.kind == ShapeKind::local_value) {
    if (box.count[0] != 1) return merge();
    ASSIGN_OR_RETURN(auto value, impl_->value(info, box.start[0]));
    return View{value.data(), {static_cast<std::int64_t>(element_size(info.type))}, impl_->state};
  }
  // Later blocks win, so the last one that has any of it must have all of it.
  for (std::size_t block = info.blocks.size(); block-- > 0;) {
    const BlockInfo& candidate = info.blocks[block];
    const auto shared = client::intersect(candidate.start, candidate.count, box.start, box.count);
    if (!shared) continue;
    if (!std::equal(box.count.begin(), box.count.end(), shared->count.begin())) return merge();
    Box relative{
        Dimensions(shared->in_block.begin(), shared->in_block.begin() + static_cast<std::ptrdiff_t>(box.count.size())),
        box.count};
    return impl_->view(index, block, relative);
  }
  return merge();
}

}  // namespace forebay
