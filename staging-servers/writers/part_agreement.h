// SPDX-License-Identifier: Apache-2.0
// Whether the parts of a step agree on its variables. Each part carries a digest of what its rank says of them; only
// when digests change is the metadata read from the segments and compared.
#pragma once

#include <cstdint>
#include <vector>

#include <forebay/result.h>

#include "space/segments.h"
#include "writers/incarnation.h"

namespace forebay::server {

class PartAgreement {
 public:
  /// All ranks have sent their parts. Errors: invalid_argument names the variable and what the ranks say of it.
  Result<void> check(const Segments& segments, const std::vector<WriterRank>& ranks);

 private:
  std::vector<std::uint64_t> agreed_;  ///< the digests by rank that were found to agree last
};

}  // namespace forebay::server
