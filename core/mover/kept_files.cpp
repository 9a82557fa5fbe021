// SPDX-License-Identifier: Apache-2.0
#include "mover/kept_files.h"

#include "base/return_error.h"

namespace forebay::mover {

tl::unexpected<Error> reads_differently(const std::string& name) {
  return fail(ErrorCode::corrupt, "what was written reads back differently; the destination's storage may be failing",
              name);
}

Result<std::optional<std::uint32_t>> same_content(Work& work, const SourceFile& source, int target,
                                                  const std::string& shown) {
  ASSIGN_OR_RETURN(const struct stat there, look_at(target, work.target_name(shown)));
  if (static_cast<std::uint64_t>(there.st_size) != source.size()) return std::nullopt;
  const Range whole{0, source.size()};
  forget_pages(target, whole);
  ASSIGN_OR_RETURN(const std::uint32_t right,
                   checksum_of_range(source.descriptor(), whole, work.silent_advance(), work.source_name(shown)));
  ASSIGN_OR_RETURN(const std::uint32_t found,
                   checksum_of_range(target, whole, work.silent_advance(), work.target_name(shown)));
  if (found != right) return std::nullopt;
  return right;
}

}  // namespace forebay::mover
