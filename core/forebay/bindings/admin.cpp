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

class PythonAdmin {
 public:
  PythonAdmin(std::unique_ptr<Admin> admin, std::shared_ptr<Attention> attention)
      : handle_(std::move(admin), std::move(attention), "a connection for administration") {}

  void close() { handle_.close(); }

  nb::dict server() {
    return dict_of(handle_.call([](Admin& admin) { return admin.server(); }));
  }

  nb::dict ping(std::uint32_t requests, std::uint64_t bytes) {
    return dict_of(handle_.call([&](Admin& admin) { return admin.ping(requests, bytes); }));
  }

  nb::dict create_reservation(std::string name, std::uint64_t capacity_bytes, std::uint64_t files_bytes,
                              const std::string& lifetime, std::optional<std::uint32_t> owner_uid,
                              std::optional<std::uint32_t> owner_gid, std::string pool, std::string account,
                              std::string id, const std::vector<std::pair<std::string, std::uint64_t>>& members) {
    ReservationSpec spec{.name = std::move(name),
                         .capacity_bytes = capacity_bytes,
                         .files_bytes = files_bytes,
                         .lifetime = choice("lifetime", lifetime, lifetimes),
                         .owner_uid = owner_uid,
                         .owner_gid = owner_gid,
                         .pool = std::move(pool),
                         .account = std::move(account),
                         .id = std::move(id),
                         .members = {}};
    for (const auto& [server, bytes] : members) spec.members.push_back({server, bytes});
    return dict_of(handle_.call([&](Admin& admin) { return admin.create_reservation(spec); }));
  }

  void destroy_reservation(const std::string& name, bool force) {
    handle_.call([&](Admin& admin) { return admin.destroy_reservation(name, force); });
  }

  nb::dict adopt_files(const std::string& name, const std::string& path) {
    return dict_of(handle_.call([&](Admin& admin) { return admin.adopt_files(name, path); }));
  }
  nb::dict share_reservation(const std::string& name, const std::string& kind, std::uint32_t id,
                             const std::string& rights) {
    const Share share{choice("kind", kind, share_kinds), id, choice("rights", rights, share_rights)};
    return dict_of(handle_.call([&](Admin& admin) { return admin.share_reservation(name, share); }));
  }

  nb::dict change_reservation(const std::string& name, const std::optional<std::string>& lifetime,
                              std::optional<std::uint64_t> files_bytes) {
    std::optional<Lifetime> wanted;
    if (lifetime) wanted = choice("lifetime", *lifetime, lifetimes);
    return dict_of(handle_.call([&](Admin& admin) { return admin.change_reservation(name, wanted, files_bytes); }));
  }

  nb::object reservations(bool count_files, const std::optional<std::vector<std::string>>& names,
                          std::optional<std::uint32_t> turn_of) {
    return object_of(handle_.call([&](Admin& admin) { return admin.reservations(count_files, names, turn_of); }));
  }

  nb::dict reservation(const std::string& name, bool count_files) {
    return dict_of(handle_.call([&](Admin& admin) { return admin.reservation(name, count_files); }));
  }

  nb::object awaited_streams(const std::string& reservation) {
    return object_of(handle_.call([&](Admin& admin) { return admin.awaited_streams(reservation); }));
  }
  nb::object streams(const std::string& reservation) {
    return object_of(handle_.call([&](Admin& admin) { return admin.streams(reservation); }));
  }

  nb::dict stream(const std::string& address) {
    const Address place = unwrap(parse_address(address));
    return dict_of(handle_.call([&](Admin& admin) { return admin.stream(place); }));
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

  void set_retention(const std::string& address, const std::string& text) {
    const Address place = unwrap(parse_address(address));
    const Retention retention = unwrap(parse_retention(text));
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

  void drop_steps(const std::string& address, const std::vector<std::uint64_t>& steps) {
    const Address place = unwrap(parse_address(address));
    handle_.call([&](Admin& admin) { return admin.drop_steps(place, steps); });
  }

  void revoke_token(const std::string& token) {
    handle_.call([&](Admin& admin) { return admin.revoke_token(token); });
  }
  std::string create_token(const std::string& reservation, bool reads, bool writes, std::uint64_t lifetime_s,
                           std::optional<std::uint32_t> uid) {
    return handle_.call([&](Admin& admin) { return admin.create_token(reservation, reads, writes, lifetime_s, uid); });
  }

  void tell_pool_directory(std::string manager,
                           const std::vector<std::tuple<std::string, std::string, std::string>>& homes,
                           const std::vector<std::tuple<std::string, std::string, std::string>>& servers) {
    PoolDirectory directory{std::move(manager), {}, {}};
    for (const auto& [name, id, server] : homes) directory.homes.push_back({name, id, server});
    for (const auto& [uuid, name, server] : servers) directory.servers.push_back({uuid, name, server});
    handle_.call([&](Admin& admin) { return admin.tell_pool_directory(directory); });
  }

  std::tuple<std::uint16_t, nb::bytes> call_manager(const std::string& method, const std::string& target,
                                                    const nb::bytes& body) {
    const std::string text(body.c_str(), body.size());
    const ManagerAnswer answer = handle_.call([&](Admin& admin) { return admin.call_manager(method, target, text); });
    return {answer.status, nb::bytes(answer.body.data(), answer.body.size())};
  }

  nb::object audit(bool read_data) {
    return object_of(handle_.call([&](Admin& admin) { return admin.audit(read_data); }));
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

/// `of`: what a Result is made by, without Python's lock.
template <class Of>
auto found(Of&& of) {
  auto attention = std::make_shared<Attention>();
  auto made = [&] {
    const WithoutGil released;
    return of(Attention::hook(attention));
  }();
  return unwrap(std::move(made));
}

ServerPlace home_of_reservation(const ServerPlace& place, const std::string& reservation) {
  return found([&](const InterruptHook& interrupt) { return home_of(place, reservation, interrupt); });
}

ServerPlace server_of_pool(const ServerPlace& place, const std::string& server) {
  return found([&](const InterruptHook& interrupt) { return pool_server(place, server, interrupt); });
}

std::string token_of_user(const ServerPlace& place, std::uint64_t lifetime_s) {
  return found([&](const InterruptHook& interrupt) { return user_token(place, lifetime_s, interrupt); });
}

/// Names of each record's fields, in order: what Python's records have to agree with.
nb::dict record_fields() {
  nb::dict records;
  const auto add = [&]<class Record>(const char* name, const Record& record) {
    nb::list fields;
    Record::each_field([&](const char* field, const auto&) { fields.append(field); }, record);
    records[name] = fields;
  };
  add("Retention", Retention{});
  add("StepSummary", StepSummary{});
  add("ConsumerInfo", ConsumerInfo{});
  add("StreamWait", StreamWait{});
  add("StreamInfo", StreamInfo{});
  add("AwaitedStream", AwaitedStream{});
  add("Share", Share{});
  add("ReservationInfo", ReservationInfo{});
  add("ServerInfo", ServerInfo{});
  add("PingInfo", PingInfo{});
  add("Finding", Finding{});
  return records;
}

}  // namespace

void bind_admin(nb::module_& module) {
  using namespace nb::literals;
  module.def("record_fields", &record_fields);
  module.def("home_of", &home_of_reservation, "place"_a, "reservation"_a);
  module.def("pool_server", &server_of_pool, "place"_a, "server"_a);
  module.def("user_token", &token_of_user, "place"_a, "lifetime_s"_a);
  module.def("new_pool_key", &new_pool_key);
  nb::class_<PythonAdmin>(module, "Admin")
      .def_static("connect", &connect, "server"_a, "reconnect_timeout_ms"_a)
      .def("close", &PythonAdmin::close)
      .def("server", &PythonAdmin::server)
      .def("ping", &PythonAdmin::ping, "requests"_a, "size_bytes"_a)
      .def("create_reservation", &PythonAdmin::create_reservation, "name"_a, "capacity_bytes"_a, "files_bytes"_a,
           "lifetime"_a, "owner_uid"_a.none(), "owner_gid"_a.none(), "pool"_a, "account"_a, "id"_a, "members"_a)
      .def("destroy_reservation", &PythonAdmin::destroy_reservation, "name"_a, "force"_a)
      .def("adopt_files", &PythonAdmin::adopt_files, "name"_a, "path"_a)
      .def("share_reservation", &PythonAdmin::share_reservation, "name"_a, "kind"_a, "number"_a, "rights"_a)
      .def("change_reservation", &PythonAdmin::change_reservation, "name"_a, "lifetime"_a.none(),
           "files_bytes"_a.none())
      .def("reservations", &PythonAdmin::reservations, nb::kw_only(), "count_files"_a = true, "names"_a = nb::none(),
           "turn_of"_a = nb::none())
      .def("reservation", &PythonAdmin::reservation, "name"_a, nb::kw_only(), "count_files"_a = true)
      .def("streams", &PythonAdmin::streams, "reservation"_a)
      .def("awaited_streams", &PythonAdmin::awaited_streams, "reservation"_a)
      .def("stream", &PythonAdmin::stream, "address"_a)
      .def("steps", &PythonAdmin::steps, "address"_a)
      .def("remove_stream", &PythonAdmin::remove_stream, "address"_a, "force"_a)
      .def("remove_consumer", &PythonAdmin::remove_consumer, "address"_a, "consumer"_a)
      .def("set_retention", &PythonAdmin::set_retention, "address"_a, "retention"_a)
      .def("mark_staged", &PythonAdmin::mark_staged, "address"_a, "epoch"_a, "steps"_a, "receipt"_a)
      .def("set_precious", &PythonAdmin::set_precious, "address"_a, "steps"_a, "precious"_a)
      .def("drop_steps", &PythonAdmin::drop_steps, "address"_a, "steps"_a)
      .def("revoke_token", &PythonAdmin::revoke_token, "token"_a)
      .def("create_token", &PythonAdmin::create_token, "reservation"_a, "reads"_a, "writes"_a, "lifetime_s"_a,
           "uid"_a.none())
      .def("tell_pool_directory", &PythonAdmin::tell_pool_directory, "manager"_a, "homes"_a, "servers"_a)
      .def("call_manager", &PythonAdmin::call_manager, "method"_a, "target"_a, "body"_a)
      .def("audit", &PythonAdmin::audit, "read_data"_a);
}

}  // namespace forebay::python
