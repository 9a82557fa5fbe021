// SPDX-License-Identifier: Apache-2.0
#include "fabric/fabric_server_path.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.h"
#include "base/return_error.h"
#include "base/system_error.h"
#include "fabric/fabric_address.h"
#include "fabric/fabric_greeting.h"
#include "fabric/handshake.h"

namespace forebay::fabric {
namespace {

// How soon an operation that could not start is tried again: libfabric signals no descriptor then.
constexpr int retry_ms = 1;
// One message of each stranger that finds the endpoint's port; they are few.
constexpr int wrong_hellos_max = 16;
constexpr std::size_t page_bytes = 4096;

}  // namespace

Result<std::shared_ptr<FabricServerPath>> FabricServerPath::make(Descriptor socket, std::shared_ptr<WriteWindow> window,
                                                                 FabricChoice fabric, std::int64_t silence_ms) {
  Descriptor wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return system_error(errno, "cannot make a data path");
  return std::shared_ptr<FabricServerPath>(
      new FabricServerPath(std::move(socket), std::move(window), std::move(fabric), std::move(wake), silence_ms));
}

FabricServerPath::FabricServerPath(Descriptor socket, std::shared_ptr<WriteWindow> window, FabricChoice fabric,
                                   Descriptor wake, std::int64_t silence_ms)
    : frames_(std::move(socket), silence_ms),
      window_(std::move(window)),
      number_(window_ ? window_->enter() : 0),
      fabric_(std::move(fabric)),
      silence_ms_(silence_ms),
      wake_(std::move(wake)) {}

FabricServerPath::~FabricServerPath() = default;

bool FabricServerPath::send(Transfer transfer) {
  if (!jobs_.add({std::move(transfer), std::nullopt})) return false;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
  return true;
}

bool FabricServerPath::refuse(std::uint64_t ticket, const Error& error) {
  TransferQueue::Job job;
  job.transfer.ticket = ticket;
  job.refusal = error;
  if (!jobs_.add(std::move(job))) return false;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
  return true;
}

void FabricServerPath::close() noexcept {
  frames_.shut_down();
  jobs_.close();
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
}

Result<void> FabricServerPath::run() {
  auto done = greet();
  if (done) {
    done = serve();
  } else {
    (void)frames_.send_failure(0, done.error());  // a client that is gone needs no reason
  }
  close();  // The client notices.
  endpoint_.reset();
  memory_ = {};
  return done;
}

Result<void> FabricServerPath::greet() {
  // Before it the client may still read messages, and would take a greeting for a part of one.
  FrameHeader header;
  RETURN_IF_ERROR(frames_.receive(std::as_writable_bytes(std::span(&header, 1))));
  RETURN_IF_ERROR(check_fabric_client_frame(header));
  if (header.kind != FrameKind::ready) return fail(ErrorCode::protocol, "the client does not say that it reads frames");
  ASSIGN_OR_RETURN(memory_, MappedMemory::make(buffers_count * frame_bytes_max + page_bytes));
  const std::string node = own_node(frames_.descriptor());
  if (node.empty()) return path_ended("the client closed it");
  ASSIGN_OR_RETURN(auto opened, fabric_.make_endpoint(fabric_.provider, node));
  RETURN_IF_ERROR(opened.endpoint->use_memory(memory_.bytes()));
  const auto hello = memory_.bytes().subspan(buffers_count * frame_bytes_max, page_bytes);
  RETURN_IF_ERROR(opened.endpoint->receive(hello_operation, hello));
  FabricGreeting own;
  own.identity = opened.identity;
  own.password = draw_nonce();
  own.address.assign(opened.endpoint->address().begin(), opened.endpoint->address().end());
  endpoint_ = std::move(opened.endpoint);
  header = {};
  header.kind = FrameKind::greeting;
  header.length = fabric_greeting_bytes;
  RETURN_IF_ERROR(frames_.send(header, encode(own)));
  RETURN_IF_ERROR(frames_.receive(std::as_writable_bytes(std::span(&header, 1))));
  RETURN_IF_ERROR(check_fabric_client_frame(header));
  if (header.kind != FrameKind::greeting) return fail(ErrorCode::protocol, "the client does not greet");
  std::vector<std::byte> bytes(header.length);
  RETURN_IF_ERROR(frames_.receive(bytes));
  ASSIGN_OR_RETURN(const auto clients, decode_greeting(bytes));
  if (clients.identity.provider != own.identity.provider)
    return fail(ErrorCode::protocol, "the client uses another provider: " + clients.identity.provider);
  RETURN_IF_ERROR(endpoint_->set_peer(clients.address, peer_node(frames_.descriptor())));
  RETURN_IF_ERROR(await_hello(std::as_bytes(std::span(own.password))));
  endpoint_->close_on_exec();
  return frames_.send(FrameKind::ready, 0);
}

Result<void> FabricServerPath::await_hello(std::span<const std::byte> password) {
  const auto hello = memory_.bytes().subspan(buffers_count * frame_bytes_max, page_bytes);
  const Deadline deadline = Deadline::after_ms(greeting_timeout_ms);
  for (int wrong = 0; wrong < wrong_hellos_max; ++wrong) {
    while (!hello_arrived_) {
      RETURN_IF_ERROR(take_completions());
      if (hello_arrived_) break;
      if (deadline.passed()) return path_ended("the client does not come over the fabric");
      pollfd waited[3] = {
          {wake_.get(), POLLIN, 0}, {frames_.descriptor(), POLLRDHUP, 0}, {endpoint_->descriptor(), POLLIN, 0}};
      if (endpoint_->may_sleep()) (void)::poll(waited, 3, static_cast<int>(deadline.remaining_ms(greeting_timeout_ms)));
      if (jobs_.is_closed() || waited[1].revents != 0) return path_ended("the client closed it");
    }
    if (std::ranges::equal(hello.first(password.size()), password)) return {};
    hello_arrived_ = false;
    RETURN_IF_ERROR(endpoint_->receive(hello_operation, hello));
  }
  return fail(ErrorCode::protocol, "others than the client come over the fabric");
}

Result<void> FabricServerPath::serve() {
  moved_ns_ = monotonic_ns();
  while (!jobs_.is_closed()) {
    refused_to_start_ = false;
    RETURN_IF_ERROR(take_completions());
    ASSIGN_OR_RETURN(const bool moved, window_ ? take_some() : send_some());
    if (moved) moved_ns_ = monotonic_ns();
    RETURN_IF_ERROR(wait(!moved));
  }
  return path_ended("closed");
}

Result<void> FabricServerPath::wait(bool may_sleep) {
  // libfabric has no such limit.
  if (is_under_way() && monotonic_ns() - moved_ns_ > silence_ms_ * ns_per_ms)
    return path_ended("nothing has moved for " + std::to_string(silence_ms_ / 1000) + " s");
  pollfd waited[3] = {{wake_.get(), POLLIN, 0},
                      {frames_.descriptor(), static_cast<short>(takes_frames() ? POLLIN : POLLRDHUP), 0},
                      {endpoint_->descriptor(), POLLIN, 0}};
  int timeout_ms = is_under_way() ? static_cast<int>(silence_ms_) : -1;
  if (refused_to_start_) timeout_ms = retry_ms;
  if (!may_sleep || !endpoint_->may_sleep()) timeout_ms = 0;
  const int count = ::poll(waited, 3, timeout_ms);
  if (count < 0 && errno != EINTR) return system_error(errno, "cannot wait for a client");
  std::uint64_t woken = 0;
  if ((waited[0].revents & POLLIN) != 0) [[maybe_unused]]
    const ssize_t read = ::read(wake_.get(), &woken, sizeof woken);
  if ((waited[1].revents & POLLIN) != 0) return take_frame();
  if (waited[1].revents != 0) return path_ended("the client closed it");
  return {};
}

Result<void> FabricServerPath::take_frame() {
  FrameHeader header;
  RETURN_IF_ERROR(frames_.receive(std::as_writable_bytes(std::span(&header, 1))));
  RETURN_IF_ERROR(check_fabric_client_frame(header));
  if (!is_under_way()) moved_ns_ = monotonic_ns();
  return window_ ? take_request(header) : take_offer(header);
}

Result<void> FabricServerPath::take_completions() {
  while (true) {
    ASSIGN_OR_RETURN(const auto ended, endpoint_->next());
    if (!ended) return {};
    if (ended->error) return path_ended(ended->error->message());
    moved_ns_ = monotonic_ns();
    if (ended->operation == hello_operation) {
      hello_arrived_ = true;
    } else {
      completed(ended->operation);
    }
  }
}

void FabricServerPath::completed(std::uint32_t operation) {
  for (Sending& sending : sendings_) {
    if (sending.stage == Stage::started && sending.buffer == operation) sending.stage = Stage::done;
  }
  for (Taking& taking : takings_) {
    if (taking.stage == Stage::started && taking.buffer == operation) taking.stage = Stage::done;
  }
}

std::optional<std::uint32_t> FabricServerPath::free_buffer() const noexcept {
  const auto found = std::ranges::find(used_, false);
  if (found == used_.end()) return std::nullopt;
  return static_cast<std::uint32_t>(found - used_.begin());
}

bool FabricServerPath::takes_frames() const noexcept {
  // Bytes of a small write take a buffer at once.
  return window_ ? takings_.size() < offers_max && free_buffer().has_value() : offers_.size() < offers_max;
}

bool FabricServerPath::is_under_way() const noexcept {
  return !sendings_.empty() || !takings_.empty() || request_.has_value();
}

}  // namespace forebay::fabric
