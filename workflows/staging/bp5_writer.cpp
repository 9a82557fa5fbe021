// SPDX-License-Identifier: Apache-2.0
// Writing steps as a BP5 file.
#include <cstring>

#include "bp5_file.h"

namespace forebay::staging {
namespace {

adios2::Dims dims(const Dimensions& dimensions) {
  return {dimensions.begin(), dimensions.end()};
}

template <class T>
void put_block(adios2::IO& io, adios2::Engine& engine, const std::string& name, const Dimensions& shape,
               const Dimensions& start, const Dimensions& count, const std::byte* data) {
  auto variable = io.InquireVariable<T>(name);
  if (!variable) {
    variable = count.empty() && shape.empty() ? io.DefineVariable<T>(name)
                                              : io.DefineVariable<T>(name, dims(shape), dims(start), dims(count));
  } else if (!count.empty()) {
    // Another step may have another shape.
    if (!shape.empty()) variable.SetShape(dims(shape));
    variable.SetSelection({dims(start), dims(count)});
  }
  // BP5 keeps a pointer to large blocks until the step ends and copies small ones.
  engine.Put(variable, reinterpret_cast<const T*>(data), adios2::Mode::Deferred);
}

template <class T>
void define_attribute(adios2::IO& io, const std::string& name, const AttributeValue& value) {
  std::vector<T> elements(value.bytes.size() / sizeof(T));
  std::memcpy(elements.data(), value.bytes.data(), elements.size() * sizeof(T));
  if (value.is_array) {
    io.DefineAttribute<T>(name, elements.data(), elements.size());
  } else {
    io.DefineAttribute<T>(name, elements.at(0));
  }
}

}  // namespace

Bp5Writer::Bp5Writer(const std::string& path) {
  auto state = std::make_unique<State>();
  state->io = state->adios.DeclareIO("stage-out");
  state->io.SetEngine("BP5");
  state->io.SetParameter("Profile", "Off");
  state->engine = state->io.Open(path, adios2::Mode::Write);
  state_ = std::move(state);
  state_->engine.BeginStep();
}

Bp5Writer::~Bp5Writer() {
  if (!closed_) {
    static_cast<void>(state_.release());
  }
}

void Bp5Writer::put(const std::string& name, DataType type, const Dimensions& shape, const Dimensions& start,
                    const Dimensions& count, const std::byte* data) {
  with_element_type(type,
                    [&]<class T>() { put_block<T>(state_->io, state_->engine, name, shape, start, count, data); });
}

void Bp5Writer::put_string(const std::string& name, const std::string& value) {
  auto variable = state_->io.InquireVariable<std::string>(name);
  if (!variable) variable = state_->io.DefineVariable<std::string>(name);
  state_->engine.Put(variable, value, adios2::Mode::Sync);
}

void Bp5Writer::set_attribute(const std::string& name, const AttributeValue& value) {
  if (value.type != DataType::string) {
    with_element_type(value.type, [&]<class T>() { define_attribute<T>(state_->io, name, value); });
  } else if (value.is_array) {
    state_->io.DefineAttribute<std::string>(name, value.strings.data(), value.strings.size());
  } else {
    state_->io.DefineAttribute<std::string>(name, value.strings.at(0));
  }
}

void Bp5Writer::next_step() {
  state_->engine.EndStep();
  state_->engine.BeginStep();
}

void Bp5Writer::close() {
  state_->engine.EndStep();
  state_->engine.Close();
  closed_ = true;
}

}  // namespace forebay::staging
