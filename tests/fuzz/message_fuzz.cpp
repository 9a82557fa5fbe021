// SPDX-License-Identifier: Apache-2.0
// The bytes of a connection: refused, or messages whose bodies are safe to unpack. The first byte chooses whether
// headers are taken as they are or made for the bodies, each as long as its first byte says.
#include <sys/socket.h>

#include "protocol/message_socket.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/unpack.h"

namespace forebay {
namespace {

using protocol::MessageType;

std::vector<std::byte> with_headers(std::span<const std::uint8_t> bytes) {
  std::vector<std::byte> stream;
  while (bytes.size() >= 2) {
    const auto body = bytes.subspan(2, std::min<std::size_t>(bytes[1] * std::size_t{8}, bytes.size() - 2));
    protocol::Header header;
    header.type = bytes[0];
    header.body_bytes = static_cast<std::uint32_t>(body.size());
    header.request = 1;
    const auto head = std::as_bytes(std::span(&header, 1));
    stream.insert(stream.end(), head.begin(), head.end());
    const auto rest = std::as_bytes(body);
    stream.insert(stream.end(), rest.begin(), rest.end());
    bytes = bytes.subspan(2 + body.size());
  }
  return stream;
}

}  // namespace
}  // namespace forebay

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace forebay;
  if (size == 0) return 0;
  int ends[2];
  fuzz::require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  Descriptor sender(ends[0]);
  protocol::MessageSocket socket{Descriptor(ends[1]), 0};
  const std::span<const std::uint8_t> input(data + 1, size - 1);
  const auto made = data[0] % 2 == 0 ? std::vector<std::byte>() : with_headers(input);
  std::span<const std::byte> bytes = data[0] % 2 == 0 ? std::as_bytes(input) : std::span<const std::byte>(made);
  bool open = true;
  while (open) {
    // In portions, as a stream socket may deliver them.
    const auto portion = bytes.first(std::min<std::size_t>(bytes.size(), 4096));
    if (portion.empty()) {
      sender = Descriptor();
    } else {
      fuzz::require(::send(sender.get(), portion.data(), portion.size(), 0) == static_cast<ssize_t>(portion.size()));
    }
    bytes = bytes.subspan(portion.size());
    open = socket.receive().has_value() && !portion.empty();
    while (const auto message = socket.pop()) {
      if (message->type == MessageType::none) return 0;
      if (fuzz::unpack_any(*message)) fuzz::understood();
    }
  }
  return 0;
}
