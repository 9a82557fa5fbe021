// SPDX-License-Identifier: Apache-2.0
// Variables that are taken out of an IO for a while without ending the handles that the application holds of them.
// Interface v2 can only remove a variable, after which its handles point nowhere.
#pragma once

#include <memory>
#include <string>

#include <adios2.h>

namespace forebay::engine {

class HiddenVariables {
 public:
  HiddenVariables();
  /// What is still hidden is given up, for its IO may be gone.
  ~HiddenVariables();
  HiddenVariables(const HiddenVariables&) = delete;
  HiddenVariables& operator=(const HiddenVariables&) = delete;

  /// Takes the variable out of the IO. False, and nothing happens, where ADIOS2's build is not one that this was tried
  /// with, or where there is no such variable.
  bool hide(adios2::IO io, const std::string& name);

  /// Puts the one that was hidden last under this name back. False if there is none, or if the name has been taken.
  bool unhide(adios2::IO io, const std::string& name);

  /// Removes all that are hidden.
  void clear(adios2::IO io);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace forebay::engine
