// SPDX-License-Identifier: Apache-2.0
#include "fabric/fabric_client_path.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>

#include "base/clock.h"
#include "base/fail_point.h"
#include "base/return_error.h"
#include "base/system_error.h"
#include "fabric/fabric_address.h"
#include "fabric/fabric_greeting.h"

namespace forebay::fabric {
namespace {

// libfabric does not signal that an own connection is ready.
constexpr int hello_slice_ms = 2;

tl::unexpected<Error> unexpected() {
  return fail(ErrorCode::protocol, "the data path brought something else than what was asked for");
}

}  // namespace

Result<std::unique_ptr<FabricClientPath>> FabricClientPath::open(Descriptor socket, const EndpointMaker& make_endpoint,
                                                                 const KeepWaiting& keep_waiting,
                                                                 std::int64_t silence_ms) {
  std::unique_ptr<FabricClientPath> path(new FabricClientPath(std::move(socket), silence_ms));
  ASSIGN_OR_RETURN(path->memory_, MappedMemory::make(slots_count * frame_bytes_max));
  for (std::size_t number = 0; number < slots_count; ++number)
    path->slots_[number].memory = path->memory_.bytes().subspan(number * frame_bytes_max, frame_bytes_max);
  path->process_ = ::getpid();
  RETURN_IF_ERROR(path->greet(make_endpoint, keep_waiting));
  path->wake_ = Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!path->wake_.valid()) return system_error(errno, "cannot make a data path");
  // Signals are the program's own threads'.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  path->thread_ = std::make_unique<std::thread>([raw = path.get()] { raw->move_on(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return path;
}

FabricClientPath::~FabricClientPath() {
  if (process_ != ::getpid()) {
    // A forked child: thread, connections and memory keys are its parent's.
    (void)thread_.release();
    (void)endpoint_.release();
    for (Slot& slot : slots_) (void)slot.exposed.release();
    return;
  }
  ends_ = true;
  if (thread_) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
    thread_->join();
  }
  // First the memory's keys are void, and what has begun ends with the endpoint. Providers refuse the other order.
  for (Slot& slot : slots_) slot.exposed.reset();
  endpoint_.reset();
}

Result<void> FabricClientPath::check_process() const {
  if (process_ == ::getpid()) return {};
  return fail(ErrorCode::unsupported,
              "a forked process cannot use the fabric connection of its parent; open the stream in it anew");
}

bool FabricClientPath::is_broken() const noexcept {
  return broken_ || lost_;
}

Result<void> FabricClientPath::greet(const EndpointMaker& make_endpoint, const KeepWaiting& keep_waiting) {
  FrameHeader reads;
  reads.kind = FrameKind::ready;
  RETURN_IF_ERROR(frames_.send(reads, {}, keep_waiting));
  ASSIGN_OR_RETURN(const auto header, frames_.receive_header(keep_waiting));
  RETURN_IF_ERROR(check_fabric_server_frame(header));
  if (header.kind == FrameKind::failed) {
    ASSIGN_OR_RETURN(auto failure, frames_.receive_failure(header, keep_waiting));
    failure.what = "on the server's node: " + failure.what;
    return fail(std::move(failure));
  }
  if (header.kind != FrameKind::greeting) return unexpected();
  std::vector<std::byte> bytes(header.length);
  RETURN_IF_ERROR(frames_.receive(bytes, keep_waiting));
  ASSIGN_OR_RETURN(const auto servers, decode_greeting(bytes));
  provider_ = servers.identity.provider;
  ASSIGN_OR_RETURN(auto opened, make_endpoint(servers.identity.provider, own_node(frames_.descriptor())));
  endpoint_ = std::move(opened.endpoint);
  RETURN_IF_ERROR(endpoint_->use_memory(memory_.bytes()));
  RETURN_IF_ERROR(endpoint_->set_peer(servers.address, peer_node(frames_.descriptor())));
  FabricGreeting own;
  own.identity = opened.identity;
  own.address.assign(endpoint_->address().begin(), endpoint_->address().end());
  FrameHeader mine;
  mine.kind = FrameKind::greeting;
  mine.length = fabric_greeting_bytes;
  RETURN_IF_ERROR(frames_.send(mine, encode(own), keep_waiting));
  RETURN_IF_ERROR(say_hello(std::as_bytes(std::span(servers.password)), keep_waiting));
  endpoint_->close_on_exec();
  return {};
}

Result<void> FabricClientPath::say_hello(std::span<const std::byte> password, const KeepWaiting& keep_waiting) {
  const Deadline deadline = Deadline::after_ms(greeting_timeout_ms);
  bool said = false;
  while (true) {
    if (!said) {
      ASSIGN_OR_RETURN(said, endpoint_->send(password));
    }
    ASSIGN_OR_RETURN(const auto ended, endpoint_->next());
    if (ended && ended->error) return fail(*ended->error);
    pollfd answered{frames_.descriptor(), POLLIN, 0};
    if (::poll(&answered, 1, hello_slice_ms) > 0) break;
    if (deadline.passed()) {
      return fail(ErrorCode::timeout,
                  "the server's node does not answer over the fabric; do its firewall and this node's let libfabric's "
                  "ports pass (FI_TCP_PORT_LOW_RANGE, FI_TCP_PORT_HIGH_RANGE)?");
    }
    RETURN_IF_ERROR(keep_waiting());
  }
  ASSIGN_OR_RETURN(const auto header, frames_.receive_header(keep_waiting));
  RETURN_IF_ERROR(check_fabric_server_frame(header));
  if (header.kind == FrameKind::failed) {
    ASSIGN_OR_RETURN(auto failure, frames_.receive_failure(header, keep_waiting));
    return fail(std::move(failure));
  }
  return header.kind == FrameKind::ready ? Result<void>() : Result<void>(unexpected());
}

void FabricClientPath::move_on() noexcept {
  while (!ends_) {
    auto ended = endpoint_->next();
    if (!ended || (*ended && (*ended)->error)) {
      // The socket ends, too, or tells why; whoever waits there looks here.
      lost_ = true;
      return;
    }
    if (*ended || !endpoint_->may_sleep()) continue;
    pollfd waited[2] = {{endpoint_->descriptor(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    (void)::poll(waited, 2, -1);
  }
}

Result<void> FabricClientPath::offer(Slot& slot, FrameHeader header, PeerMay may, const KeepWaiting& keep_waiting) {
  ASSIGN_OR_RETURN(slot.exposed, endpoint_->expose(slot.memory.first(header.length), may));
  const MemoryPlace place = slot.exposed->place();
  RETURN_IF_ERROR(frames_.send(header, std::as_bytes(std::span(&place, 1)), keep_waiting));
  fail_point("client.fabric.after_offer");
  return {};
}

Result<std::optional<FrameHeader>> FabricClientPath::next_frame(Waits waits, const KeepWaiting& keep_waiting) {
  if (!frame_) frame_ = MovingFrame();
  if (waits == Waits::yes) {
    RETURN_IF_ERROR(frames_.receive(frame_->rest_of_header(), keep_waiting));
  } else {
    ASSIGN_OR_RETURN(const bool all, frames_.receive_some_header(*frame_));
    if (!all) return std::nullopt;
  }
  const FrameHeader header = frame_->header;
  frame_.reset();
  RETURN_IF_ERROR(check_fabric_server_frame(header));
  return header;
}

Result<void> FabricClientPath::receive(std::uint64_t ticket, Incoming incoming, const KeepWaiting& keep_waiting) {
  RETURN_IF_ERROR(take(ticket, incoming, Waits::yes, keep_waiting));
  return {};
}

Result<bool> FabricClientPath::receive_some(std::uint64_t ticket, Incoming& incoming, const KeepWaiting& keep_waiting) {
  return take(ticket, incoming, Waits::no, keep_waiting);
}

Result<bool> FabricClientPath::take(std::uint64_t ticket, Incoming& incoming, Waits waits,
                                    const KeepWaiting& keep_waiting) {
  RETURN_IF_ERROR(check_process());
  WholeOrBroken guard(broken_);
  if (!receiving_ && incoming.size() <= inline_bytes_max) {
    // So little comes at once.
    ASSIGN_OR_RETURN(const auto answer, frames_.receive_data(ticket, incoming, keep_waiting));
    guard.whole();
    RETURN_IF_ERROR(answer);
    return true;
  }
  if (!receiving_) receiving_ = Receiving{incoming.size()};
  std::optional<Error> failure;
  ASSIGN_OR_RETURN(const bool over, take_by_memory(ticket, incoming, waits, failure, keep_waiting));
  if (!over) return false;
  // The server says that something failed when it does not write any more.
  for (Slot& slot : slots_) slot.exposed.reset();
  receiving_.reset();
  guard.whole();
  if (failure) return fail(std::move(*failure));
  return true;
}

Result<bool> FabricClientPath::take_by_memory(std::uint64_t ticket, Incoming& incoming, Waits waits,
                                              std::optional<Error>& failure, const KeepWaiting& keep_waiting) {
  while (!incoming.empty()) {
    while (receiving_->not_offered > 0 && !slots_[receiving_->next_offer % slots_count].exposed) {
      FrameHeader header;
      header.kind = FrameKind::memory;
      header.ticket = ticket;
      header.length = std::min<std::uint64_t>(receiving_->not_offered, frame_bytes_max);
      RETURN_IF_ERROR(offer(slots_[receiving_->next_offer++ % slots_count], header, PeerMay::write, keep_waiting));
      receiving_->not_offered -= header.length;
    }
    ASSIGN_OR_RETURN(const auto header, next_frame(waits, keep_waiting));
    if (!header) return false;
    if (header->ticket != ticket) return unexpected();
    if (header->kind == FrameKind::failed) {
      ASSIGN_OR_RETURN(failure, frames_.receive_failure(*header, keep_waiting));
      return true;
    }
    const std::uint64_t expected = std::min<std::uint64_t>(incoming.size(), frame_bytes_max);
    if (header->kind != FrameKind::landed || header->length != expected) return unexpected();
    Slot& slot = slots_[receiving_->next_arrival++ % slots_count];
    if (!slot.exposed) return unexpected();
    slot.exposed.reset();
    copy_out(slot, header->length, incoming);
  }
  return true;
}

void FabricClientPath::copy_out(const Slot& slot, std::size_t length, Incoming& incoming) {
  for (std::span<const std::byte> landed = slot.memory.first(length); !landed.empty();) {
    const std::span<std::byte> to = incoming.next(landed.size());
    std::memcpy(to.data(), landed.data(), to.size());
    incoming.arrived(to.size());
    landed = landed.subspan(to.size());
  }
}

Result<void> FabricClientPath::take_back(const FrameHeader& header) {
  if (header.kind != FrameKind::taken || header.ticket >= slots_count || !slots_[header.ticket].exposed)
    return unexpected();
  slots_[header.ticket].exposed.reset();
  return {};
}

Result<void> FabricClientPath::write_inline(std::uint32_t segment, std::uint64_t offset,
                                            std::span<const std::byte> bytes, const KeepWaiting& keep_waiting) {
  FrameHeader header;
  header.kind = FrameKind::write;
  header.segment = segment;
  header.offset = offset;
  header.length = bytes.size();
  return frames_.send(header, bytes, keep_waiting);
}

Result<FabricClientPath::Slot*> FabricClientPath::free_slot(Waits waits, const KeepWaiting& keep_waiting) {
  auto slot = std::ranges::find_if(slots_, [](const Slot& one) { return !one.exposed; });
  while (slot == slots_.end()) {
    ASSIGN_OR_RETURN(const auto header, next_frame(waits, keep_waiting));
    if (!header) return nullptr;
    RETURN_IF_ERROR(take_back(*header));
    slot = slots_.begin() + static_cast<std::ptrdiff_t>(header->ticket);
  }
  return &*slot;
}

Result<std::size_t> FabricClientPath::give(std::uint32_t segment, std::uint64_t offset,
                                           std::span<const std::byte> bytes, Waits waits,
                                           const KeepWaiting& keep_waiting) {
  const std::size_t length = std::min<std::size_t>(bytes.size(), frame_bytes_max);
  if (bytes.size() <= inline_bytes_max) {
    RETURN_IF_ERROR(write_inline(segment, offset, bytes, keep_waiting));
    return length;
  }
  ASSIGN_OR_RETURN(Slot* const slot, free_slot(waits, keep_waiting));
  if (slot == nullptr) return std::size_t{0};
  std::memcpy(slot->memory.data(), bytes.data(), length);
  FrameHeader header;
  header.kind = FrameKind::take;
  header.ticket = static_cast<std::uint64_t>(slot - slots_.data());
  header.segment = segment;
  header.offset = offset;
  header.length = length;
  RETURN_IF_ERROR(offer(*slot, header, PeerMay::read, keep_waiting));
  return length;
}

Result<void> FabricClientPath::write(std::uint32_t segment, std::uint64_t offset, std::span<const std::byte> bytes,
                                     const KeepWaiting& keep_waiting) {
  RETURN_IF_ERROR(check_process());
  WholeOrBroken guard(broken_);
  while (!bytes.empty()) {
    ASSIGN_OR_RETURN(const std::size_t given, give(segment, offset, bytes, Waits::yes, keep_waiting));
    offset += given;
    bytes = bytes.subspan(given);
  }
  guard.whole();
  return {};
}

Result<std::size_t> FabricClientPath::write_some(std::uint32_t segment, std::uint64_t offset,
                                                 std::span<const std::byte> bytes, const KeepWaiting& keep_waiting) {
  RETURN_IF_ERROR(check_process());
  WholeOrBroken guard(broken_);
  ASSIGN_OR_RETURN(const std::size_t given, give(segment, offset, bytes, Waits::no, keep_waiting));
  if (given > 0) guard.whole();
  return given;
}

Result<void> FabricClientPath::finish_writes(const KeepWaiting& keep_waiting) {
  RETURN_IF_ERROR(check_process());
  WholeOrBroken guard(broken_);
  FrameHeader request;
  request.kind = FrameKind::finish;
  request.ticket = ++finishes_;
  RETURN_IF_ERROR(frames_.send(request, {}, keep_waiting));
  while (true) {
    ASSIGN_OR_RETURN(const auto header, frames_.receive_header(keep_waiting));
    RETURN_IF_ERROR(check_fabric_server_frame(header));
    if (header.kind == FrameKind::taken) {
      RETURN_IF_ERROR(take_back(header));
      continue;
    }
    if (header.ticket != request.ticket) return unexpected();
    if (header.kind == FrameKind::failed) {
      ASSIGN_OR_RETURN(auto failure, frames_.receive_failure(header, keep_waiting));
      guard.whole();
      return fail(std::move(failure));
    }
    if (header.kind != FrameKind::written) return unexpected();
    guard.whole();
    return {};
  }
}

}  // namespace forebay::fabric
