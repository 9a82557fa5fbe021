// SPDX-License-Identifier: Apache-2.0
#include "native_error.h"

namespace nb = nanobind;

namespace forebay::python {

void raise(const Error& error) {
  const std::string_view code = to_string(error.code);
  // Texts may quote what a file or a peer holds, which need not be UTF-8.
  const auto text = [](std::string_view bytes) {
    return nb::steal<nb::str>(PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace"));
  };
  const nb::object exception =
      nb::module_::import_("forebay.errors").attr("error_of_code")(text(code), text(error.what), text(error.where));
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw nb::python_error();
}

}  // namespace forebay::python
