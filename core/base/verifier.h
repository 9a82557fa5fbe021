// SPDX-License-Identifier: Apache-2.0
// Verifies a buffer from outside. Generated code uses this class in place of flatbuffers::Verifier, which leaves out
// two things: it accepts vectors whose elements are not aligned (https://github.com/google/flatbuffers/issues/8397),
// and buffers in which many fields refer to the same bytes. A message of a megabyte could then unpack to a terabyte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <flatbuffers/flatbuffers.h>

namespace forebay {

class Verifier {
 public:
  using Options = flatbuffers::Verifier::Options;

  Verifier(const std::uint8_t* data, std::size_t size, const Options& options = {})
      : offsets_(data, size, options), data_(data), size_(size), unreached_bytes_(size) {}

  /// For flatbuffers::Table, which verifies offsets and single fields.
  operator flatbuffers::Verifier&() noexcept { return offsets_; }  // NOLINT(google-explicit-constructor)

  // What follows is what generated code calls.

  /// Whether this is a whole buffer with a T at its root.
  template <class T>
  bool VerifyBuffer(const char* identifier) {
    // Where the root lies, and the identifier.
    if (size_ < 2 * sizeof(flatbuffers::uoffset_t)) return false;
    if (identifier != nullptr && !flatbuffers::BufferHasIdentifier(data_, identifier)) return false;
    const flatbuffers::uoffset_t root = offsets_.VerifyOffset(0);
    return root != 0 && reinterpret_cast<const T*>(data_ + root)->Verify(*this);
  }

  /// Of numbers, structs or offsets.
  template <class T>
  bool VerifyVector(const flatbuffers::Vector<T>* vector) {
    constexpr std::uintptr_t alignment = alignof(std::remove_cv_t<std::remove_pointer_t<T>>);
    if (vector == nullptr) return true;
    if (!offsets_.VerifyVector(vector) || !reach(vector->size(), sizeof(std::remove_pointer_t<T>))) return false;
    return vector->size() == 0 || reinterpret_cast<std::uintptr_t>(vector->Data()) % alignment == 0;
  }

  bool VerifyString(const flatbuffers::String* text) {
    return text == nullptr || (offsets_.VerifyString(text) && reach(text->size(), 1));
  }

  bool VerifyVectorOfStrings(const flatbuffers::Vector<flatbuffers::Offset<flatbuffers::String>>* texts) {
    for (flatbuffers::uoffset_t i = 0; texts != nullptr && i < texts->size(); ++i)
      if (!VerifyString(texts->Get(i))) return false;
    return true;
  }

  template <class T>
  bool VerifyTable(const T* table) {
    return table == nullptr || (reach(0, 0) && table->Verify(*this));
  }

  template <class T>
  bool VerifyVectorOfTables(const flatbuffers::Vector<flatbuffers::Offset<T>>* tables) {
    for (flatbuffers::uoffset_t i = 0; tables != nullptr && i < tables->size(); ++i)
      if (!VerifyTable(tables->Get(i))) return false;
    return true;
  }

  bool EndTable() { return offsets_.EndTable(); }

 private:
  /// Everything begins with four bytes: a length, or where a table's layout lies. Together what is reached takes no
  /// more than there is, unless some of it is reached twice.
  bool reach(std::size_t elements, std::size_t bytes_each) {
    const std::size_t bytes = sizeof(flatbuffers::uoffset_t) + elements * bytes_each;
    if (bytes > unreached_bytes_) return false;
    unreached_bytes_ -= bytes;
    return true;
  }

  flatbuffers::Verifier offsets_;
  const std::uint8_t* const data_;
  const std::size_t size_;
  std::size_t unreached_bytes_;
};

}  // namespace forebay
