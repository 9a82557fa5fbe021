// SPDX-License-Identifier: Apache-2.0
// The public calls of Step: boxes, blocks, single values.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/bounds.h"
#include "base/return_error.h"
#include "client/reading/block_reader.h"
#include "client/reading/step_impl.h"

namespace forebay {

using client::BlockReader;
using client::BoxPair;
using client::Extents;
using client::StepState;

namespace {

bool is_single_value(const VariableInfo& variable) {
  return variable.kind == ShapeKind::global_value || variable.kind == ShapeKind::local_value;
}

// Where in the caller's memory a box goes.
struct Destination {
  Extents shape;
  Extents start;
};

Result<Destination> destination(const Box& box, const MemoryLayout& memory, std::span<const std::uint64_t> zeros,
                                std::size_t element_bytes) {
  if (memory.count.empty() && memory.start.empty()) return Destination{box.count, zeros.first(box.count.size())};
  RETURN_IF_ERROR(client::check_box(memory.start, box.count, memory.count, "the memory selection"));
  if (!checked_bytes(memory.count, element_bytes))
    return fail(ErrorCode::invalid_argument, "the memory selection's array is too large");
  return Destination{memory.count, memory.start};
}

constexpr std::array<std::uint64_t, protocol::dimensions_max> zeros{};

// Calls `read`, and where the step is not pinned makes sure afterwards that it was still there.
template <class Read>
Result<void> guarded(const StepState& state, const VariableInfo& variable, Read&& read) {
  RETURN_IF_ERROR(state.pin().check());
  Result<void> done = read();
  // A step that is gone explains whatever else went wrong.
  RETURN_IF_ERROR(state.pin().check_after_read());
  if (!done)
    done.error().where =
        state.where() + ", variable " + variable.name + (done.error().where.empty() ? "" : ", " + done.error().where);
  return done;
}

std::span<const std::byte> value_bytes(const StepState::BlockReference& block) {
  if (block.variable->value() == nullptr) return {};
  return std::as_bytes(std::span(block.variable->value()->data(), block.variable->value()->size()));
}

}  // namespace

Step::Step(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Step::~Step() = default;

std::uint64_t Step::number() const {
  return impl_->state->summary().step;
}
std::uint32_t Step::epoch() const {
  return impl_->state->summary().epoch;
}
const StepSummary& Step::summary() const {
  return impl_->state->summary();
}
bool Step::pinned() const {
  return impl_->state->pin().pinned();
}
const std::vector<VariableInfo>& Step::variables() const {
  return impl_->state->variables();
}
const VariableInfo* Step::find(std::string_view name) const {
  return impl_->state->find(name);
}
const std::vector<Attribute>& Step::attributes() const {
  return impl_->state->attributes();
}

Result<void> Step::read(const VariableInfo& variable, const Box& box, void* out, const MemoryLayout& memory) const {
  const StepState& state = *impl_->state;
  ASSIGN_OR_RETURN(auto index, state.index_of(variable));
  const VariableInfo& info = state.variables()[index];
  if (info.kind == ShapeKind::global_value && box.count.empty() && box.start.empty()) return read_value(info, 0, out);
  if (info.kind == ShapeKind::local_array) {
    return fail(ErrorCode::invalid_argument,
                "variable " + info.name + " is a local array: its blocks are read one by one (read_block)",
                state.where());
  }
  if (info.type == DataType::string)
    return fail(ErrorCode::unsupported, "variable " + info.name + " holds strings; use read_string", state.where());
  if (auto checked = client::check_box(box.start, box.count, info.shape, "the box"); !checked) {
    return fail(ErrorCode::invalid_argument, "variable " + info.name + ": " + checked.error().what, state.where());
  }
  const std::size_t element_bytes = element_size(info.type);
  ASSIGN_OR_RETURN(auto to, destination(box, memory, zeros, element_bytes));
  auto* bytes = static_cast<std::byte*>(out);

  if (info.kind == ShapeKind::local_value) {
    for (std::uint64_t i = 0; i < box.count[0]; ++i) {
      const auto value = value_bytes(state.block(index, box.start[0] + i));
      std::memcpy(bytes + (to.start[0] + i) * element_bytes, value.data(), value.size());
    }
    return {};
  }
  return guarded(state, info, [&]() -> Result<void> {
    BlockReader reader(state);
    RETURN_IF_ERROR(state.for_each_block(
        index, [&](std::size_t number, const StepState::BlockReference& reference) -> Result<void> {
          const BlockInfo& block = info.blocks[number];
          const auto shared = client::intersect(block.start, block.count, box.start, box.count);
          if (!shared) return {};
          const std::size_t dimensions = box.count.size();
          std::array<std::uint64_t, protocol::dimensions_max> target{};
          for (std::size_t d = 0; d < dimensions; ++d) target[d] = to.start[d] + shared->in_box[d];
          const BoxPair pair{Extents(shared->count).first(dimensions), block.count,
                             Extents(shared->in_block).first(dimensions), to.shape, Extents(target).first(dimensions)};
          return reader.read_box(reference, pair, bytes);
        }));
    return reader.finish();
  });
}

Result<void> Step::read_block(const VariableInfo& variable, std::size_t block, const Box& box, void* out,
                              const MemoryLayout& memory) const {
  const StepState& state = *impl_->state;
  ASSIGN_OR_RETURN(auto index, state.index_of(variable));
  const VariableInfo& info = state.variables()[index];
  if (is_single_value(info)) return read_value(info, block, out);
  RETURN_IF_ERROR(impl_->check_block(info, block, box));
  ASSIGN_OR_RETURN(auto to, destination(box, memory, zeros, element_size(info.type)));
  return guarded(state, info, [&]() -> Result<void> {
    BlockReader reader(state);
    const BoxPair pair{box.count, info.blocks[block].count, box.start, to.shape, to.start};
    RETURN_IF_ERROR(reader.read_box(state.block(index, block), pair, static_cast<std::byte*>(out)));
    return reader.finish();
  });
}

Result<void> Step::Impl::check_block(const VariableInfo& info, std::size_t block, const Box& box) const {
  if (block >= info.blocks.size()) {
    return fail(ErrorCode::invalid_argument,
                "variable " + info.name + " has " + std::to_string(info.blocks.size()) + " blocks, there is no block " +
                    std::to_string(block),
                state->where());
  }
  if (auto checked = client::check_box(box.start, box.count, info.blocks[block].count, "the box"); !checked) {
    return fail(ErrorCode::invalid_argument,
                "variable " + info.name + ", block " + std::to_string(block) + ": " + checked.error().what,
                state->where());
  }
  return {};
}

Result<std::span<const std::byte>> Step::Impl::value(const VariableInfo& variable, std::size_t block) const {
  ASSIGN_OR_RETURN(auto index, state->index_of(variable));
  const VariableInfo& info = state->variables()[index];
  if (!is_single_value(info))
    return fail(ErrorCode::invalid_argument, "variable " + info.name + " is an array, not a single value",
                state->where());
  if (block >= info.blocks.size()) {
    return fail(ErrorCode::invalid_argument,
                "variable " + info.name + " has " + std::to_string(info.blocks.size()) + " values, there is no value " +
                    std::to_string(block),
                state->where());
  }
  return value_bytes(state->block(index, block));
}

Result<void> Step::read_value(const VariableInfo& variable, std::size_t block, void* out) const {
  ASSIGN_OR_RETURN(auto value, impl_->value(variable, block));
  if (variable.type == DataType::string)
    return fail(ErrorCode::invalid_argument, "variable " + variable.name + " holds strings; use read_string",
                impl_->state->where());
  std::memcpy(out, value.data(), value.size());
  return {};
}

Result<std::string> Step::read_string(const VariableInfo& variable, std::size_t block) const {
  ASSIGN_OR_RETURN(auto value, impl_->value(variable, block));
  if (variable.type != DataType::string)
    return fail(ErrorCode::invalid_argument, "variable " + variable.name + " holds no strings; use read_value",
                impl_->state->where());
  return std::string(reinterpret_cast<const char*>(value.data()), value.size());
}

Result<void> Step::verify(const VariableInfo* variable) const {
  const StepState& state = *impl_->state;
  std::size_t first = 0;
  std::size_t end = state.variables().size();
  if (variable != nullptr) {
    ASSIGN_OR_RETURN(first, state.index_of(*variable));
    end = first + 1;
  }
  for (std::size_t i = first; i < end; ++i) {
    const VariableInfo& info = state.variables()[i];
    if (is_single_value(info)) continue;
    RETURN_IF_ERROR(guarded(state, info, [&] {
      BlockReader reader(state);
      return state.for_each_block(
          i, [&](std::size_t, const StepState::BlockReference& reference) { return reader.verify(reference); });
    }));
  }
  return {};
}

}  // namespace forebay
