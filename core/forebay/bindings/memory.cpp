// SPDX-License-Identifier: Apache-2.0
#include "memory.h"

#include "bindings.h"

namespace nb = nanobind;

namespace forebay::python {

int Memory::get_buffer(PyObject* self, Py_buffer* view, int flags) {
  const auto* memory = nb::inst_ptr<Memory>(self);
  // NumPy asks for a writable buffer whenever someone sets flags.writeable: sealed memory says no.
  return PyBuffer_FillInfo(view, self, memory->data_, static_cast<Py_ssize_t>(memory->size_bytes_),
                           memory->writable_ ? 0 : 1, flags);
}

void bind_memory(nb::module_& module) {
  static const PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(&Memory::get_buffer)}, {0, nullptr}};
  nb::class_<Memory>(module, "Memory", nb::type_slots(slots))
      .def_prop_ro("nbytes", &Memory::size_bytes)
      .def("seal", &Memory::seal);
}

}  // namespace forebay::python
