// SPDX-License-Identifier: Apache-2.0
#include "attributes.h"

#include <cstring>
#include <type_traits>
#include <unordered_set>
#include <utility>

#include "attribute_list.h"

namespace forebay::engine {
namespace {

// True if `value` holds what `attribute` says; compares before anything is copied.
template <class T>
bool equal(const AttributeValue& value, bool is_array, const std::vector<T>& data) {
  if (value.is_array != is_array) return false;
  if constexpr (std::is_same_v<T, std::string>) {
    return value.strings == data;
  } else {
    const std::size_t size = data.size() * sizeof(T);
    return value.bytes.size() == size && (size == 0 || std::memcmp(value.bytes.data(), data.data(), size) == 0);
  }
}

template <class T>
AttributeValue to_value(bool is_array, std::vector<T> data) {
  AttributeValue value;
  value.type = *data_type_of<T>;
  value.is_array = is_array;
  if constexpr (std::is_same_v<T, std::string>) {
    value.strings = std::move(data);
  } else {
    const auto* bytes = reinterpret_cast<const std::byte*>(data.data());
    value.bytes.assign(bytes, bytes + data.size() * sizeof(T));
  }
  return value;
}

template <class T>
void define(adios2::IO io, const std::string& name, const AttributeValue& value) {
  const bool modifiable = true;
  if constexpr (std::is_same_v<T, std::string>) {
    if (value.is_array) {
      io.DefineAttribute<T>(name, value.strings.data(), value.strings.size(), "", "/", modifiable);
    } else {
      io.DefineAttribute<T>(name, value.strings.at(0), "", "/", modifiable);
    }
  } else {
    std::vector<T> elements(value.bytes.size() / sizeof(T));
    if (!elements.empty()) std::memcpy(elements.data(), value.bytes.data(), elements.size() * sizeof(T));
    if (value.is_array) {
      io.DefineAttribute<T>(name, elements.data(), elements.size(), "", "/", modifiable);
    } else {
      io.DefineAttribute<T>(name, elements.at(0), "", "/", modifiable);
    }
  }
}

}  // namespace

Result<void> AttributeSource::send_changes(adios2::IO io, Writer& writer) {
  const std::map<std::string, std::string> available = attribute_types(io);
  for (auto gone = sent_.begin(); gone != sent_.end();) {
    if (available.contains(gone->first)) {
      ++gone;
      continue;
    }
    if (auto removed = writer.remove_attribute(gone->first); !removed) return removed;
    gone = sent_.erase(gone);
  }
  for (const auto& entry : available) {
    // Not a structured binding: Clang captures these in lambdas from version 16 on.
    const std::string& name = entry.first;
    const std::string& type = entry.second;
    const auto known = sent_.find(name);
    Result<void> result;
    const auto send = [&]<class T>() {
      const adios2::Attribute<T> attribute = io.InquireAttribute<T>(name);
      if (!attribute) return;
      const bool is_array = !attribute.IsValue();
      std::vector<T> data = attribute.Data();
      if (known != sent_.end() && known->second.type == type && equal(known->second.value, is_array, data)) return;
      AttributeValue value = to_value<T>(is_array, std::move(data));
      result = writer.set_attribute(name, value);
      if (result) sent_[name] = Sent{type, std::move(value)};
    };
#define FOREBAY_SEND(T) \
  if (type == adios2::GetType<T>()) send.template operator()<T>();
    ADIOS2_FOREACH_ATTRIBUTE_STDTYPE_1ARG(FOREBAY_SEND)
#undef FOREBAY_SEND
    if (!result) return result;
  }
  return {};
}

void AttributeMirror::show(adios2::IO io, const std::vector<Attribute>& attributes) {
  // Steps mostly bring the attributes of the step before, in the same order.
  const auto unchanged = [&](std::size_t index) {
    return index < shown_.size() && shown_[index].name == attributes[index].name;
  };
  bool same_names = shown_.size() == attributes.size();
  for (std::size_t i = 0; same_names && i < attributes.size(); ++i) same_names = unchanged(i);
  if (!same_names) {
    std::unordered_set<std::string_view> names;
    for (const Attribute& attribute : attributes) names.insert(attribute.name);
    for (const Attribute& attribute : shown_) {
      if (!names.contains(attribute.name)) io.RemoveAttribute(attribute.name);
    }
  }
  bool changed = !same_names;
  for (std::size_t i = 0; i < attributes.size(); ++i) {
    const std::string& name = attributes[i].name;
    const AttributeValue& value = attributes[i].value;
    if (same_names && shown_[i].value == value) continue;
    changed = true;
    with_type(value.type, [&]<class T>() {
      // ADIOS2 changes neither an attribute's type nor one that was defined without leave to change it.
      if (!same_names || shown_[i].value.type != value.type) io.RemoveAttribute(name);
      define<T>(io, name, value);
    });
  }
  if (changed) shown_ = attributes;
}

}  // namespace forebay::engine
