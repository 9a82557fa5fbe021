// SPDX-License-Identifier: Apache-2.0
#include "readers/pin_table.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>

#include <fmt/format.h>

#include "base/descriptor.h"
#include "base/invariant.h"
#include "base/system_error.h"

namespace forebay::server {

/// One pin. Lies in a file (docs/formats/pins.md): fields are never moved; a session of 0 marks a free slot.
struct PinTable::Slot {
  std::uint64_t session;
  std::uint64_t step;
  std::uint64_t process_started;  ///< in clock ticks since boot: tells a process from a later one with its pid
  std::uint32_t pid;
  std::uint32_t epoch;
  char stream_uuid[40];
};

namespace {

constexpr std::size_t slot_count_max = 16384;
constexpr std::size_t table_bytes = slot_count_max * 72;

/// Start time of a process, or nothing if there is none.
std::optional<std::uint64_t> process_started(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  // The name in parentheses may hold anything; what follows the last one is fields 3 and up, the start time being
  // field 22.
  const auto name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i) {
    fields >> field;
    if (i == 3 && (field == "Z" || field == "X")) return std::nullopt;
  }
  std::uint64_t ticks = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), ticks);
  if (error != std::errc()) return std::nullopt;
  return ticks;
}

}  // namespace

Result<std::unique_ptr<PinTable>> PinTable::open(const std::string& path, bool after_boot,
                                                 const ReaderPresence& presence, std::vector<Absent>& absent) {
  static_assert(sizeof(Slot) == 72);
  const Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file.valid()) return system_error(errno, "cannot open the table of pins", path);
  // Space is allocated first: a store into a mapping of a full disk would end the process.
  if (const int error = ::posix_fallocate(file.get(), 0, static_cast<off_t>(table_bytes)); error != 0) {
    return system_error(error, "cannot allocate the table of pins", path);
  }
  void* address = ::mmap(nullptr, table_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (address == MAP_FAILED) return system_error(errno, "cannot map the table of pins", path);
  std::unique_ptr<PinTable> table(new PinTable(static_cast<Slot*>(address), slot_count_max));

  const auto still_there = [&](const Slot& slot) {
    if (slot.pid == 0) return true;  // The member where it maps knows.
    const auto state = presence.state(slot.session);
    if (state != ReaderPresence::State::unknown) return state == ReaderPresence::State::present;
    return process_started(static_cast<pid_t>(slot.pid)) == slot.process_started;
  };
  std::map<std::uint64_t, Absent> found;
  for (std::uint32_t i = 0; i < slot_count_max; ++i) {
    Slot& slot = table->slots_[i];
    // After a boot slots may be older than what became of their steps. What readers elsewhere have mapped is closed
    // then.
    if (slot.session == 0 || after_boot || !still_there(slot)) {
      slot.session = 0;
      continue;
    }
    // A pin lies in one slot: a second one would outlast its removal.
    if (!table->used_.emplace(std::tuple(slot.session, slot.epoch, slot.step), Used{i, {}}).second) {
      slot.session = 0;
      continue;
    }
    slot.stream_uuid[sizeof slot.stream_uuid - 1] = '\0';
    Absent& reader = found[slot.session];
    reader.session = slot.session;
    reader.pid = static_cast<pid_t>(slot.pid);
    reader.stream_uuid = slot.stream_uuid;
    reader.keys.emplace_back(slot.epoch, slot.step);
  }
  for (std::uint32_t i = slot_count_max; i-- > 0;) {
    if (table->slots_[i].session == 0) table->free_.push_back(i);
  }
  for (auto& [session, reader] : found) absent.push_back(std::move(reader));
  return table;
}

PinTable::PinTable(Slot* slots, std::size_t slot_count) : slots_(slots), slot_count_(slot_count) {}

PinTable::~PinTable() {
  ::munmap(slots_, slot_count_ * sizeof(Slot));
}

bool PinTable::add(std::uint64_t session, const Holder& holder, const std::string& stream_uuid, std::uint32_t epoch,
                   std::uint64_t step) {
  const pid_t pid = holder.pid;
  // A client on another node has no process here, and what it has not mapped there ends with its connection.
  if (pid == 0 && !holder.maps) return true;
  const std::tuple key(session, epoch, step);
  if (const auto known = used_.find(key); known != used_.end()) {
    if (!known->second.user && holder.sharing) ++slots_of_[*holder.sharing];
    if (!known->second.user) known->second.user = holder.sharing;
    return true;
  }
  if (free_.empty()) return false;
  if (holder.sharing) {
    // As with bytes: however many users there are, none can take all.
    const auto own = slots_of_.find(*holder.sharing);
    if ((own == slots_of_.end() ? 0 : own->second) + 1 > free_.size() - 1) return false;
    ++slots_of_[*holder.sharing];
  }
  const auto started = started_.find(pid);
  std::uint64_t ticks = 0;
  if (started != started_.end()) {
    ticks = started->second;
  } else if (pid != 0) {
    ticks = process_started(pid).value_or(0);
    if (started_.size() > slot_count_) started_.clear();
    started_.emplace(pid, ticks);
  }
  const std::uint32_t index = free_.back();
  free_.pop_back();
  Slot& slot = slots_[index];
  slot.step = step;
  slot.process_started = ticks;
  slot.pid = static_cast<std::uint32_t>(pid);
  slot.epoch = epoch;
  std::strncpy(slot.stream_uuid, stream_uuid.c_str(), sizeof slot.stream_uuid - 1);
  // Last: a server that dies in between leaves a free slot.
  __atomic_store_n(&slot.session, session, __ATOMIC_RELEASE);
  used_.emplace(key, Used{index, holder.sharing});
  return true;
}

void PinTable::remove(std::uint64_t session, std::uint32_t epoch, std::uint64_t step) {
  const auto found = used_.find(std::tuple(session, epoch, step));
  if (found == used_.end()) return;
  const auto [index, user] = found->second;
  __atomic_store_n(&slots_[index].session, std::uint64_t{0}, __ATOMIC_RELEASE);
  free_.push_back(index);
  used_.erase(found);
  if (!user) return;
  if (const auto own = slots_of_.find(*user); --own->second == 0) slots_of_.erase(own);
}

void PinTable::forget_process(pid_t pid) {
  started_.erase(pid);
}

bool PinTable::holds(std::uint64_t session, std::uint32_t epoch, std::uint64_t step) const {
  return used_.contains(std::tuple(session, epoch, step));
}

std::size_t PinTable::check() const {
  invariant(used_.size() + free_.size() == slot_count_, [this] {
    return fmt::format("table of pins: {} slots are used, {} are free, of {}", used_.size(), free_.size(), slot_count_);
  });
  std::map<uid_t, std::size_t> slots_of;
  for (const auto& [key, used] : used_) {
    const auto& [session, epoch, step] = key;
    const auto about = [&, at = used.index](const char* what) {
      return fmt::format("table of pins: slot {} {}", at, what);
    };
    invariant(used.index < slot_count_, [&] { return about("does not exist"); });
    const Slot& slot = slots_[used.index];
    invariant(slot.session == session && slot.epoch == epoch && slot.step == step,
              [&] { return about("tells a restarted server of another pin"); });
    if (used.user) ++slots_of[*used.user];
  }
  invariant(slots_of == slots_of_, "table of pins: the users' slots are counted wrong");
  return 1 + used_.size();
}

}  // namespace forebay::server
