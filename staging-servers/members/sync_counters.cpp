// SPDX-License-Identifier: Apache-2.0
#include "members/sync_counters.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include <fmt/format.h>

#include "base/checksum.h"
#include "base/fail_point.h"
#include "base/return_error.h"

namespace forebay::server {
namespace {

constexpr const char* counters_name = "syncs";
constexpr std::size_t digits = 20;
constexpr std::size_t crc_digits = 8;
/// No line lies in two of a disk's sectors: whatever a loss of power leaves of it is the old one or the new one.
constexpr std::size_t line_bytes = 32;

std::uint32_t checksum_of(std::string_view number) {
  return crc32c(std::as_bytes(std::span(number)));
}

template <class Number>
bool read_number(std::string_view text, Number& number, int base) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number, base);
  return read.ec == std::errc() && read.ptr == text.data() + text.size();
}

}  // namespace

Result<std::vector<std::uint64_t>> load_sync_counters(Device& device, const std::string& folder, std::size_t count) {
  std::vector<std::uint64_t> counters(count);
  const std::string path = folder + "/" + counters_name;
  const auto bytes = read_whole(device, path, count * line_bytes);
  if (!bytes && bytes.error().code == ErrorCode::not_found) return counters;
  if (!bytes) return fail(bytes.error());
  const std::string_view text(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  bool whole = text.size() == count * line_bytes;
  for (std::size_t i = 0; i < count && whole; ++i) {
    const std::string_view number = text.substr(i * line_bytes, digits);
    std::uint32_t checksum = 0;
    whole = read_number(number, counters[i], 10) &&
            read_number(text.substr(i * line_bytes + digits + 1, crc_digits), checksum, 16) &&
            checksum == checksum_of(number);
  }
  if (whole) return counters;
  return fail(ErrorCode::corrupt, "the counters of syncs cannot be read", path);
}

Result<void> store_sync_counters(Device& device, const std::string& folder, std::span<const std::uint64_t> counters) {
  std::string text;
  for (const std::uint64_t counter : counters) {
    const std::string number = fmt::format("{:>{}}", counter, digits);
    text += fmt::format("{} {:0{}x}  \n", number, checksum_of(number), crc_digits);
  }
  const auto bytes = std::as_bytes(std::span(text));
  // In place: neither the file's size nor its name changes, so that one write of a block is all that is to be synced.
  auto file = device.open(folder + "/" + counters_name, OpenMode::read_write);
  if (!file && file.error().code == ErrorCode::not_found) return write_whole(device, folder, counters_name, bytes);
  if (!file) return fail(ErrorCode::busy, file.error().message());
  RETURN_IF_ERROR((*file)->write_at(0, bytes));
  return (*file)->sync();
}

SyncCounters::~SyncCounters() {
  for (const Done& done : waiting_) done(fail(ErrorCode::cancelled, "the reservation is gone", folder_));
}

void SyncCounters::raise(std::size_t line, std::uint64_t counter, Done done) {
  if (counter <= stored_.at(line)) {
    if (done) done({});
    return;
  }
  wanted_[line] = std::max(wanted_[line], counter);
  if (done) waiting_.push_back(std::move(done));
  if (!runs_) store();
}

void SyncCounters::store() {
  runs_ = true;
  services_.worker.add([this, counters = wanted_, told = std::exchange(waiting_, {}), folder = folder_,
                        &device = services_.device, &loop = services_.loop, alive = std::weak_ptr<const bool>(alive_)] {
    fail_point("server.counters.before_store");
    auto stored = store_sync_counters(device, folder, counters);
    fail_point("server.counters.stored");
    loop.post([this, counters, told, alive, stored = std::move(stored)] {
      const bool lives = !alive.expired();
      if (lives && stored) stored_ = counters;
      if (lives && !stored) lines_.warning("counters of syncs cannot be stored: {}", stored.error().message());
      for (const Done& done : told) done(stored);
      if (!lives || alive.expired()) return;
      runs_ = false;
      // More may have come meanwhile. What failed waits until somebody raises it again.
      if (!waiting_.empty() || (stored && wanted_ != stored_)) store();
    });
  });
}

}  // namespace forebay::server
