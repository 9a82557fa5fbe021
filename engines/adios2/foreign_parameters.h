// SPDX-License-Identifier: Apache-2.0
// Parameters of ADIOS2's own engines, so that a program or an XML file that was written for one of them runs unchanged:
// each is ignored, translated, or refused because it changes what data is written or read.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "parameters.h"

namespace forebay::engine {

enum class Treatment : std::uint8_t { ignored, translated, refused };

struct ForeignParameter {
  std::string_view name;
  std::string_view engines;  ///< whose parsers know it, in some version from ADIOS2 2.8 to 2.12
  Treatment treatment;
  std::string_view meaning;         ///< why it has none here, or what it becomes, or what to do instead
  std::string_view harmless_value;  ///< of a refused one: this value asks for nothing and is accepted
};

/// The parameter of that name, in any case; null if no engine has it.
const ForeignParameter* find_foreign_parameter(std::string_view name);

std::vector<std::string_view> foreign_parameter_names();

/// True if a refused parameter with this value asks for nothing.
bool is_harmless(const ForeignParameter& parameter, std::string_view value);

/// Turns those that are translated, by normalized name, into `settings`, where nothing there says otherwise; the
/// others of the map are not looked at. Throws std::invalid_argument for a value that does not parse.
void translate_foreign_parameters(const std::map<std::string, std::string>& by_name, Settings& settings);

/// The table as Markdown, for docs/adios2-parameters.md.
std::string foreign_parameter_table();

}  // namespace forebay::engine
