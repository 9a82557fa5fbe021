// SPDX-License-Identifier: Apache-2.0
// A Step is one reference to the shared state of a step. step.cpp: reading; step_view.cpp: views.
#pragma once

#include <memory>
#include <span>

#include "client/reading/step_state.h"

namespace forebay {

struct Step::Impl {
  std::shared_ptr<const client::StepState> state;

  /// invalid_argument unless the variable has the block and the block the box.
  Result<void> check_block(const VariableInfo& info, std::size_t block, const Box& box) const;
  /// Bytes of a single value, which lie in the metadata.
  Result<std::span<const std::byte>> value(const VariableInfo& variable, std::size_t block) const;
  /// A view of a box of one block.
  Result<View> view(std::size_t variable, std::size_t block, const Box& box) const;
};

}  // namespace forebay
