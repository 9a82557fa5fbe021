// SPDX-License-Identifier: Apache-2.0
// forebay._core.Admin: reservations, streams, staging marks and audits of a server.
#include <forebay/address.h>
#include <forebay/admin.h>

#include "bindings.h"
#include "conversion.h"
#include "handle.h"

namespace nb = nanobind;

namespace forebay::python {

namespace {

constexpr Choice<Lifetime> lifetimes[] = {{"job", Lifetime::job}, {"persistent", Lifetime::persistent}};
constexpr Choice<AccessMode> access_modes[] = {{"striped", AccessMode::striped}, {"private", AccessMode::private_}};
constexpr Choice<ReservationType> reservation_types[] = {{"scratch", ReservationType::scratch},
                                                         {"cache", ReservationType::cache}};

nb::dict dict_of(const ReservationInfo& info) {
  nb::dict dict;
  dict["name"] = info.name;
  dict["id"] = info.id;
  dict["capacity_bytes"] = info.capacity_bytes;
  dict["used_bytes"] = info.used_bytes;
  dict["files_bytes"] = info.files_bytes;
  dict["segment_bytes"] = info.segment_bytes;
  dict["lifetime"] = name_of(info.lifetime, lifetimes);
  dict["access_mode"] = name_of(info.access_mode, access_modes);
  dict["type"] = name_of(info.type, reservation_types);
  dict["owner_uid"] = info.owner_uid;
  dict["owner_gid"] = info.owner_gid;
  dict["created_ns"] = info.created_ns;
  dict["streams"] = info.streams;
  dict["files_path"] = text_of(info.files_path);
  return dict;
}

class PythonAdmin {
 public:
  PythonAdmin(std::unique_ptr<Admin> admin, std::shared_ptr<Attention> attention)
      : handle_(std::move(admin), std::move(attention), "a connection for administration") {}

  void close() { handle_.close(); }

  nb::dict server() {
    const ServerInfo info = handle_.call([](Admin& admin) { return admin.server(); });
    nb::dict dict;
    dict["version"] = info.version;
    dict["root"] = text_of(info.root);
    dict["pid"] = info.pid;
    dict["started_ns"] = info.started_ns;
    dict["pool_bytes"] = info.pool_bytes;
    dict["reserved_bytes"] = info.reserved_bytes;
    dict["granularity_bytes"] = info.granularity_bytes;
    dict["clients"] = info.clients;
    dict["reservations"] = info.reservations;
    return dict;
  }

  nb::dict create_reservation(std::string name, std::uint64_t capacity_bytes, const std::string& lifetime,
                              const std::string& access_mode, const std::string& reservation_type,
                              std::optional<std::uint32_t> owner_uid, std::optional<std::uint32_t> owner_gid) {
    const ReservationSpec spec{.name = std::move(name),
                               .capacity_bytes = capacity_bytes,
                               .lifetime = choice("lifetime", lifetime, lifetimes),
                               .access_mode = choice("access_mode", access_mode, access_modes),
                               .type = choice("type", reservation_type, reservation_types),
                               .owner_uid = owner_uid,
                               .owner_gid = owner_gid};
    return dict_of(handle_.call([&](Admin& admin) { return admin.create_reservation(spec); }));
  }

  void destroy_reservation(const std::string& name, bool force) {
    handle_.call([&](Admin& admin) { return admin.destroy_reservation(name, force); });
  }

  nb::list reservations() {
    nb::list list;
    for (const ReservationInfo& info : handle_.call([](Admin& admin) { return admin.reservations(); })) {
      list.append(dict_of(info));
    }
    return list;
  }

  nb::dict reservation(const std::string& name) {
    return dict_of(handle_.call([&](Admin& admin) { return admin.reservation(name); }));
  }

  nb::list streams(const std::string& reservation) {
    nb::list list;
    for (const StreamInfo& info : handle_.call([&](Admin& admin) { return admin.streams(reservation); })) {
      list.append(python::dict_of(info));
    }
    return list;
  }

  nb::dict stream(const std::string& address) {
    const Address place = unwrap(parse_address(address));
    return python::dict_of(handle_.call([&](Admin& admin) { return admin.stream(place); }));
  }

  nb::list steps(const std::string& address) {
    const Address place = unwrap(parse_address(address));
    return list_of(handle_.call([&](Admin& admin) { return admin.steps(place); }));
  }

  void remove_stream(const std::string& address, bool force) {
    const Address place = unwrap(parse_address(address));
    handle_.call([&](Admin& admin) { return admin.remove_stream(place, force); });
  }

  void remove_consumer(const std::string& address, const std::string& consumer) {
    const Address place = unwrap(parse_address(address));
    handle_.call([&](Admin& admin) { return admin.remove_consumer(place, consumer); });
  }

  void set_retention(const std::string& address, RetentionFields fields) {
    const Address place = unwrap(parse_address(address));
    const Retention retention = retention_of(std::move(fields));
    handle_.call([&](Admin& admin) { return admin.set_retention(place, retention); });
  }

  void mark_staged(const std::string& address, std::uint32_t epoch, const std::vector<std::uint64_t>& steps,
                   const std::string& receipt) {
    const Address place = unwrap(parse_address(address));
    handle_.call([&](Admin& admin) { return admin.mark_staged(place, epoch, steps, receipt); });
  }

  void set_precious(const std::string& address, const std::vector<std::uint64_t>& steps, bool precious) {
    const Address place = unwrap(parse_address(address));
    handle_.call([&](Admin& admin) { return admin.set_precious(place, steps, precious); });
  }

  nb::list audit(bool read_data) {
    nb::list list;
    for (const Finding& finding : handle_.call([&](Admin& admin) { return admin.audit(read_data); })) {
      list.append(nb::make_tuple(finding.severity == Finding::Severity::problem ? "problem" : "note",
                                 text_of(finding.where), text_of(finding.what)));
    }
    return list;
  }

 private:
  Handle<Admin> handle_;
};

PythonAdmin* connect(const ServerPlace& place, std::int64_t reconnect_timeout_ms) {
  auto attention = std::make_shared<Attention>();
  Result<std::unique_ptr<Admin>> admin = [&] {
    const WithoutGil released;
    return Admin::connect_to(place, Attention::hook(attention), reconnect_timeout_ms);
  }();
  return new PythonAdmin(unwrap(std::move(admin)), std::move(attention));
}

}  // namespace

void bind_admin(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<PythonAdmin>(module, "Admin")
      .def_static("connect", &connect, "server"_a, "reconnect_timeout_ms"_a)
      .def("close", &PythonAdmin::close)
      .def("server", &PythonAdmin::server)
      .def("create_reservation", &PythonAdmin::create_reservation, "name"_a, "capacity_bytes"_a, "lifetime"_a,
           "access_mode"_a, "reservation_type"_a, "owner_uid"_a.none(), "owner_gid"_a.none())
      .def("destroy_reservation", &PythonAdmin::destroy_reservation, "name"_a, "force"_a)
      .def("reservations", &PythonAdmin::reservations)
      .def("reservation", &PythonAdmin::reservation, "name"_a)
      .def("streams", &PythonAdmin::streams, "reservation"_a)
      .def("stream", &PythonAdmin::stream, "address"_a)
      .def("steps", &PythonAdmin::steps, "address"_a)
      .def("remove_stream", &PythonAdmin::remove_stream, "address"_a, "force"_a)
      .def("remove_consumer", &PythonAdmin::remove_consumer, "address"_a, "consumer"_a)
      .def("set_retention", &PythonAdmin::set_retention, "address"_a, "retention"_a)
      .def("mark_staged", &PythonAdmin::mark_staged, "address"_a, "epoch"_a, "steps"_a, "receipt"_a)
      .def("set_precious", &PythonAdmin::set_precious, "address"_a, "steps"_a, "precious"_a)
      .def("audit", &PythonAdmin::audit, "read_data"_a);
}

}  // namespace forebay::python
