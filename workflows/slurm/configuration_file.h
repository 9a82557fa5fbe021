// SPDX-License-Identifier: Apache-2.0
// What the programs for Slurm read of the centre's configuration, without a library for TOML: texts in quotes, each on
// a line of its own. What they cannot read they refuse, so that nobody takes a setting for missing.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace forebay::slurm {

class ConfigurationFile {
 public:
  /// The file that $FOREBAY_CONFIG names, else /etc/forebay/forebay.toml; without one, an empty configuration. Nothing
  /// if it cannot be read, with the reason in `problem`.
  static std::optional<ConfigurationFile> read(std::string& problem);

  /// The text of a key in a table ("": above the first), else `otherwise`. Nothing if it is written in a way that is
  /// not understood here, with the reason in `problem`.
  std::optional<std::string> text(std::string_view table, std::string_view key, std::string_view otherwise,
                                  std::string& problem) const;

 private:
  std::string path_;
  std::string content_;
};

}  // namespace forebay::slurm
