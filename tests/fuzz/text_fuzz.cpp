// SPDX-License-Identifier: Apache-2.0
// What people write: addresses, retention, start, and the server's configuration file.
#include <forebay/address.h>
#include <forebay/reader.h>
#include <forebay/writer.h>

#include "staging-servers/config_file.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace forebay;
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data + 1), size - 1);
  switch (data[0] % 4) {
    case 0:
      if (const auto address = parse_address(text)) {
        const auto again = parse_address(address->path());
        fuzz::require(again && again->reservation == address->reservation && again->stream == address->stream);
      }
      break;
    case 1:
      if (const auto retention = parse_retention(text)) {
        const auto again = parse_retention(to_string(*retention));
        fuzz::require(again && to_string(*again) == to_string(*retention));
      }
      break;
    case 2:
      (void)parse_start(text);
      break;
    default:
      if (const auto config = server::parse_config(text, "forebay.toml"); !config)
        fuzz::require(config.error().code == ErrorCode::invalid_argument && !config.error().where.empty());
      break;
  }
  return 0;
}
