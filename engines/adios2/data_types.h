// SPDX-License-Identifier: Apache-2.0
// From a DataType known at run time to the C++ type that ADIOS2's templates want.
#pragma once

#include <complex>
#include <cstdint>
#include <string>
#include <utility>

#include <adios2.h>

#include <forebay/types.h>

namespace forebay::engine {

#define FOREBAY_CHECK_TYPE(T) static_assert(data_type_of<T>.has_value());
ADIOS2_FOREACH_STDTYPE_1ARG(FOREBAY_CHECK_TYPE)
#undef FOREBAY_CHECK_TYPE

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

}  // namespace forebay::engine
