// SPDX-License-Identifier: Apache-2.0
// The table of pins that a server finds when it starts: bytes of it as they are, or lines of readers that still exist,
// have ended, or are not known but by their process. Who is found is what the lines say; the table goes on working, and
// what it then holds is what the next start finds.
//
// Input: a byte of options, the number of lines (1 byte), these, then operations of four bytes each.
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "staging-servers/readers/pin_table.h"
#include "tests/fuzz/choices.h"
#include "tests/fuzz/input.h"
#include "tests/support/temporary_directory.h"

namespace forebay::fuzz {
namespace {

/// As docs/formats/pins.md has it.
struct Line {
  std::uint64_t session = 0;
  std::uint64_t step = 0;
  std::uint64_t process_started = 0;
  std::uint32_t process = 0;
  std::uint32_t epoch = 0;
  char stream[40] = {};
};
static_assert(sizeof(Line) == 72);
constexpr std::size_t lines_max = 16384;
constexpr std::size_t lines_read_max = 48;
constexpr std::uint64_t present = 1;  // sessions whose readers exist
constexpr std::uint64_t also_present = 2;
constexpr std::uint64_t gone = 3;  // one that has a file, which nobody holds

std::uint64_t own_start() {
  std::ifstream file("/proc/self/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::istringstream fields(text.substr(text.rfind(')') + 1));
  std::string field;
  for (int i = 0; i < 19; ++i) fields >> field;
  std::uint64_t ticks = 0;
  fields >> ticks;
  return ticks;
}

class Table {
 public:
  using Key = std::tuple<std::uint64_t, std::uint32_t, std::uint64_t>;  // session, epoch, step

  Table() {
    auto opened = server::ReaderPresence::open(directory_.path());
    require(opened.has_value());
    presence_.emplace(std::move(*opened));
    for (const std::uint64_t session : {present, also_present}) kept_.push_back(presence_->admit(session));
    (void)presence_->admit(gone);
  }

  void run(Choices choices) {
    const std::uint8_t options = choices.byte();
    std::vector<Line> lines(choices.below(lines_read_max));
    for (Line& line : lines) line = (options & 1) != 0 ? raw(choices) : made(choices);
    const bool after_boot = (options & 2) != 0;
    // At the table's beginning, at its end, or with bytes behind it that are none of it.
    const std::size_t first = (options & 4) != 0 ? lines_max - lines.size() : 0;
    write(lines, first, (options & 8) != 0);
    for (const Line& line : lines) {
      if (!after_boot && line.session != 0 && exists(line)) expected_.emplace(line.session, line.epoch, line.step);
    }
    if (!expected_.empty()) understood();
    auto table = open(after_boot);
    while (!choices.empty()) operate(choices, *table);
    table.reset();
    // A server that was killed has closed nothing either: all that counts lies in the file.
    open(false);
  }

 private:
  static Line raw(Choices& choices) {
    Line line;
    const auto bytes = choices.bytes(sizeof line);
    if (!bytes.empty()) std::memcpy(&line, bytes.data(), bytes.size());
    return line;
  }
  Line made(Choices& choices) const {
    Line line;
    line.session = choices.near(choices.below(6));
    line.step = choices.near(choices.below(4));
    line.epoch = choices.near32(1);
    line.process = choices.near32(static_cast<std::uint32_t>(::getpid()));
    // Others' numbers lie beyond those that Linux gives: a neighbour in number may have started in the same tick.
    if (line.process != static_cast<std::uint32_t>(::getpid())) line.process |= 1U << 22;
    line.process_started = choices.near(own_start_);
    std::memset(line.stream, 'a' + choices.byte() % 26, choices.below(sizeof line.stream + 1));
    return line;
  }
  void write(const std::vector<Line>& lines, std::size_t first, bool longer) const {
    std::ofstream file(path_, std::ios::binary | std::ios::trunc);
    file.seekp(static_cast<std::streamoff>(first * sizeof(Line)));
    file.write(reinterpret_cast<const char*>(lines.data()), static_cast<std::streamsize>(lines.size() * sizeof(Line)));
    if (longer) {
      file.seekp(static_cast<std::streamoff>(lines_max * sizeof(Line)));
      file << std::string(1000, '\xff');
    }
  }
  bool exists(const Line& line) const {
    if (line.process == 0) return true;  // on another node, which is asked later
    if (line.session == present || line.session == also_present) return true;
    if (line.session == gone) return false;
    return line.process == static_cast<std::uint32_t>(::getpid()) && line.process_started == own_start_;
  }
  /// The table as the next server finds it: exactly the expected.
  std::unique_ptr<server::PinTable> open(bool after_boot) const {
    std::vector<server::PinTable::Absent> absent;
    auto table = server::PinTable::open(path_, after_boot, *presence_, absent);
    require(table.has_value(), table ? "" : table.error().message());
    std::size_t count = 0;
    for (const server::PinTable::Absent& reader : absent) {
      require(reader.stream_uuid.size() < sizeof Line::stream, "a stream's name without an end");
      for (const auto& [epoch, step] : reader.keys) {
        ++count;
        require(expected_.contains({reader.session, epoch, step}), "a pin that nobody holds was found");
      }
    }
    require(count == expected_.size(), "pins were lost, or found twice");
    return std::move(*table);
  }
  void operate(Choices& choices, server::PinTable& table) {
    const std::uint8_t what = choices.byte();
    // Sessions that the lines may have, and one that only this process knows.
    const Key key(1 + choices.below(8), choices.near32(1), choices.below(8));
    const auto& [session, epoch, step] = key;
    if (what % 8 == 7) return table.forget_process(::getpid());
    if (what % 2 == 0) {
      require(table.add(session, {::getpid(), {}}, "0d8f5b2e-9c1e-4a53-8f2b-6f2f7f0c9a11", epoch, step),
              "the table is full");
      if (session != gone) expected_.insert(key);
    } else {
      table.remove(session, epoch, step);
      expected_.erase(key);
    }
  }

  testing::TemporaryDirectory directory_ = testing::TemporaryDirectory::in_memory();
  std::string path_ = directory_.path("pins");
  std::uint64_t own_start_ = own_start();
  std::optional<server::ReaderPresence> presence_;
  std::vector<Descriptor> kept_;
  std::set<Key> expected_;
};

}  // namespace
}  // namespace forebay::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  forebay::fuzz::Table().run(forebay::fuzz::Choices({data, size}));
  return 0;
}
