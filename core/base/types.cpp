// SPDX-License-Identifier: Apache-2.0
#include <forebay/admin.h>
#include <forebay/reader.h>
#include <forebay/result.h>
#include <forebay/types.h>

#include "base/plain_text.h"

namespace forebay {

std::string Error::message() const {
  return visible_text(where.empty() ? what : what + " (" + where + ")");
}

std::string_view to_string(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::not_found:
      return "not_found";
    case ErrorCode::already_exists:
      return "already_exists";
    case ErrorCode::permission_denied:
      return "permission_denied";
    case ErrorCode::busy:
      return "busy";
    case ErrorCode::fenced:
      return "fenced";
    case ErrorCode::timeout:
      return "timeout";
    case ErrorCode::cancelled:
      return "cancelled";
    case ErrorCode::no_space:
      return "no_space";
    case ErrorCode::corrupt:
      return "corrupt";
    case ErrorCode::io_error:
      return "io_error";
    case ErrorCode::disconnected:
      return "disconnected";
    case ErrorCode::step_gone:
      return "step_gone";
    case ErrorCode::refused:
      return "refused";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::protocol:
      return "protocol";
    case ErrorCode::group_broken:
      return "group_broken";
    case ErrorCode::failed:
      return "failed";
    case ErrorCode::unavailable:
      return "unavailable";
  }
  return "unknown";
}

std::size_t element_size(DataType type) noexcept {
  switch (type) {
    case DataType::character:
    case DataType::int8:
    case DataType::uint8:
      return 1;
    case DataType::int16:
    case DataType::uint16:
      return 2;
    case DataType::int32:
    case DataType::uint32:
    case DataType::float32:
      return 4;
    case DataType::int64:
    case DataType::uint64:
    case DataType::float64:
    case DataType::complex64:
      return 8;
    case DataType::long_double:
    case DataType::complex128:
      return 16;
    case DataType::string:
      return 0;
  }
  return 0;
}

std::string_view to_string(DataType type) noexcept {
  switch (type) {
    case DataType::character:
      return "char";
    case DataType::int8:
      return "int8";
    case DataType::int16:
      return "int16";
    case DataType::int32:
      return "int32";
    case DataType::int64:
      return "int64";
    case DataType::uint8:
      return "uint8";
    case DataType::uint16:
      return "uint16";
    case DataType::uint32:
      return "uint32";
    case DataType::uint64:
      return "uint64";
    case DataType::float32:
      return "float32";
    case DataType::float64:
      return "float64";
    case DataType::long_double:
      return "longdouble";
    case DataType::complex64:
      return "complex64";
    case DataType::complex128:
      return "complex128";
    case DataType::string:
      return "string";
  }
  return "unknown";
}

bool is_valid(DataType type) noexcept {
  return type >= DataType::character && type <= DataType::string;
}

bool has_order(DataType type) noexcept {
  return is_valid(type) && type != DataType::complex64 && type != DataType::complex128 && type != DataType::string;
}

std::string_view to_string(ShapeKind kind) noexcept {
  switch (kind) {
    case ShapeKind::global_value:
      return "global_value";
    case ShapeKind::global_array:
      return "global_array";
    case ShapeKind::joined_array:
      return "joined_array";
    case ShapeKind::local_value:
      return "local_value";
    case ShapeKind::local_array:
      return "local_array";
  }
  return "unknown";
}

std::string_view to_string(Rights rights) noexcept {
  switch (rights) {
    case Rights::none:
      return "none";
    case Rights::read:
      return "read";
    case Rights::write:
      return "write";
    case Rights::own:
      return "own";
  }
  return "unknown";
}

std::string_view to_string(StreamStatus status) noexcept {
  switch (status) {
    case StreamStatus::waiting:
      return "waiting";
    case StreamStatus::live:
      return "live";
    case StreamStatus::ended:
      return "ended";
    case StreamStatus::interrupted:
      return "interrupted";
    case StreamStatus::failed:
      return "failed";
  }
  return "unknown";
}

std::uint64_t element_count(std::span<const std::uint64_t> count) noexcept {
  std::uint64_t total = 1;
  for (std::uint64_t extent : count) total *= extent;
  return total;
}

}  // namespace forebay
