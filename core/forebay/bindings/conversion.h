// SPDX-License-Identifier: Apache-2.0
// Values of the C++ API from and to plain Python objects: extents, choices by name, layouts of arrays, records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <forebay/admin.h>
#include <forebay/reader.h>
#include <forebay/types.h>
#include <forebay/writer.h>
#include <forebay/writer_options.h>

namespace forebay::python {

/// Any sequence of integers as extents; InvalidArgumentError for negative ones.
Dimensions dimensions_of(nanobind::handle sequence);
nanobind::tuple tuple_of(const Dimensions& dimensions);

/// Text that need not be UTF-8: bytes that are not survive as lone surrogates, and go back as they came.
nanobind::str text_of(std::string_view bytes);
std::string bytes_of(nanobind::str text);

/// An enumerator and its name in Python.
template <class Enumeration>
struct Choice {
  std::string_view name;
  Enumeration value;
};

[[noreturn]] void raise_unknown_choice(std::string_view option, std::string_view name,
                                       const std::vector<std::string_view>& known);

inline constexpr Choice<Lifetime> lifetimes[] = {{"job", Lifetime::job}, {"persistent", Lifetime::persistent}};
inline constexpr Choice<Share::Kind> share_kinds[] = {{"user", Share::Kind::user}, {"group", Share::Kind::group}};
inline constexpr Choice<Rights> share_rights[] = {
    {"none", Rights::none}, {"read", Rights::read}, {"write", Rights::write}};
inline constexpr Choice<StreamWait::Kind> wait_kinds[] = {
    {"space", StreamWait::Kind::space},     {"readers", StreamWait::Kind::readers},
    {"durable", StreamWait::Kind::durable}, {"group", StreamWait::Kind::group},
    {"writer", StreamWait::Kind::writer},   {"step", StreamWait::Kind::step},
    {"stream", StreamWait::Kind::stream},   {"server", StreamWait::Kind::server}};

/// The fields in the order of forebay.StepSummary.
nanobind::tuple tuple_of(const StepSummary& summary);
nanobind::list list_of(const std::vector<StepSummary>& summaries);
/// name, type, is it an array, bytes of the elements, texts: what attribute_from_native in forebay.datatypes takes.
nanobind::list list_of(const std::vector<Attribute>& attributes);

/// A record with fields of any kind, by name.
template <class Record>
nanobind::dict dict_of(const Record& record);

/// A field of a record in Python: choices by name, records in a record as dicts.
nanobind::object object_of(const std::string& text);
nanobind::object object_of(Lifetime lifetime);
nanobind::object object_of(Share::Kind kind);
nanobind::object object_of(Rights rights);
nanobind::object object_of(StreamWait::Kind kind);
nanobind::object object_of(StreamStatus status);
nanobind::object object_of(Finding::Severity severity);
nanobind::object object_of(const Retention& retention);
template <class Value>
  requires std::is_arithmetic_v<Value>
nanobind::object object_of(Value value) {
  return nanobind::cast(value);
}
template <class Value>
nanobind::object object_of(const std::optional<Value>& value) {
  return nanobind::cast(value);
}
inline nanobind::object object_of(const std::vector<std::string>& texts) {
  return nanobind::cast(texts);
}
template <class Record>
nanobind::object object_of(const std::vector<Record>& records) {
  nanobind::list list;
  for (const Record& record : records) {
    list.append(dict_of(record));
  }
  return list;
}

template <class Record>
nanobind::dict dict_of(const Record& record) {
  nanobind::dict dict;
  Record::each_field([&](const char* name, const auto& value) { dict[name] = object_of(value); }, record);
  return dict;
}

/// An array's memory while a call uses it, through the buffer protocol.
class ArrayBuffer {
 public:
  enum class Access : std::uint8_t { read, write };
  ArrayBuffer(nanobind::handle array, Access access);
  ~ArrayBuffer() { PyBuffer_Release(&buffer_); }
  ArrayBuffer(const ArrayBuffer&) = delete;
  ArrayBuffer& operator=(const ArrayBuffer&) = delete;

  void* data() const { return buffer_.buf; }
  const Dimensions& count() const { return count_; }
  /// Extents of the C-ordered array that this one is a box of, starting at its first element; empty: contiguous.
  /// std::nullopt if the strides are not of that kind.
  std::optional<Dimensions> enclosing() const;
  /// InvalidArgumentError unless the array has these extents and elements of this size.
  void expect(const Dimensions& count, std::size_t element_size) const;

 private:
  Py_buffer buffer_{};
  Dimensions count_;
};

/// The enumerator that is called `name`; InvalidArgumentError lists the known names.
template <class Enumeration, std::size_t count>
Enumeration choice(std::string_view option, std::string_view name, const Choice<Enumeration> (&known)[count]) {
  std::vector<std::string_view> names;
  for (const auto& [text, value] : known) {
    if (is_same_word(text, name)) {
      return value;
    }
    names.push_back(text);
  }
  raise_unknown_choice(option, name, names);
}

/// The name of an enumerator.
template <class Enumeration, std::size_t count>
std::string_view name_of(Enumeration value, const Choice<Enumeration> (&known)[count]) {
  for (const auto& [text, candidate] : known) {
    if (candidate == value) {
      return text;
    }
  }
  return "unknown";
}

}  // namespace forebay::python
