// SPDX-License-Identifier: Apache-2.0
#include "fabric/handshake.h"

#include <sodium.h>

#include <string_view>

namespace forebay::fabric {
namespace {

using Key = std::array<std::uint8_t, crypto_secretstream_xchacha20poly1305_KEYBYTES>;
constexpr std::size_t stream_header_bytes = crypto_secretstream_xchacha20poly1305_HEADERBYTES;
constexpr std::size_t seal_bytes = crypto_secretstream_xchacha20poly1305_ABYTES;
static_assert(stream_header_bytes + seal_bytes <= RecordCipher::overhead_bytes_max);

// As long as what follows has one length, neither can be mistaken for the other.
constexpr std::string_view purpose = "forebay remote control 1";
constexpr std::string_view purpose_off = "forebay remote control 1, not encrypted";

/// The first record of a direction begins with the stream's header.
class StreamCipher final : public RecordCipher {
 public:
  StreamCipher(const Key& sending, const Key& receiving) : receiving_(receiving) {
    crypto_secretstream_xchacha20poly1305_init_push(&out_, out_header_.data(), sending.data());
  }
  ~StreamCipher() override {
    sodium_memzero(&out_, sizeof out_);
    sodium_memzero(&in_, sizeof in_);
    sodium_memzero(receiving_.data(), receiving_.size());
  }

  void seal(std::span<const std::byte> first, std::span<const std::byte> second, std::vector<std::byte>& out) override {
    plain_.assign(first.begin(), first.end());
    plain_.insert(plain_.end(), second.begin(), second.end());
    if (!header_sent_) {
      const auto header = std::as_bytes(std::span(out_header_));
      out.insert(out.end(), header.begin(), header.end());
      header_sent_ = true;
    }
    const std::size_t begin = out.size();
    out.resize(begin + plain_.size() + seal_bytes);
    crypto_secretstream_xchacha20poly1305_push(&out_, reinterpret_cast<unsigned char*>(out.data() + begin), nullptr,
                                               reinterpret_cast<const unsigned char*>(plain_.data()), plain_.size(),
                                               nullptr, 0, 0);
  }

  Result<std::vector<std::byte>> open(std::span<const std::byte> record) override {
    const auto refuse = [] { return fail(ErrorCode::protocol, "the peer sent something that it did not encrypt"); };
    if (!header_taken_) {
      if (record.size() < stream_header_bytes) return refuse();
      const auto* header = reinterpret_cast<const unsigned char*>(record.data());
      if (crypto_secretstream_xchacha20poly1305_init_pull(&in_, header, receiving_.data()) != 0) return refuse();
      record = record.subspan(stream_header_bytes);
      header_taken_ = true;
    }
    if (record.size() < seal_bytes) return refuse();
    std::vector<std::byte> plain(record.size() - seal_bytes);
    if (crypto_secretstream_xchacha20poly1305_pull(&in_, reinterpret_cast<unsigned char*>(plain.data()), nullptr,
                                                   nullptr, reinterpret_cast<const unsigned char*>(record.data()),
                                                   record.size(), nullptr, 0) != 0) {
      return refuse();
    }
    return plain;
  }

 private:
  crypto_secretstream_xchacha20poly1305_state out_{};
  std::array<std::uint8_t, stream_header_bytes> out_header_{};
  bool header_sent_ = false;
  std::vector<std::byte> plain_;
  Key receiving_;
  crypto_secretstream_xchacha20poly1305_state in_{};
  bool header_taken_ = false;
};

}  // namespace

Nonce draw_nonce() {
  Nonce nonce{};
  [[maybe_unused]] const int initialized = sodium_init();  // looks at the processor, once; random numbers need nothing
  randombytes_buf(nonce.data(), nonce.size());
  return nonce;
}

bool is_same(const Proof& proof, std::span<const std::uint8_t> given) noexcept {
  return given.size() == proof.size() && sodium_memcmp(proof.data(), given.data(), proof.size()) == 0;
}

Agreement::Agreement(const Secret& secret, std::span<const std::byte> claims, const Nonce& client, const Nonce& server,
                     ControlEncryption encryption)
    : secret_(secret), encryption_(encryption) {
  const auto add = [this](auto bytes) {
    for (const auto byte : bytes) transcript_.push_back(static_cast<std::uint8_t>(byte));
  };
  add(encryption == ControlEncryption::on ? purpose : purpose_off);
  add(claims);
  add(std::span(client));
  add(std::span(server));
}

std::array<std::uint8_t, 32> Agreement::derived(const char* label) const {
  std::vector<std::uint8_t> text(transcript_);
  for (const char letter : std::string_view(label)) text.push_back(static_cast<std::uint8_t>(letter));
  std::array<std::uint8_t, crypto_auth_BYTES> out{};
  crypto_auth(out.data(), text.data(), text.size(), secret_.data());
  return out;
}

Proof Agreement::client_proof() const {
  return derived(": proof of the client");
}

Proof Agreement::server_proof() const {
  return derived(": proof of the server");
}

std::unique_ptr<RecordCipher> Agreement::client_cipher() const {
  if (encryption_ == ControlEncryption::off) return nullptr;
  return std::make_unique<StreamCipher>(derived(": key to the server"), derived(": key to the client"));
}

std::unique_ptr<RecordCipher> Agreement::server_cipher() const {
  if (encryption_ == ControlEncryption::off) return nullptr;
  return std::make_unique<StreamCipher>(derived(": key to the client"), derived(": key to the server"));
}

}  // namespace forebay::fabric
