// SPDX-License-Identifier: Apache-2.0
#include "conversion.h"

#include "native_error.h"

namespace nb = nanobind;

namespace forebay::python {

nb::object object_of(const std::string& text) {
  return text_of(text);
}
nb::object object_of(Lifetime lifetime) {
  return nb::cast(name_of(lifetime, lifetimes));
}
nb::object object_of(Share::Kind kind) {
  return nb::cast(name_of(kind, share_kinds));
}
nb::object object_of(Rights rights) {
  return nb::cast(to_string(rights));
}
nb::object object_of(StreamWait::Kind kind) {
  return nb::cast(name_of(kind, wait_kinds));
}
nb::object object_of(StreamStatus status) {
  return nb::cast(to_string(status));
}
nb::object object_of(Finding::Severity severity) {
  return nb::cast(severity == Finding::Severity::problem ? "problem" : "note");
}

nb::object object_of(const Retention& retention) {
  return dict_of(retention);
}

Dimensions dimensions_of(nb::handle sequence) {
  const auto fast = nb::steal(PySequence_Fast(sequence.ptr(), "extents must be a sequence of integers"));
  if (!fast.is_valid()) {
    throw nb::python_error();
  }
  const Py_ssize_t size = PySequence_Fast_GET_SIZE(fast.ptr());
  PyObject** items = PySequence_Fast_ITEMS(fast.ptr());
  Dimensions dimensions(static_cast<std::size_t>(size));
  for (Py_ssize_t axis = 0; axis < size; ++axis) {
    const auto number = nb::steal(PyNumber_Index(items[axis]));
    if (!number.is_valid()) {
      throw nb::python_error();
    }
    const unsigned long long extent = PyLong_AsUnsignedLongLong(number.ptr());
    if (extent == static_cast<unsigned long long>(-1) && PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      raise({ErrorCode::invalid_argument,
             "extents and positions must be integers from 0 to 2**64 - 1, not " + std::string(nb::repr(number).c_str()),
             {}});
    }
    dimensions[static_cast<std::size_t>(axis)] = extent;
  }
  return dimensions;
}

nb::tuple tuple_of(const Dimensions& dimensions) {
  auto result = nb::steal<nb::tuple>(PyTuple_New(static_cast<Py_ssize_t>(dimensions.size())));
  for (std::size_t axis = 0; axis < dimensions.size(); ++axis) {
    PyTuple_SET_ITEM(result.ptr(), static_cast<Py_ssize_t>(axis), PyLong_FromUnsignedLongLong(dimensions[axis]));
  }
  return result;
}

nb::str text_of(std::string_view bytes) {
  auto text =
      nb::steal<nb::str>(PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "surrogateescape"));
  if (!text.is_valid()) {
    throw nb::python_error();
  }
  return text;
}

std::string bytes_of(nb::str text) {
  const auto encoded = nb::steal<nb::bytes>(PyUnicode_AsEncodedString(text.ptr(), "utf-8", "surrogateescape"));
  if (!encoded.is_valid()) {
    throw nb::python_error();
  }
  return {encoded.c_str(), encoded.size()};
}

void raise_unknown_choice(std::string_view option, std::string_view name, const std::vector<std::string_view>& known) {
  std::string what = std::string(option) + " is one of";
  for (const std::string_view text : known) {
    what += (text == known.front() ? " '" : ", '") + std::string(text) + "'";
  }
  raise({ErrorCode::invalid_argument, what + ", not '" + std::string(name) + "'", {}});
}

nb::tuple tuple_of(const StepSummary& summary) {
  nb::list values;
  StepSummary::each_field([&](const char*, const auto& value) { values.append(value); }, summary);
  return nb::tuple(values);
}

nb::list list_of(const std::vector<StepSummary>& summaries) {
  nb::list list;
  for (const StepSummary& summary : summaries) {
    list.append(tuple_of(summary));
  }
  return list;
}

nb::list list_of(const std::vector<Attribute>& attributes) {
  nb::list list;
  for (const Attribute& attribute : attributes) {
    nb::list texts;
    for (const std::string& text : attribute.value.strings) {
      texts.append(text_of(text));
    }
    list.append(nb::make_tuple(attribute.name, static_cast<int>(attribute.value.type), attribute.value.is_array,
                               nb::bytes(attribute.value.bytes.data(), attribute.value.bytes.size()), texts));
  }
  return list;
}

ArrayBuffer::ArrayBuffer(nb::handle array, Access access) {
  const int flags = access == Access::write ? PyBUF_STRIDED : PyBUF_STRIDED_RO;
  if (PyObject_GetBuffer(array.ptr(), &buffer_, flags) != 0) {
    throw nb::python_error();
  }
  count_.assign(buffer_.shape, buffer_.shape + buffer_.ndim);
}

std::optional<Dimensions> ArrayBuffer::enclosing() const {
  if (PyBuffer_IsContiguous(&buffer_, 'C') != 0) {
    return Dimensions{};
  }
  Dimensions enclosing(count_);
  auto unit = static_cast<std::uint64_t>(buffer_.itemsize);  // what the stride of this dimension has to be
  for (std::size_t axis = count_.size() - 1;; --axis) {
    // A dimension of extent 1 may have any stride.
    if (count_[axis] != 1 && (buffer_.strides[axis] < 0 || static_cast<std::uint64_t>(buffer_.strides[axis]) != unit)) {
      return std::nullopt;
    }
    if (axis == 0) {
      return enclosing;
    }
    if (count_[axis - 1] != 1) {
      const Py_ssize_t outer = buffer_.strides[axis - 1];
      if (outer < 0 || static_cast<std::uint64_t>(outer) % unit != 0 ||
          static_cast<std::uint64_t>(outer) / unit < count_[axis]) {
        return std::nullopt;
      }
      enclosing[axis] = static_cast<std::uint64_t>(outer) / unit;
    }
    unit *= enclosing[axis];
  }
}

void ArrayBuffer::expect(const Dimensions& count, std::size_t element_size) const {
  if (count_ != count || static_cast<std::size_t>(buffer_.itemsize) != element_size) {
    raise({ErrorCode::invalid_argument, "array shape or dtype does not match the selection", {}});
  }
}

}  // namespace forebay::python
