// SPDX-License-Identifier: Apache-2.0
// A check that flatbuffers::Verifier leaves out: it accepts vectors whose elements are not aligned
// (https://github.com/google/flatbuffers/issues/8397). Generated code calls this in its place.
#pragma once

#include <cstdint>
#include <type_traits>

#include <flatbuffers/flatbuffers.h>

namespace forebay {

/// Whether a vector of numbers, structs or offsets (or none) is inside what is verified, and aligned for its elements.
template <class T>
bool verify_vector(const flatbuffers::Verifier& verifier, const flatbuffers::Vector<T>* vector) {
  constexpr std::uintptr_t alignment = alignof(std::remove_cv_t<std::remove_pointer_t<T>>);
  if (!verifier.VerifyVector(vector)) return false;
  return vector == nullptr || vector->size() == 0 || reinterpret_cast<std::uintptr_t>(vector->Data()) % alignment == 0;
}

}  // namespace forebay
