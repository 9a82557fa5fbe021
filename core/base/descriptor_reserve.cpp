// SPDX-License-Identifier: Apache-2.0
#include "base/descriptor_reserve.h"

#include <sys/resource.h>

#include <algorithm>

namespace forebay {
namespace {

constexpr std::size_t reserve_max = 64;
constexpr std::size_t reserve_share = 4;
constexpr std::size_t descriptors_default = 1024;

}  // namespace

std::size_t descriptors_max() noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return descriptors_default;
  constexpr rlim_t most = std::size_t{1} << 30;
  return static_cast<std::size_t>(std::min(limit.rlim_cur, most));
}

std::size_t descriptors_in_reserve() noexcept {
  return std::min(reserve_max, descriptors_max() / reserve_share);
}

bool is_in_reserve(int descriptor) noexcept {
  return descriptor >= 0 && static_cast<std::size_t>(descriptor) >= descriptors_max() - descriptors_in_reserve();
}

}  // namespace forebay
