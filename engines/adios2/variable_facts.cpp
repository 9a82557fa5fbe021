// SPDX-License-Identifier: Apache-2.0
// Built-in engines write these facts into the core variable; a plugin only has the public adios2::Variable. So the
// members are found in memory: SetStepSelection shows where the step selection lies, and the members needed here
// surround it. Nothing is written unless the memory around it looks as in ADIOS2 2.12, and nothing is used unless the
// public interface then returns what was written. Otherwise ADIOS2 is left alone.
#include "variable_facts.h"

#include <atomic>
#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <type_traits>

#include "known_versions.h"
#include "variable_selection.h"

// Of ADIOS2's core, declared in a header that it does not install.
extern "C" __attribute__((weak)) const char adios2_version_str[];

namespace forebay::engine {
namespace {

// The end of ADIOS2 2.12's core::VariableBase, from m_AvailableStepsStart on.
struct BaseTail {
  std::size_t available_steps_start, available_steps_count;
  std::size_t steps_start, steps_count;
  std::size_t joined_dimension, index_start;
  const void* engine;
  adios2::Accuracy requested, provided;
  std::map<std::size_t, std::vector<std::size_t>> step_offsets;  // by the step's number, from 1
  std::map<std::size_t, adios2::Dims> shapes;                    // by the index among the variable's steps, from 1
  std::set<std::string> prefixed_variables, prefixed_attributes;
  bool constant_dimensions;
  unsigned int deferred_counter;
};

// The tail begins behind at least the pointer to the virtual functions, the name and the element size, and a core
// variable is longer than this and the tail together.
constexpr std::size_t tail_offset_max = 320;

// Where BaseTail begins in a core variable; 0: unknown.
std::atomic<std::size_t> tail_offset = 0;

std::size_t word_at(const std::byte* place) {
  std::size_t word = 0;
  std::memcpy(&word, place, sizeof word);
  return word;
}

// core::Variable<T> begins with a pointer, its minimum and its maximum.
template <class T>
T* min_and_max(std::byte* core, std::size_t offset) {
  const std::size_t behind = offset + sizeof(BaseTail) + sizeof(const T*);
  return reinterpret_cast<T*>(core + (behind + alignof(T) - 1) / alignof(T) * alignof(T));
}

// True for an empty map or set of libstdc++: its header is coloured red (0), has no root, and is both its leftmost and
// its rightmost.
template <class Tree>
bool is_empty_tree(const Tree& tree) {
  const std::byte* header = reinterpret_cast<const std::byte*>(&tree) + sizeof(void*);
  const auto itself = reinterpret_cast<std::size_t>(header);
  return (word_at(header) & 0xffff'ffffU) == 0 && word_at(header + 8) == 0 && word_at(header + 16) == itself &&
         word_at(header + 24) == itself && word_at(header + 32) == 0;
}

// True if this looks like the tail of a new variable, whose steps were selected, and what follows like the start of a
// core::Variable<double>.
bool looks_right(const BaseTail& tail, std::size_t steps_start, std::size_t steps_count) {
  const auto* end = reinterpret_cast<const std::byte*>(&tail) + sizeof(BaseTail);
  return tail.steps_start == steps_start && tail.steps_count == steps_count && tail.available_steps_start == 0 &&
         tail.available_steps_count == 0 && tail.joined_dimension == 0 && tail.index_start == 0 &&
         tail.engine == nullptr && is_empty_tree(tail.step_offsets) && is_empty_tree(tail.shapes) &&
         is_empty_tree(tail.prefixed_variables) && is_empty_tree(tail.prefixed_attributes) && word_at(end) == 0 &&
         word_at(end + 8) == 0 && word_at(end + 16) == 0;
}

template <class T>
T element(const std::array<std::byte, 16>& bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

template <class T>
constexpr bool is_ordered = std::is_arithmetic_v<T>;

template <class T>
void store(std::byte* core, std::size_t offset, const VariableFacts& facts) {
  BaseTail& tail = *reinterpret_cast<BaseTail*>(core + offset);
  tail.available_steps_count = facts.steps_count;
  if constexpr (is_ordered<T>) {
    T* range = min_and_max<T>(core, offset);
    range[0] = facts.range ? element<T>(facts.range->min) : std::numeric_limits<T>::max();
    range[1] = facts.range ? element<T>(facts.range->max) : std::numeric_limits<T>::lowest();
  }
  tail.step_offsets.clear();
  tail.shapes.clear();
  for (std::size_t i = 0; i < facts.by_step.size(); ++i) {
    tail.step_offsets[facts.by_step[i].number + 1];
    if (!facts.by_step[i].shape.empty()) tail.shapes[i + 1] = facts.by_step[i].shape;
  }
}

// Whether a new variable of this type answers with what is stored in it.
template <class T>
bool answers(adios2::IO io, std::size_t offset) {
  const std::string name = "forebay facts check";
  auto variable = io.DefineVariable<T>(name, {8, 8}, {0, 0}, {8, 8});
  VariableFacts facts;
  facts.steps_count = 12'345;
  facts.range.emplace();
  const T min{3}, max{5};
  std::memcpy(facts.range->min.data(), &min, sizeof min);
  std::memcpy(facts.range->max.data(), &max, sizeof max);
  facts.by_step = {{20, {8, 8}}, {30, {9, 9}}};
  store<T>(static_cast<std::byte*>(core_variable(variable)), offset, facts);
  bool right = variable.Steps() == 12'345 && variable.StepsStart() == 0 && variable.Min() == min &&
               variable.Max() == max && variable.Shape() == adios2::Dims{8, 8};
  variable.SetStepSelection({1, 1});
  right = right && variable.Shape() == adios2::Dims{9, 9};
  io.RemoveVariable(name);
  return right;
}

std::size_t find_tail(adios2::IO io) {
  const std::string name = "forebay facts check";
  auto variable = io.DefineVariable<double>(name, {8, 8}, {0, 0}, {8, 8});
  const std::size_t steps_start = 0x5e1ec7ed, steps_count = 0xc0057a21;
  variable.SetStepSelection({steps_start, steps_count});
  const auto* core = static_cast<const std::byte*>(core_variable(variable));
  std::size_t found = 0;
  for (std::size_t offset = sizeof(void*); core != nullptr && offset <= tail_offset_max; offset += sizeof(void*)) {
    const auto& tail = *reinterpret_cast<const BaseTail*>(core + offset);
    if (tail.steps_start != steps_start) continue;
    if (looks_right(tail, steps_start, steps_count)) found = offset;
    break;
  }
  io.RemoveVariable(name);
  return found;
}

template <class T>
bool less(const std::array<std::byte, 16>& left, const std::array<std::byte, 16>& right) {
  return element<T>(left) < element<T>(right);
}

}  // namespace

bool is_nan(const std::byte* value, DataType type) {
  bool result = false;
  with_type(type, [&]<class T>() {
    if constexpr (std::is_floating_point_v<T>) {
      T number;
      std::memcpy(&number, value, sizeof number);
      result = number != number;
    }
  });
  return result;
}

void widen(VariableFacts& facts, const VariableFacts& other, DataType type) {
  if (!other.range || is_nan(other.range->min.data(), type)) return;
  if (!facts.range) {
    facts.range = other.range;
    return;
  }
  with_type(type, [&]<class T>() {
    if constexpr (is_ordered<T>) {
      if (less<T>(other.range->min, facts.range->min)) facts.range->min = other.range->min;
      if (less<T>(facts.range->max, other.range->max)) facts.range->max = other.range->max;
    }
  });
}

VariableFacts facts_of(const Step& step, const VariableInfo& variable) {
  VariableFacts facts;
  if (!has_order(variable.type)) return facts;
  const bool value = variable.kind == ShapeKind::global_value || variable.kind == ShapeKind::local_value;
  for (std::size_t i = 0; i < variable.blocks.size(); ++i) {
    const BlockInfo& block = variable.blocks[i];
    VariableFacts one;
    one.range.emplace();
    if (value) {
      if (!step.read_value(variable, i, one.range->min.data())) continue;
      one.range->max = one.range->min;
    } else if (block.has_statistics) {
      std::memcpy(one.range->min.data(), block.min, sizeof block.min);
      std::memcpy(one.range->max.data(), block.max, sizeof block.max);
    } else if (block.size_bytes > 0) {
      facts.range.reset();  // written without statistics
      return facts;
    } else {
      continue;
    }
    widen(facts, one, variable.type);
  }
  return facts;
}

namespace {

// Null where it must not be written to. Each variable is asked once more: the place must hold what ADIOS2 answers.
template <class T>
BaseTail* tail_of(const adios2::Variable<T>& variable) {
  const std::size_t offset = tail_offset.load(std::memory_order_acquire);
  auto* const core = static_cast<std::byte*>(core_variable(variable));
  if (offset == 0 || core == nullptr) return nullptr;
  auto* const tail = reinterpret_cast<BaseTail*>(core + offset);
  const bool right =
      tail->available_steps_start == variable.StepsStart() && tail->available_steps_count == variable.Steps();
  return right ? tail : nullptr;
}

}  // namespace

template <class T>
void set_facts(const adios2::Variable<T>& variable, const VariableFacts& facts) {
  if (tail_of(variable) == nullptr) return;
  store<T>(static_cast<std::byte*>(core_variable(variable)), tail_offset.load(std::memory_order_acquire), facts);
}

template <class T>
void set_engine(const adios2::Variable<T>& variable, const void* core) {
  if (BaseTail* tail = tail_of(variable)) tail->engine = core;
}

template <class T>
void unset_engine(const adios2::Variable<T>& variable, const void* core) {
  if (BaseTail* tail = tail_of(variable); tail != nullptr && tail->engine == core) tail->engine = nullptr;
}

bool check_facts(adios2::IO io) {
  // Where this throws, the next one tries again.
  static const std::size_t checked = [&]() -> std::size_t {
    if (&adios2_version_str == nullptr || !forebay_knows_adios2(adios2_version_str)) return 0;
    const std::size_t offset = find_tail(io);
    const bool right = offset != 0 && answers<double>(io, offset) && answers<std::int8_t>(io, offset) &&
                       answers<std::uint32_t>(io, offset) && answers<long double>(io, offset);
    return right ? offset : 0;
  }();
  tail_offset.store(checked, std::memory_order_release);
  return checked != 0;
}

#define FOREBAY_INSTANTIATE(T)                                               \
  template void set_facts(const adios2::Variable<T>&, const VariableFacts&); \
  template void set_engine(const adios2::Variable<T>&, const void*);         \
  template void unset_engine(const adios2::Variable<T>&, const void*);
ADIOS2_FOREACH_STDTYPE_1ARG(FOREBAY_INSTANTIATE)
#undef FOREBAY_INSTANTIATE

}  // namespace forebay::engine
