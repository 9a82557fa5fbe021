// SPDX-License-Identifier: Apache-2.0
// Journal records with valid checksums and any content: a stream's state refuses them unchanged, or is one that a
// checkpoint can keep. Input: records of type (1 byte), length (2 bytes) and body, one after another.
#include "storage/record_body.h"
#include "storage/stream_state.h"
#include "tests/fuzz/input.h"

namespace forebay {
namespace {

using storage::StreamState;

std::vector<std::byte> checkpoint_of(const StreamState& state) {
  const auto body = *state.checkpoint_body();
  const auto bytes = std::as_bytes(std::span(body.data(), body.size()));
  return {bytes.begin(), bytes.end()};
}

}  // namespace
}  // namespace forebay

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace forebay;
  std::span<const std::uint8_t> rest(data, size);
  StreamState state = StreamState::fresh("0b7c9f9e-52a5-4c3e-9d0c-0a4d9a1b2c3d", "flow", 1);
  std::vector<std::byte> before = checkpoint_of(state);
  while (rest.size() >= 3) {
    const auto type = static_cast<journal::RecordType>(rest[0]);
    const std::size_t length = std::min<std::size_t>(rest[1] | rest[2] << 8, rest.size() - 3);
    const fuzz::AlignedBytes body(rest.subspan(3, length));
    rest = rest.subspan(3 + length);
    const bool applied = state.apply(type, body.get()).has_value();
    std::vector<std::byte> after = checkpoint_of(state);
    if (!applied) {
      fuzz::require(after == before);
      continue;
    }
    fuzz::understood();
    StreamState again = StreamState::fresh(state.uuid, state.name, state.created_ns);
    fuzz::require(again.apply(journal::RecordType::checkpoint, after).has_value());
    fuzz::require(checkpoint_of(again) == after);
    before = std::move(after);
  }
  return 0;
}
