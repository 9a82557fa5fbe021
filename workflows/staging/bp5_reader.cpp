// SPDX-License-Identifier: Apache-2.0
// Reading back what was written as a BP5 file.
#include <span>
#include <stdexcept>
#include <utility>

#include "bp5_file.h"

namespace forebay::staging {
namespace {

Dimensions dimensions(const adios2::Dims& dims) {
  return {dims.begin(), dims.end()};
}

/// The element type that ADIOS2 calls `text`.
DataType data_type(const std::string& text) {
  if (text == adios2::GetType<std::string>()) {
    return DataType::string;
  }
  for (int code = static_cast<int>(DataType::character); code < static_cast<int>(DataType::string); ++code) {
    const auto type = static_cast<DataType>(code);
    if (with_element_type(type, [&]<class T>() { return text == adios2::GetType<T>(); })) {
      return type;
    }
  }
  throw std::runtime_error("the file has elements of type " + text + ", which no stream has");
}

template <class T>
Bp5Variable describe(adios2::Engine& engine, const std::string& name, DataType type, adios2::Variable<T> variable,
                     std::size_t step) {
  Bp5Variable described;
  described.name = name;
  described.type = type;
  described.shape = dimensions(variable.Shape());
  described.is_value = variable.ShapeID() == adios2::ShapeID::GlobalValue;
  const bool is_global = variable.ShapeID() == adios2::ShapeID::GlobalArray;
  for (const auto& block : engine.BlocksInfo(variable, step)) {
    if (described.is_value) {
      described.blocks.emplace_back();
    } else {
      described.blocks.push_back({is_global ? dimensions(block.Start) : Dimensions{}, dimensions(block.Count)});
    }
  }
  return described;
}

template <class T>
AttributeValue attribute_value(adios2::Attribute<T> attribute, DataType type) {
  AttributeValue value;
  value.type = type;
  value.is_array = !attribute.IsValue();
  const std::vector<T> elements = attribute.Data();
  const auto bytes = std::as_bytes(std::span(elements));
  value.bytes.assign(bytes.begin(), bytes.end());
  return value;
}

}  // namespace

Bp5Reader::Bp5Reader(const std::string& path, bool step_by_step) : io_(adios_.DeclareIO("stage-out")) {
  io_.SetEngine("BP5");
  io_.SetParameter("Profile", "Off");
  engine_ = io_.Open(path, step_by_step ? adios2::Mode::Read : adios2::Mode::ReadRandomAccess);
}

Bp5Reader::~Bp5Reader() {
  close();
}

void Bp5Reader::close() {
  if (engine_) {
    engine_.Close();
    engine_ = adios2::Engine();
  }
}

std::size_t Bp5Reader::steps() const {
  return engine_.Steps();
}

bool Bp5Reader::next_step() {
  if (std::exchange(in_step_, false)) engine_.EndStep();
  in_step_ = engine_.BeginStep() == adios2::StepStatus::OK;
  return in_step_;
}

std::vector<Bp5Variable> Bp5Reader::variables() {
  const std::size_t step = in_step_ ? engine_.CurrentStep() : 0;
  std::vector<Bp5Variable> found;
  for (const auto& [name, parameters] : io_.AvailableVariables()) {
    const DataType type = data_type(io_.VariableType(name));
    if (type == DataType::string) {
      found.push_back({.name = name, .type = type, .shape = {}, .is_value = true, .blocks = {{}}});
      continue;
    }
    // Clang before 16 captures no structured bindings by themselves.
    found.push_back(with_element_type(type, [&, &name = name]<class T>() {
      return describe<T>(engine_, name, type, io_.InquireVariable<T>(name), step);
    }));
  }
  return found;
}

std::map<std::string, AttributeValue> Bp5Reader::attributes() {
  std::map<std::string, AttributeValue> found;
  for (const auto& [name, parameters] : io_.AvailableAttributes()) {
    const DataType type = data_type(io_.AttributeType(name));
    if (type == DataType::string) {
      auto attribute = io_.InquireAttribute<std::string>(name);
      found[name] = {.type = type, .is_array = !attribute.IsValue(), .bytes = {}, .strings = attribute.Data()};
      continue;
    }
    found[name] = with_element_type(
        type, [&, &name = name]<class T>() { return attribute_value<T>(io_.InquireAttribute<T>(name), type); });
  }
  return found;
}

void Bp5Reader::read_block(const Bp5Variable& variable, std::size_t block, std::byte* out, std::size_t size_bytes) {
  with_element_type(variable.type, [&]<class T>() {
    if (size_bytes != element_count(variable.blocks.at(block).count) * sizeof(T)) {
      throw std::invalid_argument("the memory for block " + std::to_string(block) + " of " + variable.name +
                                  " does not have the block's size");
    }
    auto found = io_.InquireVariable<T>(variable.name);
    if (!variable.is_value) {
      found.SetBlockSelection(block);
    }
    engine_.Get(found, reinterpret_cast<T*>(out), adios2::Mode::Sync);
  });
}

std::string Bp5Reader::read_string(const std::string& name) {
  std::string value;
  engine_.Get(io_.InquireVariable<std::string>(name), value, adios2::Mode::Sync);
  return value;
}

}  // namespace forebay::staging
