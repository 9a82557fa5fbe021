// SPDX-License-Identifier: Apache-2.0
// The metadata of many steps side by side, for Python: one buffer for each kind of number, and what steps have in
// common (variables and blocks, attributes) once. Nothing of it keeps a step.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include <nanobind/nanobind.h>

#include <forebay/reader.h>

namespace forebay::python {

class GatheredSteps {
 public:
  /// Takes over what the step's metadata says. Needs no GIL.
  void add(const Step& step);

  /// The fields of forebay.step_metadata.GatheredSteps, in that order. The GIL is held.
  nanobind::tuple to_python() const;

 private:
  /// Same content, same number.
  template <class T>
  struct Numbered {
    std::unordered_map<std::string, std::uint32_t> numbers;  ///< by all that they consist of
    std::vector<T> all;
  };

  void add_values(const Step& step, std::uint32_t number, const VariableInfo& variable);

  std::string summaries_;
  Numbered<std::vector<VariableInfo>> layouts_;
  Numbered<std::vector<Attribute>> attributes_;
  std::vector<std::uint32_t> layout_numbers_;
  std::vector<std::uint32_t> attribute_numbers_;
  std::string values_;
  std::vector<std::uint64_t> value_offsets_;
  std::vector<std::string> texts_;
  std::vector<std::uint64_t> text_offsets_;
  std::string blocks_;
  std::vector<std::uint64_t> block_offsets_;
  std::vector<std::tuple<std::uint32_t, std::string, std::string>> unreadable_;  ///< step, variable, why
};

}  // namespace forebay::python
