// SPDX-License-Identifier: Apache-2.0
#include "fabric/fabric_greeting.h"

#include <algorithm>
#include <cstring>

#include "fabric/libfabric.h"

namespace forebay::fabric {
namespace {

constexpr std::uint32_t greeting_version = 1;
constexpr std::size_t provider_bytes = 32;

struct GreetingRecord {
  std::uint32_t version;
  std::uint32_t library_version;
  std::uint32_t address_bytes;
  std::uint32_t reserved;
  char provider[provider_bytes];
  FabricPassword password;
  std::array<std::byte, endpoint_address_bytes_max> address;
};
static_assert(sizeof(GreetingRecord) == fabric_greeting_bytes);

}  // namespace

std::vector<std::byte> encode(const FabricGreeting& greeting) {
  GreetingRecord record{};
  record.version = greeting_version;
  record.library_version = greeting.identity.library_version;
  record.address_bytes = static_cast<std::uint32_t>(std::min(greeting.address.size(), endpoint_address_bytes_max));
  greeting.identity.provider.copy(record.provider, provider_bytes - 1);
  record.password = greeting.password;
  std::ranges::copy_n(greeting.address.begin(), record.address_bytes, record.address.begin());
  const auto bytes = std::as_bytes(std::span(&record, 1));
  return {bytes.begin(), bytes.end()};
}

Result<FabricGreeting> decode_greeting(std::span<const std::byte> bytes) {
  GreetingRecord record{};
  const auto refuse = [](const char* what) { return fail(ErrorCode::protocol, what); };
  if (bytes.size() != sizeof record) return refuse("a fabric greeting has another size");
  std::memcpy(&record, bytes.data(), sizeof record);
  if (record.version != greeting_version)
    return refuse("the other end speaks another version of the fabric path; update the older one");
  FabricGreeting greeting;
  greeting.identity.library_version = record.library_version;
  greeting.identity.provider.assign(record.provider, ::strnlen(record.provider, provider_bytes));
  if (!check_provider(greeting.identity.provider) || record.address_bytes == 0 ||
      record.address_bytes > endpoint_address_bytes_max) {
    return refuse("the other end's fabric greeting is malformed");
  }
  greeting.password = record.password;
  greeting.address.assign(record.address.begin(), record.address.begin() + record.address_bytes);
  return greeting;
}

}  // namespace forebay::fabric
