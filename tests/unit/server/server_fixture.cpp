// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/server/server_fixture.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <filesystem>
#include <future>
#include <memory>

#include "base/checksum.h"
#include "base/log.h"

namespace forebay::testing {

using protocol::Message;
using protocol::MessageType;

namespace {

constexpr int deadline_ms = 30'000;

Descriptor connected(const std::string& path) {
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0) << path;
  return socket;
}

}  // namespace

RawClient::RawClient(const std::string& socket_path, bool greet)
    : socket_path_(socket_path), socket_(connected(socket_path)) {
  if (greet) this->greet();
}

RawClient::RawClient(const std::string& socket_path, Descriptor socket)
    : socket_path_(socket_path), socket_(std::move(socket)) {
  greet();
}

void RawClient::greet() {
  wire::HelloT hello;
  hello.version = protocol::protocol_version;
  hello.program = "test";
  EXPECT_EQ(call(MessageType::hello, hello).type, MessageType::welcome);
}

std::uint32_t RawClient::send_body(MessageType type, std::span<const std::uint8_t> body,
                                   std::vector<Descriptor> descriptors) {
  ++last_request_;
  // The server may have ended the connection already: the answer tells.
  if (!socket_.send(type, last_request_, body, std::move(descriptors))) ended_ = true;
  return last_request_;
}

void RawClient::send_bytes(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    pollfd entry{socket_.descriptor(), POLLOUT, 0};
    if (::poll(&entry, 1, deadline_ms) <= 0) return;
    const ssize_t count = ::send(socket_.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count <= 0) return;
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

bool RawClient::receive() {
  pollfd entry{socket_.descriptor(), static_cast<short>(POLLIN | (socket_.has_unsent() ? POLLOUT : 0)), 0};
  if (::poll(&entry, 1, deadline_ms) <= 0) {
    ADD_FAILURE() << "the server has not answered";
    return false;
  }
  if (socket_.has_unsent()) (void)socket_.flush();
  const auto received = socket_.receive();
  while (auto message = socket_.pop()) received_.push_back(std::move(*message));
  if (!received) ended_ = true;
  return true;
}

Message RawClient::answer(std::uint32_t request) {
  while (true) {
    const auto found = std::ranges::find(received_, request, &Message::request);
    if (found != received_.end()) {
      Message message = std::move(*found);
      received_.erase(found);
      return message;
    }
    if (ended_ || !receive()) return {};
  }
}

std::optional<ErrorCode> RawClient::failure(const Message& message) {
  if (message.type != MessageType::failure) return std::nullopt;
  return protocol::failure_of(message).code;
}

bool RawClient::ended() {
  while (!ended_ && receive()) {
  }
  return ended_;
}

bool RawClient::is_answered(std::uint32_t request) {
  // A connection that comes after the request is greeted after the request was dealt with.
  const RawClient later(socket_path_);
  pollfd entry{socket_.descriptor(), POLLIN, 0};
  while (!ended_ && ::poll(&entry, 1, 0) > 0 && receive()) {
  }
  return std::ranges::find(received_, request, &Message::request) != received_.end();
}

void ServerTest::SetUp() {
  log::set_level(log::Level::error);
  options_.root = directory_.path("root");
  options_.socket_path = directory_.path("socket");
  options_.capacity_bytes = 1024 * mib;
  options_.checked_per_turn = server::ServerOptions::check_all;
  start();
  create("res", 64 * mib);
}

void ServerTest::start() {
  auto server = server::Server::start(device(), options_);
  ASSERT_TRUE(server) << server.error().message();
  server_ = std::move(*server);
  socket_path_ = server_->socket_path();
  thread_ = std::thread([this] { server_->run(); });
}

void ServerTest::stop() {
  server_->loop().post([this] { server_->stop(); });
  thread_.join();
  EXPECT_TRUE(server_->flush_everything());
  server_.reset();
}

void ServerTest::restart(const std::function<void()>& meanwhile) {
  stop();
  meanwhile();
  start();
}

void ServerTest::TearDown() {
  if (server_) stop();
}

void ServerTest::hold_loop(const std::function<void()>& meanwhile) {
  // The loop's thread may still look at them when this one has gone on.
  const auto held = std::make_shared<std::promise<void>>();
  const auto over = std::make_shared<std::promise<void>>();
  server_->loop().post([held, ended = over->get_future().share()] {
    held->set_value();
    ended.wait();
  });
  held->get_future().wait();
  meanwhile();
  over->set_value();
}

void ServerTest::in_loop(const std::function<void(server::Server&)>& task) {
  std::promise<void> done;
  server_->loop().post([&] {
    task(*server_);
    done.set_value();
  });
  done.get_future().wait();
}

std::string ServerTest::segment_path(std::uint32_t segment) const {
  const std::filesystem::path reservations = options_.root + "/reservations";
  const std::filesystem::directory_iterator only(reservations);
  return only->path() / "segments" / std::to_string(segment);
}

void ServerTest::create(const std::string& name, std::uint64_t capacity_bytes) {
  wire::ReservationCreateT asked;
  asked.name = name;
  asked.capacity_bytes = capacity_bytes;
  asked.lifetime = 1;
  EXPECT_EQ(connect().call(MessageType::reservation_create, asked).type, MessageType::reservations_answer);
}

std::vector<std::string> ServerTest::problems() {
  const auto answer =
      RawClient::unpack<wire::AuditAnswer>(connect().call(MessageType::audit_query, wire::AuditQueryT()));
  std::vector<std::string> found;
  for (const auto& finding : answer->findings) {
    if (finding->severity == static_cast<std::uint8_t>(Finding::Severity::problem))
      found.push_back(finding->where + ": " + finding->what);
  }
  return found;
}

void ServerTest::expect_alive() {
  EXPECT_EQ(connect().call(MessageType::server_query, wire::ServerQueryT()).type, MessageType::server_answer);
}

wire::WriterOpenT ServerTest::writer_open(std::uint32_t rank, std::uint32_t ranks, const std::string& stream) {
  wire::WriterOpenT asked;
  asked.reservation = "res";
  asked.stream = stream;
  asked.mode = 2;
  asked.rank = rank;
  asked.ranks = ranks;
  asked.ranks_source = "the test";
  asked.when_full = static_cast<std::uint8_t>(WhenFull::block);
  asked.block_timeout_ms = deadline_ms;
  asked.durability = 1;
  asked.open_timeout_ms = deadline_ms;
  asked.grace_ms = 0;
  return asked;
}

wire::ReaderOpenT ServerTest::reader_open(const std::string& consumer, const std::string& stream) {
  wire::ReaderOpenT asked;
  asked.reservation = "res";
  asked.stream = stream;
  asked.consumer = consumer;
  asked.start_kind = static_cast<std::uint8_t>(Start::Kind::cursor);
  asked.min_watermark = 1;
  asked.follow = true;
  asked.open_timeout_ms = deadline_ms;
  return asked;
}

wire::PartT ServerTest::part_of(RawClient& client, std::uint64_t step, std::uint64_t bytes) {
  wire::SpaceRequestT request;
  request.step = step;
  request.bytes = bytes;
  wire::PartT part;
  part.step = step;
  const Message answer = client.call(MessageType::space_request, request);
  EXPECT_EQ(answer.type, MessageType::space_granted);
  if (answer.type != MessageType::space_granted) return part;
  part.extents = RawClient::unpack<wire::SpaceGranted>(answer)->extents;
  part.metadata.emplace_back(part.extents[0].segment(), 0, 0, part.extents[0].offset(), 64);
  part.metadata_bytes = 64;
  return part;
}

void ServerTest::write_step(RawClient& client, std::uint64_t step, std::uint64_t bytes) {
  EXPECT_EQ(client.call(MessageType::part, part_of(client, step, bytes)).type, MessageType::committed);
}

RawClient ServerTest::writer(const std::string& stream) {
  RawClient client = connect();
  EXPECT_EQ(client.call(MessageType::writer_open, writer_open(0, 1, stream)).type, MessageType::writer_opened);
  return client;
}

RawClient ServerTest::reader(const wire::ReaderOpenT& asked) {
  RawClient client = connect();
  EXPECT_EQ(client.call(MessageType::reader_open, asked).type, MessageType::reader_opened);
  return client;
}

std::unique_ptr<wire::StepEventT> ServerTest::wait_step(RawClient& client) {
  return RawClient::unpack<wire::StepEvent>(client.call(MessageType::step_wait, wire::StepWaitT()));
}

std::unique_ptr<wire::StreamT> ServerTest::stream() {
  wire::StreamsQueryT query;
  query.reservation = "res";
  query.stream = "flow";
  auto answer = RawClient::unpack<wire::StreamsAnswer>(connect().call(MessageType::streams_query, query));
  return std::move(answer->streams.front());
}

}  // namespace forebay::testing
