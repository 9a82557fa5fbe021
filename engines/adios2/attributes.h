// SPDX-License-Identifier: Apache-2.0
// Attributes between an IO and a stream. ADIOS2 tells plugins nothing about them, so a writer looks through its IO at
// each EndStep and sends what changed; a reader defines in its IO what a step brought.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <adios2.h>

#include <forebay/reader.h>
#include <forebay/writer.h>

namespace forebay::engine {

/// Writer's side.
class AttributeSource {
 public:
  /// Sends the IO's attributes that are new or changed since the last call, and withdraws those that are gone.
  Result<void> send_changes(adios2::IO io, Writer& writer);

 private:
  struct Sent {
    std::string type;  // ADIOS2's name of it
    AttributeValue value;
  };
  std::map<std::string, Sent> sent_;
};

/// Reader's side.
class AttributeMirror {
 public:
  /// Makes the IO's attributes those of a step, leaving alone what others defined under other names.
  void show(adios2::IO io, const std::vector<Attribute>& attributes);

 private:
  std::vector<Attribute> shown_;
};

}  // namespace forebay::engine
