// SPDX-License-Identifier: Apache-2.0
#if __has_include(<rdma/fabric.h>)

#include "fabric/libfabric_endpoint.h"

#include <fcntl.h>
#include <netinet/in.h>

#include <cstring>
#include <filesystem>
#include <string_view>

#include "base/return_error.h"
#include "base/uuid.h"
#include "fabric/fabric_address.h"
#include "fabric/kept_signals.h"
#include "fabric/libfabric.h"

namespace forebay::fabric {
namespace {

// All that Forebay uses is in this version of the interface.
constexpr std::uint32_t interface_version = FI_VERSION(1, 14);
// Native RDM endpoints have this name in libfabric 1.17; `tcp` there is another protocol below.
constexpr std::uint32_t native_tcp_since = FI_VERSION(1, 18);
constexpr std::size_t completions_max = 64;
constexpr int registration_modes = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;

/// As libfabric calls it.
std::string provider_name(const std::string& provider, std::uint32_t library_version) {
  if (provider == "tcp" && library_version < native_tcp_since) return "net";
  if (provider == "verbs") return "verbs;ofi_rxm";
  return provider;
}

bool has_ip_addresses(const std::string& provider) {
  return provider == "tcp" || provider == "verbs";
}

class Exposed final : public ExposedMemory {
 public:
  Exposed(std::mutex& mutex, Fid<fid_mr> memory, std::uint64_t address) noexcept
      : mutex_(mutex), memory_(std::move(memory)), address_(address) {}
  ~Exposed() override {
    const std::lock_guard lock(mutex_);
    memory_.reset();
  }
  MemoryPlace place() const noexcept override { return {::fi_mr_key(memory_.get()), address_}; }

 private:
  std::mutex& mutex_;  // the endpoint's
  Fid<fid_mr> memory_;
  std::uint64_t address_;
};

struct FreeInfo {
  const LibfabricLibrary& library;
  void operator()(fi_info* info) const noexcept { library.freeinfo(info); }
};

}  // namespace

tl::unexpected<Error> LibfabricEndpoint::error(long number, const std::string& what) const {
  const std::string text = library_.strerror(static_cast<int>(number < 0 ? -number : number));
  return fail(ErrorCode::disconnected, "libfabric: " + what + ": " + text);
}

Result<std::unique_ptr<LibfabricEndpoint>> LibfabricEndpoint::open(const LibfabricLibrary& library,
                                                                   const std::string& provider,
                                                                   const std::string& source) {
  std::unique_ptr<LibfabricEndpoint> made(new LibfabricEndpoint(library));
  RETURN_IF_ERROR(made->find_provider(provider, source));
  if (auto complete = made->make(); !complete)
    return fail(ErrorCode::unsupported, "the libfabric provider " + provider + " cannot be used",
                complete.error().what);
  return made;
}

Result<void> LibfabricEndpoint::find_provider(const std::string& provider, const std::string& source) {
  const std::unique_ptr<fi_info, FreeInfo> hints(library_.dupinfo(nullptr), FreeInfo{library_});
  if (!hints) return fail(ErrorCode::unsupported, "libfabric has no memory");
  const std::string name = provider_name(provider, library_.version);
  hints->caps = FI_MSG | FI_RMA;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode = registration_modes;
  hints->domain_attr->threading = FI_THREAD_SAFE;
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
  hints->fabric_attr->prov_name = ::strdup(name.c_str());
  const bool at_source = has_ip_addresses(provider);
  const int answer = library_.getinfo(interface_version, at_source ? source.c_str() : nullptr, nullptr,
                                      at_source ? FI_SOURCE | FI_NUMERICHOST : 0, hints.get(), &info_);
  const std::string where = "libfabric " + version_text(library_.version) + ", " + library_.path;
  if (answer != 0 || info_ == nullptr) {
    return fail(ErrorCode::unsupported,
                "libfabric has no provider " + provider +
                    " here that can do what Forebay needs: " + library_.strerror(answer < 0 ? -answer : answer),
                where);
  }
  // A provider that the library puts below another one speaks another protocol.
  if (info_->fabric_attr->prov_name == nullptr || name != info_->fabric_attr->prov_name)
    return fail(ErrorCode::unsupported, "libfabric has " + provider + " only as a part of another provider", where);
  return {};
}

Result<void> LibfabricEndpoint::make() {
  fid_fabric* fabric = nullptr;
  if (const int answer = library_.fabric(info_->fabric_attr, &fabric, nullptr); answer != 0)
    return error(answer, "no fabric");
  fabric_.reset(fabric);
  fid_domain* domain = nullptr;
  if (const int answer = ::fi_domain(fabric_.get(), info_, &domain, nullptr); answer != 0)
    return error(answer, "no domain");
  domain_.reset(domain);
  fi_cq_attr completions{};
  completions.size = completions_max;
  completions.format = FI_CQ_FORMAT_CONTEXT;
  completions.wait_obj = FI_WAIT_FD;
  fid_cq* queue = nullptr;
  if (const int answer = ::fi_cq_open(domain_.get(), &completions, &queue, nullptr); answer != 0)
    return error(answer, "no completion queue that can be waited for");
  completions_.reset(queue);
  if (const int answer = ::fi_control(&completions_->fid, FI_GETWAIT, &descriptor_); answer != 0)
    return error(answer, "no descriptor to wait for");
  fi_av_attr addresses{};
  addresses.type = info_->domain_attr->av_type;
  addresses.count = 1;
  fid_av* vector = nullptr;
  if (const int answer = ::fi_av_open(domain_.get(), &addresses, &vector, nullptr); answer != 0)
    return error(answer, "no address vector");
  addresses_.reset(vector);
  fid_ep* endpoint = nullptr;
  if (const int answer = ::fi_endpoint(domain_.get(), info_, &endpoint, nullptr); answer != 0)
    return error(answer, "no endpoint");
  endpoint_.reset(endpoint);
  if (const int answer = ::fi_ep_bind(endpoint_.get(), &addresses_->fid, 0); answer != 0)
    return error(answer, "no address vector for the endpoint");
  if (const int answer = ::fi_ep_bind(endpoint_.get(), &completions_->fid, FI_TRANSMIT | FI_RECV); answer != 0)
    return error(answer, "no completion queue for the endpoint");
  if (const int answer = ::fi_enable(endpoint_.get()); answer != 0) return error(answer, "the endpoint does not start");
  std::size_t length = endpoint_address_bytes_max;
  address_.resize(length);
  if (const int answer = ::fi_getname(&endpoint_->fid, address_.data(), &length); answer != 0)
    return error(answer, "the endpoint has no address");
  address_.resize(length);
  return {};
}

LibfabricEndpoint::~LibfabricEndpoint() {
  // Only this ends what is under way; until then memory may be read and written.
  endpoint_.reset();
  memory_.reset();
  addresses_.reset();
  completions_.reset();
  domain_.reset();
  fabric_.reset();
  if (info_ != nullptr) library_.freeinfo(info_);
}

Result<void> LibfabricEndpoint::set_peer(std::span<const std::byte> address, const std::string& node) {
  // Else the peer could have this process connect to others.
  if (!is_plausible_address(address, address_, node))
    return fail(ErrorCode::protocol, "the other end's fabric address is not one of its node");
  peer_address_.assign(address.begin(), address.end());
  const int count = ::fi_av_insert(addresses_.get(), peer_address_.data(), 1, &peer_, 0, nullptr);
  if (count != 1) return error(count, "the other end's address is of no use");
  return {};
}

Result<Fid<fid_mr>> LibfabricEndpoint::enroll(std::span<std::byte> memory, std::uint64_t access, std::uint64_t key) {
  fid_mr* registered = nullptr;
  const int answer = ::fi_mr_reg(domain_.get(), memory.data(), memory.size(), access, 0, key, 0, &registered, nullptr);
  if (answer != 0) return error(answer, "memory cannot be registered");
  Fid<fid_mr> made(registered);
  if (has_mode(FI_MR_ENDPOINT)) {
    if (const int bound = ::fi_mr_bind(made.get(), &endpoint_->fid, 0); bound != 0)
      return error(bound, "memory cannot be registered");
    if (const int enabled = ::fi_mr_enable(made.get()); enabled != 0)
      return error(enabled, "memory cannot be registered");
  }
  return made;
}

Result<void> LibfabricEndpoint::use_memory(std::span<std::byte> memory) {
  if (!has_mode(FI_MR_LOCAL)) return {};
  // Access rights are of this end's operations: no other may use it.
  ASSIGN_OR_RETURN(memory_, enroll(memory, FI_READ | FI_WRITE | FI_SEND | FI_RECV, random_number()));
  return {};
}

Result<std::unique_ptr<ExposedMemory>> LibfabricEndpoint::expose(std::span<std::byte> memory, PeerMay may) {
  const std::lock_guard lock(mutex_);
  ASSIGN_OR_RETURN(auto registered,
                   enroll(memory, may == PeerMay::read ? FI_REMOTE_READ : FI_REMOTE_WRITE, random_number()));
  const std::uint64_t address = has_mode(FI_MR_VIRT_ADDR) ? reinterpret_cast<std::uintptr_t>(memory.data()) : 0;
  return std::unique_ptr<ExposedMemory>(std::make_unique<Exposed>(mutex_, std::move(registered), address));
}

Result<bool> LibfabricEndpoint::started(ssize_t answer, const char* what) const {
  if (answer == 0) return true;
  if (answer == -FI_EAGAIN) return false;
  return error(answer, what);
}

Result<bool> LibfabricEndpoint::read(std::uint32_t operation, std::span<std::byte> into, const MemoryPlace& from) {
  const std::lock_guard lock(mutex_);
  return started(::fi_read(endpoint_.get(), into.data(), into.size(), description(), peer_, from.address, from.key,
                           &contexts_[operation]),
                 "the client's memory cannot be read");
}

Result<bool> LibfabricEndpoint::write(std::uint32_t operation, std::span<const std::byte> from, const MemoryPlace& to) {
  const std::lock_guard lock(mutex_);
  iovec local{const_cast<std::byte*>(from.data()), from.size()};
  fi_rma_iov remote{to.address, from.size(), to.key};
  void* registration = description();
  fi_msg_rma message{};
  message.msg_iov = &local;
  message.desc = &registration;
  message.iov_count = 1;
  message.addr = peer_;
  message.rma_iov = &remote;
  message.rma_iov_count = 1;
  message.context = &contexts_[operation];
  // Else the reply on another connection overtakes the bytes. What the endpoint's attributes say is not enough: a
  // connection that the peer opened does not heed it in libfabric 1.17.
  return started(::fi_writemsg(endpoint_.get(), &message, FI_DELIVERY_COMPLETE | FI_COMPLETION),
                 "the client's memory cannot be written");
}

Result<bool> LibfabricEndpoint::receive(std::uint32_t operation, std::span<std::byte> into) {
  const std::lock_guard lock(mutex_);
  return started(
      ::fi_recv(endpoint_.get(), into.data(), into.size(), description(), FI_ADDR_UNSPEC, &contexts_[operation]),
      "nothing can be received");
}

Result<bool> LibfabricEndpoint::send(std::span<const std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  return started(::fi_inject(endpoint_.get(), bytes.data(), bytes.size(), peer_), "nothing can be sent");
}

Result<std::optional<RmaEndpoint::Completion>> LibfabricEndpoint::next() {
  const std::lock_guard lock(mutex_);
  fi_cq_entry entry{};
  const ssize_t count = ::fi_cq_read(completions_.get(), &entry, 1);
  const auto number = [this](const void* context) {
    return static_cast<std::uint32_t>(static_cast<const fi_context2*>(context) - contexts_.data());
  };
  const auto is_ours = [this](const void* context) {
    return context >= contexts_.data() && context < contexts_.data() + contexts_.size();
  };
  if (count == 1) {
    if (!is_ours(entry.op_context)) return std::optional<Completion>();
    return std::optional(Completion{number(entry.op_context), std::nullopt});
  }
  if (count == -FI_EAGAIN) return std::optional<Completion>();
  if (count != -FI_EAVAIL) return error(count, "the completion queue failed");
  fi_cq_err_entry failure{};
  if (const ssize_t answer = ::fi_cq_readerr(completions_.get(), &failure, 0); answer < 0 && answer != -FI_EAGAIN)
    return error(answer, "the completion queue failed");
  const auto what = error(failure.err, "the connection to the other end failed").value();
  if (!is_ours(failure.op_context)) return fail(what);
  return std::optional(Completion{number(failure.op_context), what});
}

bool LibfabricEndpoint::may_sleep() {
  const std::lock_guard lock(mutex_);
  fid* waited = &completions_->fid;
  return ::fi_trywait(fabric_.get(), &waited, 1) == FI_SUCCESS;
}

void LibfabricEndpoint::close_on_exec() noexcept {
  mark_sockets_close_on_exec(address_, peer_address_);
}

Result<OpenedEndpoint> open_libfabric_endpoint(const std::string& provider, const std::string& source) {
  const KeptSignals signals;
  RETURN_IF_ERROR(check_provider(provider));
  ASSIGN_OR_RETURN(const LibfabricLibrary* const library, LibfabricLibrary::load());
  ASSIGN_OR_RETURN(auto endpoint, LibfabricEndpoint::open(*library, provider, source));
  return OpenedEndpoint{std::move(endpoint), {provider, library->version}};
}

}  // namespace forebay::fabric

#endif
