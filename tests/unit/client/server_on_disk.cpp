// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/client/server_on_disk.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <forebay/admin.h>

#include "client/segments/client_device.h"

namespace forebay::testing {
namespace {

constexpr std::uint64_t pool_bytes = std::uint64_t{256} << 20;

}  // namespace

ServerOnDisk::ServerOnDisk() {
  point_environment_here();
}

ServerOnDisk::~ServerOnDisk() {
  stop();
  client::set_client_device(posix_device());
  ::unsetenv("FOREBAY_SOCKET");
}

void ServerOnDisk::point_environment_here() const {
  ::setenv("FOREBAY_SOCKET", directory_.path("socket").c_str(), 1);
}

Result<void> ServerOnDisk::start() {
  point_environment_here();
  server::ServerOptions options;
  options.root = root();
  options.socket_path = directory_.path("socket");
  options.capacity_bytes = pool_bytes;
  options.flush_interval_ms = flush_interval_ms_;
  options.restart_grace_ms = restart_grace_ms_;
  options.checked_per_turn = checked_per_turn_;
  auto server = server::Server::start(disk_, options);
  if (!server) return fail(std::move(server.error()));
  server_ = std::move(*server);
  thread_ = std::thread([this] { server_->run(); });
  return {};
}

void ServerOnDisk::stop() {
  if (!runs()) return;
  server_->loop().post([this] { server_->stop(); });
  thread_.join();
  server_.reset();
}

Result<void> ServerOnDisk::flush_and_stop() {
  server_->loop().post([this] { server_->stop(); });
  thread_.join();
  auto flushed = server_->flush_everything();
  server_.reset();
  return flushed;
}

void ServerOnDisk::take_for_another_boot() const {
  // Its first line is the boot's; what follows is the server's own.
  const std::string path = root() + "/boot-id";
  std::string line;
  std::stringstream rest;
  std::ifstream before(path);
  std::getline(before, line);
  rest << before.rdbuf();
  std::ofstream(path) << "another\n" << rest.str();
}

Result<void> ServerOnDisk::restart(bool boot, const std::function<void()>& meanwhile) {
  stop();
  meanwhile();
  if (boot) take_for_another_boot();
  return start();
}

Result<void> ServerOnDisk::create(const std::string& name, std::uint64_t capacity_bytes) {
  auto admin = Admin::connect();
  if (!admin) return fail(std::move(admin.error()));
  ReservationSpec spec;
  spec.name = name;
  spec.capacity_bytes = capacity_bytes;
  spec.lifetime = Lifetime::persistent;
  if (auto created = (*admin)->create_reservation(spec); !created) return fail(std::move(created.error()));
  return {};
}

void ServerOnDisk::share_with_clients() {
  client::set_client_device(disk_);
}

void ServerOnDisk::copy_to(const std::string& image) const {
  std::filesystem::copy(root(), image, std::filesystem::copy_options::recursive);
}

void ServerOnDisk::restore(const std::string& image) {
  stop();
  std::filesystem::remove_all(root());
  std::filesystem::copy(image, root(), std::filesystem::copy_options::recursive);
  disk_.forget();
}

}  // namespace forebay::testing
