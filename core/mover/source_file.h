// SPDX-License-Identifier: Apache-2.0
// A file that is staged, opened once: everything that is known of it comes from this descriptor.
#pragma once

#include <string>

#include <forebay/result.h>

#include "base/descriptor.h"
#include "mover/status.h"
#include "mover/work.h"

namespace forebay::mover {

class SourceFile {
 public:
  /// unsupported: it is no regular file. busy: a program has it open for writing; refused:
  /// it still has after the wait that was asked for.
  static Result<SourceFile> open(Work& work, int directory, const std::string& name, const std::string& shown);

  int descriptor() const noexcept { return descriptor_.get(); }
  const Status& status() const noexcept { return status_; }
  std::uint64_t size() const noexcept { return static_cast<std::uint64_t>(status_.stat.st_size); }

  /// An error if it was changed since it was opened, or a program has it open for writing now.
  Result<void> check_unchanged(Work& work, const std::string& shown) const;

 private:
  Result<void> probe(Work& work, const std::string& shown, bool tell) const;

  Descriptor descriptor_;
  Status status_;
  bool local_ = false;
};

/// The error for what is neither file, nor directory, nor link.
tl::unexpected<Error> not_stageable(const std::string& name);

}  // namespace forebay::mover
