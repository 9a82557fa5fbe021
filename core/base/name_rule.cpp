// SPDX-License-Identifier: Apache-2.0
#include "base/name_rule.h"

#include "base/plain_text.h"

namespace forebay {

std::string describe_bad_name(std::string_view name) {
  constexpr std::size_t quoted_bytes_max = 40;
  const std::string quoted =
      "\"" + plain_text(name, name.size() > name_bytes_max ? quoted_bytes_max : 3 * name_bytes_max) + "\"";
  if (name.size() > name_bytes_max) {
    return "the name " + quoted + " is too long: it has " + std::to_string(name.size()) + " bytes, and " +
           std::to_string(name_bytes_max) + " are the most";
  }
  return "not a valid name: " + quoted + "; names begin with a letter and have up to " +
         std::to_string(name_bytes_max) + " letters, digits, '_', '.', '-'";
}

}  // namespace forebay
