// SPDX-License-Identifier: Apache-2.0
#include "fabric/data_frame.h"

#include "base/bounds.h"
#include "fabric/fabric_greeting.h"

namespace forebay::fabric {
namespace {

Result<void> refuse() {
  return fail(ErrorCode::protocol, "the other end of the data path sent something that is not Forebay's protocol");
}

}  // namespace

Result<void> check_client_frame(const FrameHeader& header) {
  if (header.magic != frame_magic) return refuse();
  if (header.kind == FrameKind::finish && header.length == 0) return {};
  const bool fits =
      header.length > 0 && header.length <= frame_bytes_max && checked_add(header.offset, header.length).has_value();
  if (header.kind == FrameKind::write && fits) return {};
  return refuse();
}

Result<void> check_server_frame(const FrameHeader& header) {
  if (header.magic != frame_magic) return refuse();
  if (header.kind == FrameKind::data && header.length > 0 && header.length <= frame_bytes_max) return {};
  if (header.kind == FrameKind::failed && header.length <= frame_text_bytes_max) return {};
  if (header.kind == FrameKind::written && header.length == 0) return {};
  return refuse();
}

Result<void> check_fabric_client_frame(const FrameHeader& header) {
  if (header.magic != frame_magic) return refuse();
  if (header.kind == FrameKind::greeting && header.length == fabric_greeting_bytes) return {};
  if (header.kind == FrameKind::ready && header.length == 0) return {};
  const bool fits = header.length > 0 && header.length <= frame_bytes_max;
  const bool has_place = checked_add(header.offset, header.length).has_value();
  if (header.kind == FrameKind::memory && fits) return {};
  if (header.kind == FrameKind::take && fits && has_place) return {};
  if (header.kind == FrameKind::write && header.length > inline_bytes_max) return refuse();
  return check_client_frame(header);
}

Result<void> check_fabric_server_frame(const FrameHeader& header) {
  if (header.magic != frame_magic) return refuse();
  if (header.kind == FrameKind::greeting && header.length == fabric_greeting_bytes) return {};
  if (header.kind == FrameKind::landed && header.length > 0 && header.length <= frame_bytes_max) return {};
  if ((header.kind == FrameKind::ready || header.kind == FrameKind::taken) && header.length == 0) return {};
  if (header.kind == FrameKind::data && header.length > inline_bytes_max) return refuse();
  return check_server_frame(header);
}

Error error_of(const FrameHeader& header, std::string text) {
  const bool known = header.segment >= static_cast<std::uint32_t>(ErrorCode::invalid_argument) &&
                     header.segment <= static_cast<std::uint32_t>(ErrorCode::unavailable);
  return {known ? static_cast<ErrorCode>(header.segment) : ErrorCode::protocol, std::move(text), {}};
}

}  // namespace forebay::fabric
