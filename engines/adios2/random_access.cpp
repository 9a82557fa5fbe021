// SPDX-License-Identifier: Apache-2.0
#include "random_access.h"

#include <algorithm>

namespace forebay::engine {
namespace {

constexpr std::size_t recent_steps_max = 4;

}  // namespace

Result<std::unique_ptr<RandomAccess>> RandomAccess::open(Reader& reader, const std::vector<std::uint64_t>& numbers) {
  std::unique_ptr<RandomAccess> access(new RandomAccess(reader));
  for (const std::uint64_t number : numbers) {
    const auto step = access->fetch(number);
    if (!step) {
      // A step may be dropped between the listing and now.
      if (step.error().code == ErrorCode::step_gone || step.error().code == ErrorCode::not_found) continue;
      return fail(step.error());
    }
    ++access->steps_;
    for (const VariableInfo& variable : (*step)->variables()) {
      auto [entry, first] =
          access->with_variable_.try_emplace(variable.name, StepsWith{access->variables_.size(), {}, {}});
      if (first) {
        access->variables_.push_back(variable);
      } else if (variable.kind == ShapeKind::local_array) {
        // Their count, from which ADIOS2 allocates, is that of the largest block of all steps.
        auto& blocks = access->variables_[entry->second.variable].blocks;
        blocks.insert(blocks.end(), variable.blocks.begin(), variable.blocks.end());
      }
      entry->second.numbers.push_back(number);
      VariableFacts& facts = entry->second.facts;
      widen(facts, facts_of(**step, variable), variable.type);
      facts.steps_count = entry->second.numbers.size();
      facts.by_step.push_back({number, variable.kind == ShapeKind::local_value ? Dimensions() : variable.shape});
    }
    access->attributes_ = (*step)->attributes();
  }
  return access;
}

Result<std::shared_ptr<const Step>> RandomAccess::fetch(std::uint64_t number) {
  const auto known =
      std::find_if(recent_.begin(), recent_.end(), [&](const auto& step) { return step->number() == number; });
  if (known != recent_.end()) return *known;
  auto step = reader_.step(number);
  if (!step) return step;
  if (recent_.size() == recent_steps_max) recent_.pop_front();
  recent_.push_back(*step);
  return step;
}

Result<std::shared_ptr<const Step>> RandomAccess::step(const std::string& variable, std::size_t index) {
  const auto found = with_variable_.find(variable);
  const std::size_t steps = found == with_variable_.end() ? 0 : found->second.numbers.size();
  if (index >= steps) {
    return fail(ErrorCode::invalid_argument, "step " + std::to_string(index) + " of variable " + variable +
                                                 " is selected, but " + std::to_string(steps) +
                                                 " steps have it, counted from 0");
  }
  return fetch(found->second.numbers[index]);
}

}  // namespace forebay::engine
