// SPDX-License-Identifier: Apache-2.0
// The bytes of a journal file and of a reservation's identity file. The first byte chooses whether checksums are made
// right first, which chance alone would never do.
#include "storage/framing.h"
#include "storage/reservation_check.h"
#include "tests/fuzz/input.h"

namespace forebay {
namespace {

using namespace storage;

void read_frames(std::span<const std::byte> bytes) {
  FrameReader reader(bytes, 1);
  std::uint64_t end = 0;
  while (const auto frame = reader.next()) {
    fuzz::require(frame->offset == end);
    end += frame_bytes(frame->body.size());
    fuzz::understood();
    fuzz::require(end <= bytes.size());
  }
  fuzz::require(reader.position() == end && reader.used_bytes() <= bytes.size());
  if (reader.end() == FrameEnd::gap) fuzz::require(reader.records_behind() > 0);
}

}  // namespace
}  // namespace forebay

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace forebay;
  if (size == 0) return 0;
  const fuzz::AlignedBytes bytes({data + 1, size - 1});
  if (data[0] % 2 == 0) {
    read_frames(bytes.get());
    if (const auto record = decode_reservation(bytes.get())) fuzz::require(check_reservation(*record).has_value());
    return 0;
  }
  // As bodies of whole records, each as long as its first byte says.
  std::vector<std::byte> file;
  std::uint32_t sequence = 0;
  for (auto rest = bytes.get(); !rest.empty(); ++sequence) {
    const auto body =
        rest.subspan(1, std::min<std::size_t>(std::to_integer<std::size_t>(rest[0]) * 8, rest.size() - 1));
    rest = rest.subspan(1 + body.size());
    std::vector<std::byte> record;
    encode_frame({.type = reservation_record_type, .sequence = sequence, .file = 1, .salt = 7}, body, record);
    file.insert(file.end(), record.begin(), record.end());
  }
  const fuzz::AlignedBytes whole({reinterpret_cast<const std::uint8_t*>(file.data()), file.size()});
  read_frames(whole.get());
  if (const auto record = decode_reservation(whole.get())) fuzz::require(check_reservation(*record).has_value());
  return 0;
}
