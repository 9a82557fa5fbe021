// SPDX-License-Identifier: Apache-2.0
// Steps as a BP5 file, written and read with ADIOS2's types exactly as the stream has them: char is not int8, and
// long double is kept, which ADIOS2's own Python bindings cannot do. Everything here throws what ADIOS2 throws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include <adios2.h>

#include <forebay/types.h>

namespace forebay::staging {

/// Writes one step after another. Data given to put() must stay as it is until next_step() or close().
class Bp5Writer {
 public:
  explicit Bp5Writer(const std::string& path);
  /// Without a close() that succeeded, the file and ADIOS2's memory stay open until the process ends: ADIOS2 would try
  /// to write again in a destructor, and a second failure there (a full disk stays full) would end the process.
  ~Bp5Writer();
  Bp5Writer(const Bp5Writer&) = delete;
  Bp5Writer& operator=(const Bp5Writer&) = delete;

  /// One block. `shape` empty: a local array, or with an empty `count` a single value.
  void put(const std::string& name, DataType type, const Dimensions& shape, const Dimensions& start,
           const Dimensions& count, const std::byte* data);
  void put_string(const std::string& name, const std::string& value);
  void set_attribute(const std::string& name, const AttributeValue& value);

  /// Ends the step and begins another.
  void next_step();
  /// Ends the step and closes the file; its bytes are with the operating system then, not yet synced.
  void close();

 private:
  struct State {
    adios2::ADIOS adios;
    adios2::IO io;
    adios2::Engine engine;
  };
  std::unique_ptr<State> state_;
  bool closed_ = false;
};

/// What a BP5 file says of a variable.
struct Bp5Variable {
  std::string name;
  DataType type = DataType::float64;
  Dimensions shape;  ///< empty: a local array or a single value
  bool is_value = false;
  std::vector<Box> blocks;  ///< local arrays: without start
};

/// Reads the first step of a file, or one step after another.
class Bp5Reader {
 public:
  /// `step_by_step`: the first step is there after next_step().
  explicit Bp5Reader(const std::string& path, bool step_by_step = false);
  ~Bp5Reader();
  Bp5Reader(const Bp5Reader&) = delete;
  Bp5Reader& operator=(const Bp5Reader&) = delete;

  /// Not step by step: of the file.
  std::size_t steps() const;
  /// False at the end of the file.
  bool next_step();
  /// Of the step.
  std::vector<Bp5Variable> variables();
  std::map<std::string, AttributeValue> attributes();

  /// One block's elements; `size_bytes` is the size of `out` and must be the block's.
  void read_block(const Bp5Variable& variable, std::size_t block, std::byte* out, std::size_t size_bytes);
  std::string read_string(const std::string& name);

  /// Nothing can be read any more; idempotent.
  void close();

 private:
  adios2::ADIOS adios_;
  adios2::IO io_;
  mutable adios2::Engine engine_;
  bool in_step_ = false;
};

/// Calls `function.template operator()<T>()` with the C++ type of `type`, which is none of string's.
template <class Function>
auto with_element_type(DataType type, const Function& function) {
  return with_type(type, [&]<class T>() -> decltype(function.template operator()<char>()) {
    if constexpr (std::is_same_v<T, std::string>) {
      throw std::invalid_argument("this element type has no elements of a fixed size");
    } else {
      return function.template operator()<T>();
    }
  });
}

}  // namespace forebay::staging
