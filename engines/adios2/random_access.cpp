// SPDX-License-Identifier: Apache-2.0
#include "random_access.h"

#include <algorithm>
#include <span>

namespace forebay::engine {
namespace {

constexpr std::size_t recent_steps_max = 4;
// What is asked for before it is wanted.
constexpr std::uint64_t bytes_ahead_max = std::uint64_t{64} << 20;
constexpr std::size_t steps_ahead_max = 32;

}  // namespace

Result<std::unique_ptr<RandomAccess>> RandomAccess::open(Reader& reader, const std::vector<std::uint64_t>& numbers) {
  std::unique_ptr<RandomAccess> access(new RandomAccess(reader));
  // A step may be dropped between the listing and now.
  auto visited = reader.for_each_step(numbers, [&](const std::shared_ptr<const Step>& step) -> Result<void> {
    access->add(*step);
    access->attributes_ = step->attributes();
    return {};
  });
  if (!visited) return fail(std::move(visited.error()));
  return access;
}

void RandomAccess::add(const Step& step) {
  ++steps_;
  for (const VariableInfo& variable : step.variables()) {
    auto [entry, first] = with_variable_.try_emplace(variable.name, StepsWith{variables_.size(), {}, {}, {}});
    if (first) {
      variables_.push_back(variable);
    } else if (variable.kind == ShapeKind::local_array) {
      // Their count, from which ADIOS2 allocates, is that of the largest block of all steps.
      auto& blocks = variables_[entry->second.variable].blocks;
      blocks.insert(blocks.end(), variable.blocks.begin(), variable.blocks.end());
    }
    entry->second.numbers.push_back(step.number());
    entry->second.sizes.push_back(step.summary().size_bytes);
    VariableFacts& facts = entry->second.facts;
    widen(facts, facts_of(step, variable), variable.type);
    facts.steps_count = entry->second.numbers.size();
    facts.by_step.push_back({step.number(), variable.kind == ShapeKind::local_value ? Dimensions() : variable.shape});
  }
}

Result<std::shared_ptr<const Step>> RandomAccess::fetch(const StepsWith& steps, std::size_t index) {
  const std::span<const std::uint64_t> numbers = steps.numbers;
  const std::span<const std::uint64_t> sizes = steps.sizes;
  const std::uint64_t wanted = numbers[index];
  const auto known = std::ranges::find(recent_, wanted, &Step::number);
  const bool in_order = index > 0 && previous_ && previous_->number() == numbers[index - 1];
  if (known != recent_.end()) return previous_ = *known;
  // Who takes steps in order will ask for the next ones, too.
  std::size_t count = 1;
  for (std::uint64_t bytes = sizes[index]; in_order && index + count < numbers.size() && count < steps_ahead_max;) {
    bytes += sizes[index + count];
    if (bytes > bytes_ahead_max) break;
    ++count;
  }
  auto fetched =
      reader_.for_each_step(numbers.subspan(index, count), [&](std::shared_ptr<const Step> step) -> Result<void> {
        // One without a pin is worth nothing until it is wanted.
        if (step->number() == wanted || step->pinned()) recent_.push_back(std::move(step));
        return {};
      });
  while (recent_.size() > recent_steps_max + count) recent_.pop_front();
  const auto found = std::ranges::find(recent_, wanted, &Step::number);
  if (found != recent_.end()) return previous_ = *found;
  if (!fetched) return fail(std::move(fetched.error()));
  return reader_.step(wanted);  // says why there is none
}

Result<std::shared_ptr<const Step>> RandomAccess::step(const std::string& variable, std::size_t index) {
  const std::size_t steps = steps_with(variable);
  if (index >= steps) {
    return fail(ErrorCode::invalid_argument, "step " + std::to_string(index) + " of variable " + variable +
                                                 " is selected, but " + std::to_string(steps) +
                                                 " steps have it, counted from 0");
  }
  return fetch(with_variable_.at(variable), index);
}

std::size_t RandomAccess::steps_with(const std::string& variable) const {
  const auto found = with_variable_.find(variable);
  return found == with_variable_.end() ? 0 : found->second.numbers.size();
}

}  // namespace forebay::engine
