// SPDX-License-Identifier: Apache-2.0
// The data model: element types, shapes, boxes, attribute values. Values of the enumerations lie on disk: never
// renumber.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace forebay {

/// Extents, offsets and counts of an N-d array, slowest dimension first (C order).
using Dimensions = std::vector<std::uint64_t>;

/// Element type. `character` is C++ char (ADIOS2 tells it from int8); `long_double` is x87 extended in 16 bytes.
enum class DataType : std::uint8_t {
  character = 1,
  int8 = 2,
  int16 = 3,
  int32 = 4,
  int64 = 5,
  uint8 = 6,
  uint16 = 7,
  uint32 = 8,
  uint64 = 9,
  float32 = 10,
  float64 = 11,
  long_double = 12,
  complex64 = 13,   ///< two float32
  complex128 = 14,  ///< two float64
  string = 15,      ///< single values only
};

/// Bytes of one element; 0 for string.
std::size_t element_size(DataType type) noexcept;
/// "int32", "float64", …; the names that Python, JSON and the docs use.
std::string_view to_string(DataType type) noexcept;
/// True for the values above.
bool is_valid(DataType type) noexcept;
/// True where min/max are defined: every type but complex and string.
bool has_order(DataType type) noexcept;

template <class T>
inline constexpr std::optional<DataType> data_type_of = std::nullopt;
template <>
inline constexpr std::optional<DataType> data_type_of<char> = DataType::character;
template <>
inline constexpr std::optional<DataType> data_type_of<std::int8_t> = DataType::int8;
template <>
inline constexpr std::optional<DataType> data_type_of<std::int16_t> = DataType::int16;
template <>
inline constexpr std::optional<DataType> data_type_of<std::int32_t> = DataType::int32;
template <>
inline constexpr std::optional<DataType> data_type_of<std::int64_t> = DataType::int64;
template <>
inline constexpr std::optional<DataType> data_type_of<std::uint8_t> = DataType::uint8;
template <>
inline constexpr std::optional<DataType> data_type_of<std::uint16_t> = DataType::uint16;
template <>
inline constexpr std::optional<DataType> data_type_of<std::uint32_t> = DataType::uint32;
template <>
inline constexpr std::optional<DataType> data_type_of<std::uint64_t> = DataType::uint64;
template <>
inline constexpr std::optional<DataType> data_type_of<float> = DataType::float32;
template <>
inline constexpr std::optional<DataType> data_type_of<double> = DataType::float64;
template <>
inline constexpr std::optional<DataType> data_type_of<long double> = DataType::long_double;
template <>
inline constexpr std::optional<DataType> data_type_of<std::complex<float>> = DataType::complex64;
template <>
inline constexpr std::optional<DataType> data_type_of<std::complex<double>> = DataType::complex128;
template <>
inline constexpr std::optional<DataType> data_type_of<std::string> = DataType::string;

/// Calls `function.template operator()<T>()` for the type that `type` names.
template <class Function>
decltype(auto) with_type(DataType type, Function&& function) {
  switch (type) {
    case DataType::character:
      return function.template operator()<char>();
    case DataType::int8:
      return function.template operator()<std::int8_t>();
    case DataType::int16:
      return function.template operator()<std::int16_t>();
    case DataType::int32:
      return function.template operator()<std::int32_t>();
    case DataType::int64:
      return function.template operator()<std::int64_t>();
    case DataType::uint8:
      return function.template operator()<std::uint8_t>();
    case DataType::uint16:
      return function.template operator()<std::uint16_t>();
    case DataType::uint32:
      return function.template operator()<std::uint32_t>();
    case DataType::uint64:
      return function.template operator()<std::uint64_t>();
    case DataType::float32:
      return function.template operator()<float>();
    case DataType::float64:
      return function.template operator()<double>();
    case DataType::long_double:
      return function.template operator()<long double>();
    case DataType::complex64:
      return function.template operator()<std::complex<float>>();
    case DataType::complex128:
      return function.template operator()<std::complex<double>>();
    case DataType::string:
      break;
  }
  return function.template operator()<std::string>();
}

/// How the blocks of a variable make up its whole; ADIOS2's shape ids.
enum class ShapeKind : std::uint8_t {
  global_value = 1,  ///< one value for all ranks
  global_array = 2,  ///< blocks at (start, count) of a global shape
  joined_array = 3,  ///< blocks laid one after another along one dimension
  local_value = 4,   ///< one value per rank; readers see a 1-d array of them
  local_array = 5,   ///< unrelated blocks
};
std::string_view to_string(ShapeKind kind) noexcept;

/// A hyperslab. Both vectors have the variable's number of dimensions.
struct Box {
  Dimensions start;
  Dimensions count;

  bool operator==(const Box&) const = default;
};

/// Number of elements in `count`; 1 for no dimensions. The caller has checked that it does not overflow.
std::uint64_t element_count(std::span<const std::uint64_t> count) noexcept;

/// An attribute's value: one or many of one type. Vectors of `DataType` and raw bytes, or strings.
struct AttributeValue {
  DataType type = DataType::string;
  bool is_array = false;             ///< false: exactly one element
  std::vector<std::byte> bytes;      ///< elements, for every type but string
  std::vector<std::string> strings;  ///< elements, for string

  bool operator==(const AttributeValue&) const = default;
};

/// Address of a stream: RESERVATION/STREAM, optionally @STEP.
struct Address {
  std::string reservation;
  std::string stream;
  std::optional<std::uint64_t> step = {};
  std::string server = {};  ///< "HOST:PORT" of the server that has it; empty: the one that client and environment name

  /// "RESERVATION/STREAM".
  std::string path() const { return reservation + "/" + stream; }
};

}  // namespace forebay
