// SPDX-License-Identifier: Apache-2.0
// The module forebay._core: addresses and the other functions without state; the classes are bound beside.
#include <forebay/address.h>
#include <forebay/checksum.h>
#include <forebay/ticket.h>

#include "bindings.h"
#include "conversion.h"
#include "handle.h"

namespace nb = nanobind;

namespace forebay::python {

void bind_addresses(nb::module_& module) {
  using namespace nb::literals;
  module.def(
      "parse_address",
      [](const std::string& text) {
        Address address = unwrap(parse_address(text));
        return std::tuple(std::move(address.reservation), std::move(address.stream), address.step,
                          std::move(address.server));
      },
      "text"_a);
  module.def(
      "parse_ticket",
      [](nb::bytes text, nb::str where) {
        Ticket ticket = unwrap(parse_ticket({text.c_str(), text.size()}, bytes_of(std::move(where))));
        Address& address = ticket.address;
        return std::tuple(std::move(address.reservation), std::move(address.stream), address.step,
                          std::move(address.server), std::move(ticket.uuid), ticket.epoch);
      },
      "text"_a, "where"_a);
  module.def("is_valid_name", [](const std::string& name) { return is_valid_name(name); }, "name"_a);
  module.def("looks_like_address", [](const std::string& text) { return looks_like_address(text); }, "text"_a);
  module.def("instance_root", [] { return text_of(instance_root()); });
  module.def("server_socket", [] { return text_of(unwrap(server_socket())); });
  nb::class_<ServerPlace>(module, "ServerPlace")
      .def_static("find", [] { return unwrap(ServerPlace::find()); })
      .def_static(
          "of_root", [](nb::str root) { return unwrap(ServerPlace::of_root(bytes_of(std::move(root)))); }, "root"_a)
      .def_static(
          "at_socket", [](nb::str path) { return ServerPlace{bytes_of(std::move(path)), {}}; }, "path"_a)
      .def_static(
          "at_server", [](const std::string& server) { return unwrap(ServerPlace::at_server(server)); }, "server"_a)
      .def_prop_ro("reservation_id",
                   [](const ServerPlace& place) {
                     const bool introduced = place.remote && place.remote->introduction;
                     return introduced ? place.remote->introduction->reservation_id : std::string();
                   })
      .def_prop_ro("text", [](const ServerPlace& place) { return text_of(place.text()); });
  module.def(
      "crc32c",
      [](nb::handle data, std::uint32_t previous) {
        Py_buffer buffer;
        if (PyObject_GetBuffer(data.ptr(), &buffer, PyBUF_SIMPLE) != 0) {
          throw nb::python_error();
        }
        std::uint32_t checksum = 0;
        {
          const WithoutGil released;
          checksum =
              crc32c({static_cast<const std::byte*>(buffer.buf), static_cast<std::size_t>(buffer.len)}, previous);
        }
        PyBuffer_Release(&buffer);
        return checksum;
      },
      "data"_a, "previous"_a = 0);
  module.def("launcher_group", [] { return text_of(launcher_group()); });
  module.def("launcher_rank", [] {
    LauncherRank found = unwrap(launcher_rank());
    return std::tuple(found.rank, found.ranks, std::move(found.source), std::move(found.group));
  });
  module.def(
      "parse_retention", [](const std::string& text) { return dict_of(unwrap(parse_retention(text))); }, "text"_a);
  module.def(
      "format_retention",
      [](const nb::dict& fields) {
        Retention retention;
        Retention::each_field(
            [&](const char* name, auto& field) {
              field = nb::cast<std::remove_reference_t<decltype(field)>>(fields[name]);
            },
            retention);
        return to_string(retention);
      },
      "fields"_a);
}

}  // namespace forebay::python

NB_MODULE(_core, module) {
  using namespace forebay::python;
  // Steps and views that are alive when the interpreter ends are no leak worth a line on the user's terminal.
  nb::set_leak_warnings(false);
  count_forks();
  bind_addresses(module);
  bind_memory(module);
  bind_step(module);
  bind_reader(module);
  bind_writer(module);
  bind_admin(module);
}
