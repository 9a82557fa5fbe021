// SPDX-License-Identifier: Apache-2.0
#include "base/transport.h"

#include <cstdlib>
#include <string>

namespace forebay {

Result<Transport> parse_transport(std::string_view text) {
  if (text == "auto") return Transport::automatic;
  if (text == "local") return Transport::local;
  if (text == "tcp") return Transport::tcp;
  if (text == "fabric") return Transport::fabric;
  return fail(ErrorCode::invalid_argument,
              "not a transport: \"" + std::string(text) + "\"; set FOREBAY_TRANSPORT to auto, local, tcp or fabric");
}

Result<Transport> environment_transport() {
  const char* text = std::getenv("FOREBAY_TRANSPORT");
  return text == nullptr || *text == '\0' ? Result<Transport>(Transport::automatic) : parse_transport(text);
}

}  // namespace forebay
