// SPDX-License-Identifier: Apache-2.0
// An RmaEndpoint of libfabric, with a domain and a completion queue of its own: memory keys of one peer are nobody
// else's, and closing it ends everything of this peer. docs/design/remote.md says what was measured.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <vector>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_rma.h>

#include "fabric/libfabric_library.h"
#include "fabric/rma_endpoint.h"

namespace forebay::fabric {

/// Closes one of libfabric's objects.
struct CloseFid {
  template <class Object>
  void operator()(Object* object) const noexcept {
    (void)::fi_close(&object->fid);  // there is nothing else to do with it
  }
};
template <class Object>
using Fid = std::unique_ptr<Object, CloseFid>;

class LibfabricEndpoint final : public RmaEndpoint {
 public:
  static Result<std::unique_ptr<LibfabricEndpoint>> open(const LibfabricLibrary& library, const std::string& provider,
                                                         const std::string& source);
  ~LibfabricEndpoint() override;

  std::span<const std::byte> address() const noexcept override { return address_; }
  Result<void> set_peer(std::span<const std::byte> address, const std::string& node) override;
  Result<void> use_memory(std::span<std::byte> memory) override;
  Result<std::unique_ptr<ExposedMemory>> expose(std::span<std::byte> memory, PeerMay may) override;
  Result<bool> read(std::uint32_t operation, std::span<std::byte> into, const MemoryPlace& from) override;
  Result<bool> write(std::uint32_t operation, std::span<const std::byte> from, const MemoryPlace& to) override;
  Result<bool> receive(std::uint32_t operation, std::span<std::byte> into) override;
  Result<bool> send(std::span<const std::byte> bytes) override;
  Result<std::optional<Completion>> next() override;
  int descriptor() const noexcept override { return descriptor_; }
  bool may_sleep() override;
  void close_on_exec() noexcept override;

 private:
  explicit LibfabricEndpoint(const LibfabricLibrary& library) noexcept : library_(library) {}
  Result<void> find_provider(const std::string& provider, const std::string& source);
  Result<void> make();
  bool has_mode(int mode) const noexcept { return (info_->domain_attr->mr_mode & mode) != 0; }
  /// What its registration is called; null where none is needed.
  void* description() const noexcept { return memory_ ? ::fi_mr_desc(memory_.get()) : nullptr; }
  Result<Fid<fid_mr>> enroll(std::span<std::byte> memory, std::uint64_t access, std::uint64_t key);
  Result<bool> started(ssize_t answer, const char* what) const;
  tl::unexpected<Error> error(long number, const std::string& what) const;

  const LibfabricLibrary& library_;
  // Held by every call that moves the fabric on, or that changes which memory is exposed: before 1.19 libfabric looks
  // for a peer's key without a lock while another thread adds or removes one. The peer is then told of a wrong key,
  // and its connection ends.
  std::mutex mutex_;
  fi_info* info_ = nullptr;
  // In the order in which they are made; the destructor closes the endpoint before what it uses.
  Fid<fid_fabric> fabric_;
  Fid<fid_domain> domain_;
  Fid<fid_cq> completions_;
  Fid<fid_av> addresses_;
  Fid<fid_mr> memory_;
  Fid<fid_ep> endpoint_;
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
  int descriptor_ = -1;
  std::vector<std::byte> address_;
  std::vector<std::byte> peer_address_;
  std::array<fi_context2, operations_max> contexts_{};  // an operation's number is its place here
};

}  // namespace forebay::fabric
