// SPDX-License-Identifier: Apache-2.0
#include "fabric/libfabric.h"

#include <algorithm>
#include <array>

namespace forebay::fabric {
namespace {

constexpr std::array<std::string_view, 4> providers{"tcp", "verbs", "cxi", "efa"};
constexpr std::uint32_t minor_bits = 16;
constexpr std::uint32_t minor_mask = 0xFFFF;

}  // namespace

Result<void> check_provider(std::string_view provider) {
  if (std::ranges::find(providers, provider) != providers.end()) return {};
  const char* why = provider == "shm"
                        ? "shm checks neither keys nor bounds of memory; clients of one node have a faster way"
                        : "there are: tcp, verbs, cxi, efa";
  return fail(ErrorCode::invalid_argument,
              "not a libfabric provider for Forebay: \"" + std::string(provider) + "\"; " + why);
}

std::string version_text(std::uint32_t version) {
  return std::to_string(version >> minor_bits) + "." + std::to_string(version & minor_mask);
}

#if !__has_include(<rdma/fabric.h>)

Result<OpenedEndpoint> open_libfabric_endpoint(const std::string&, const std::string&) {
  return fail(
      ErrorCode::unsupported,
      "this Forebay was built without libfabric's headers (Debian: libfabric-dev); set FOREBAY_TRANSPORT=tcp, or "
      "build it with them");
}

#endif

}  // namespace forebay::fabric
