// SPDX-License-Identifier: Apache-2.0
// The core IO's own list is looked at, read only; where this build of ADIOS2 is not one that this was tried with,
// IO::AvailableAttributes is asked.
#include "attribute_list.h"

#include <utility>

#include "known_versions.h"
#include "variable_selection.h"

// Exported by ADIOS2's core, but declared in headers only that it does not install.
extern "C" {
const void* forebay_listed_attributes(const void* io) __asm__("_ZNK6adios24core2IO13GetAttributesB5cxx11Ev")
    __attribute__((weak));
extern __attribute__((weak)) const char adios2_version_str[];
}

namespace forebay::engine {
namespace {

// The names are what is looked at; what they lead to is as large as a std::unique_ptr.
using AttributesByName = std::map<std::string, void*>;

const AttributesByName* attributes_by_name(const adios2::IO& io) {
  const void* core = identity_of(io);
  if (core == nullptr || &forebay_listed_attributes == nullptr) return nullptr;
  if (&adios2_version_str == nullptr || !forebay_knows_adios2(adios2_version_str)) return nullptr;
  return static_cast<const AttributesByName*>(forebay_listed_attributes(core));
}

}  // namespace

std::map<std::string, std::string> attribute_types(const adios2::IO& io) {
  std::map<std::string, std::string> types;
  if (const AttributesByName* attributes = attributes_by_name(io)) {
    for (const auto& entry : *attributes) types.emplace(entry.first, io.AttributeType(entry.first));
    return types;
  }
  adios2::IO asked = io;
  for (auto& [name, facts] : asked.AvailableAttributes()) types.emplace(name, std::move(facts.at("Type")));
  return types;
}

bool has_attributes(const adios2::IO& io) {
  if (const AttributesByName* attributes = attributes_by_name(io)) return !attributes->empty();
  adios2::IO asked = io;
  return !asked.AvailableAttributes().empty();
}

}  // namespace forebay::engine
