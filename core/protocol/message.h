// SPDX-License-Identifier: Apache-2.0
// A message on the wire: a fixed header, a FlatBuffers body that is verified before use, and descriptors that travel
// beside it. See docs/formats/protocol.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <flatbuffers/flatbuffers.h>

#include <forebay/protocol/messages_generated.h>
#include <forebay/result.h>

#include "base/descriptor.h"
#include "base/verifier.h"

namespace forebay::protocol {

using wire::MessageType;

inline constexpr std::uint32_t protocol_version = 1;
inline constexpr std::uint32_t magic = 0x31594246;  // "FBY1" read as little-endian
inline constexpr std::size_t body_bytes_max = std::size_t{64} << 20;
inline constexpr std::size_t descriptors_max = 64;
/// ReservationsQuery.names.
inline constexpr std::size_t names_asked_max = 4096;

/// Little-endian, as all machines that Forebay runs on. `request` is repeated by the answer; 0 for one-way messages.
struct Header {
  std::uint32_t magic = protocol::magic;
  std::uint16_t type = 0;
  std::uint16_t descriptors = 0;
  std::uint32_t body_bytes = 0;
  std::uint32_t request = 0;
};
static_assert(sizeof(Header) == 16);

struct Message {
  MessageType type = MessageType::none;
  std::uint32_t request = 0;
  std::vector<std::byte> body;
  std::vector<Descriptor> descriptors;
};

/// The body as table T, or ErrorCode::protocol if it does not verify. Valid as long as the message.
template <class T>
Result<const T*> body_of(const Message& message) {
  const auto* data = reinterpret_cast<const std::uint8_t*>(message.body.data());
  Verifier verifier(data, message.body.size());
  if (message.body.size() < 8 || !verifier.VerifyBuffer<T>(nullptr)) {
    return fail(ErrorCode::protocol,
                std::string("malformed message of type ") + wire::EnumNameMessageType(message.type));
  }
  return flatbuffers::GetRoot<T>(data);
}

/// The error inside a Failure message.
Error failure_of(const Message& message);

/// Text of an optional string field.
inline std::string text_of(const flatbuffers::String* text) {
  return text == nullptr ? std::string() : text->str();
}

/// Numbers of an optional vector field.
inline std::vector<std::uint32_t> numbers_of(const flatbuffers::Vector<std::uint32_t>* numbers) {
  return numbers == nullptr ? std::vector<std::uint32_t>()
                            : std::vector<std::uint32_t>(numbers->begin(), numbers->end());
}

/// Serializes an object-API table.
template <class Object>
flatbuffers::DetachedBuffer pack(const Object& object) {
  flatbuffers::FlatBufferBuilder builder(512);
  builder.Finish(Object::TableType::Pack(builder, &object));
  return builder.Release();
}

}  // namespace forebay::protocol
