// SPDX-License-Identifier: Apache-2.0
// A stream as a file: the steps that are kept when it is opened, any of which a Get may ask for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <forebay/reader.h>

#include "variable_facts.h"

namespace forebay::engine {

class RandomAccess {
 public:
  /// Looks through the steps with these numbers. `reader` must outlive the object.
  static Result<std::unique_ptr<RandomAccess>> open(Reader& reader, const std::vector<std::uint64_t>& numbers);

  std::size_t steps() const { return steps_; }
  /// Each variable as it is in the first step that has it; a local array with the blocks of all steps.
  const std::vector<VariableInfo>& variables() const { return variables_; }
  /// Those of a variable over all steps that have it.
  const VariableFacts& facts(const std::string& variable) const { return with_variable_.at(variable).facts; }
  /// How many steps have the variable.
  std::size_t steps_with(const std::string& variable) const;
  /// Those of the last step.
  const std::vector<Attribute>& attributes() const { return attributes_; }

  /// The step that is number `index` among those that have the variable; ADIOS2 counts a variable's steps like that.
  Result<std::shared_ptr<const Step>> step(const std::string& variable, std::size_t index);

 private:
  explicit RandomAccess(Reader& reader) : reader_(reader) {}
  void add(const Step& step);
  struct StepsWith {
    std::size_t variable;                // its place in variables_
    std::vector<std::uint64_t> numbers;  // of the steps that have it
    std::vector<std::uint64_t> sizes;    // of those steps, in bytes
    VariableFacts facts;
  };
  Result<std::shared_ptr<const Step>> fetch(const StepsWith& steps, std::size_t index);

  Reader& reader_;
  std::size_t steps_ = 0;
  std::vector<VariableInfo> variables_;
  std::vector<Attribute> attributes_;
  std::unordered_map<std::string, StepsWith> with_variable_;
  std::deque<std::shared_ptr<const Step>> recent_;  // each holds a pin, so there are few
  std::shared_ptr<const Step> previous_;            // that was asked for last
};

}  // namespace forebay::engine
