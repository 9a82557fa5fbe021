// SPDX-License-Identifier: Apache-2.0
// Attributes that do not change are written once, as a set that steps refer to: how much space they take, when it comes
// free, and that every step has them whatever happens in between.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include <forebay/admin.h>

#include "tests/unit/client/stream_fixture.h"

namespace forebay::testing {
namespace {

constexpr std::uint64_t kib = 1024;

class AttributeSets : public StreamTest {
 protected:
  std::uint64_t capacity() const override { return 64 * mib; }

  static AttributeValue text(char letter, std::size_t bytes = mib) {
    AttributeValue value;
    value.strings = {std::string(bytes, letter)};
    return value;
  }
  static void write_small_step(Writer& writer) { write_step(writer, 10, 1.0); }
  static std::unique_ptr<Admin> admin() { return std::move(*Admin::connect({}, {}, 30'000)); }
  static std::uint64_t used_bytes() { return admin()->reservation("res")->used_bytes; }

  /// The letter that the attribute of this name is made of, or what is wrong with it.
  static char letter_of(const Step& step, const std::string& name = "notes", std::size_t bytes = mib) {
    for (const Attribute& attribute : step.attributes()) {
      if (attribute.name != name) continue;
      const std::string& value = attribute.value.strings.at(0);
      const bool whole = value.size() == bytes && std::ranges::count(value, value[0]) == std::ptrdiff_t(bytes);
      return whole ? value[0] : '!';
    }
    return '-';
  }
  char letter_at(std::uint64_t number) {
    auto step = open_reader()->step(number);
    EXPECT_TRUE(step) << step.error().message();
    return step ? letter_of(**step) : '?';
  }
  static void check_clean() {
    const auto found = admin()->audit(true);
    ASSERT_OK(found);
    for (const Finding& finding : *found) {
      if (finding.severity != Finding::Severity::note) ADD_FAILURE() << finding.where << ": " << finding.what;
    }
  }
  void drop(std::vector<std::uint64_t> steps) { ASSERT_OK(admin()->drop_steps(*parse_address("res/flow"), steps)); }

  /// Until the space of what was dropped is free, which takes a sync.
  static void wait_for_used_below(std::uint64_t bytes) {
    while (used_bytes() >= bytes) std::this_thread::yield();
  }
};

TEST_F(AttributeSets, twenty_steps_take_the_space_of_one) {
  auto writer = open_writer();
  ASSERT_OK(writer->set_attribute("notes", text('a')));
  const std::uint64_t before = used_bytes();
  for (int step = 0; step < 20; ++step) write_small_step(*writer);
  EXPECT_LT(used_bytes() - before, mib + 400 * kib);
  auto reader = open_reader();
  for (int step = 0; step < 20; ++step) {
    auto next = reader->next(10'000);
    ASSERT_OK(next);
    EXPECT_EQ(letter_of(*next->step), 'a') << step;
  }
  EXPECT_EQ(letter_at(7), 'a');
  check_clean();
}

TEST_F(AttributeSets, a_change_writes_them_anew_and_what_is_left_of_the_old_ones_stays) {
  auto writer = open_writer();
  for (const char letter : {'a', 'b'}) {
    ASSERT_OK(writer->set_attribute("notes", text(letter)));
    for (int step = 0; step < 3; ++step) write_small_step(*writer);
  }
  ASSERT_OK(writer->set_attribute("notes", text('c', 10)));
  write_small_step(*writer);
  ASSERT_OK(writer->remove_attribute("notes"));
  write_small_step(*writer);
  for (std::uint64_t step = 0; step < 6; ++step) EXPECT_EQ(letter_at(step), step < 3 ? 'a' : 'b');
  EXPECT_EQ(letter_of(**open_reader()->step(6), "notes", 10), 'c');
  EXPECT_EQ(letter_at(7), '-');
  EXPECT_GT(used_bytes(), 2 * mib);
  // The step that brought a set goes before those that refer to it.
  drop({0, 1, 3, 4});
  EXPECT_EQ(letter_at(2), 'a');
  EXPECT_EQ(letter_at(5), 'b');
  check_clean();
  drop({2});
  wait_for_used_below(2 * mib);
  EXPECT_EQ(letter_at(5), 'b');
  drop({5});
  wait_for_used_below(mib);
  check_clean();
}

TEST_F(AttributeSets, stay_while_the_group_lives_even_if_no_step_is_left) {
  auto writer = open_writer();
  ASSERT_OK(writer->set_attribute("notes", text('a')));
  write_small_step(*writer);
  write_small_step(*writer);
  drop({0, 1});
  write_small_step(*writer);
  EXPECT_EQ(letter_at(2), 'a');
  drop({2});
  check_clean();
  server_.kill();
  server_.start();
  check_clean();
  write_small_step(*writer);
  EXPECT_EQ(letter_at(3), 'a');
  EXPECT_LT(used_bytes(), 2 * mib);
  drop({3});
  ASSERT_OK(writer->close());
  wait_for_used_below(mib);
  check_clean();
}

TEST_F(AttributeSets, of_an_aborted_step_are_sent_again) {
  auto writer = open_writer();
  ASSERT_OK(writer->set_attribute("notes", text('a')));
  write_small_step(*writer);
  ASSERT_OK(writer->set_attribute("notes", text('b')));
  ASSERT_OK(writer->begin_step());
  ASSERT_OK(writer->abort_step());
  write_small_step(*writer);
  EXPECT_EQ(letter_at(1), 'b');
  ASSERT_OK(writer->begin_step());
  ASSERT_OK(writer->abort_step());
  write_small_step(*writer);
  EXPECT_EQ(letter_at(2), 'b');
  EXPECT_LT(used_bytes(), 3 * mib);
  check_clean();
}

TEST_F(AttributeSets, of_a_step_that_another_rank_gives_up_are_sent_again) {
  WriterOptions options;
  options.ranks = 2;
  std::vector<std::unique_ptr<Writer>> ranks(2);
  std::thread second([&] {
    WriterOptions other = options;
    other.rank = 1;
    ranks[1] = open_writer(other);
  });
  ranks[0] = open_writer(options);
  second.join();
  for (auto& rank : ranks) ASSERT_OK(rank->set_attribute(rank == ranks[0] ? "notes" : "others", text('a')));
  const auto end_both = [&](bool agree) {
    const std::int32_t whole = 1;
    const double real = 2.0;
    for (auto& rank : ranks) {
      ASSERT_OK(rank->begin_step());
      BlockSpec block{"v", DataType::int32, ShapeKind::local_value, {}, {}, {}, {}, {}};
      if (!agree && rank == ranks[1]) block.type = DataType::float64;
      ASSERT_OK(rank->put(block, block.type == DataType::int32 ? static_cast<const void*>(&whole) : &real));
    }
    Result<void> other;
    std::thread ending([&] { other = ranks[1]->end_step(); });
    const auto ended = ranks[0]->end_step();
    ending.join();
    EXPECT_EQ(ended.has_value(), agree);
    EXPECT_EQ(other.has_value(), agree);
    if (agree) return;
    for (auto& rank : ranks) ASSERT_OK(rank->abort_step());
  };
  end_both(false);
  end_both(true);
  end_both(false);
  end_both(true);
  for (std::uint64_t number = 0; number < 2; ++number) {
    auto step = open_reader()->step(number);
    ASSERT_OK(step);
    EXPECT_EQ(letter_of(**step), 'a');
    EXPECT_EQ(letter_of(**step, "others"), 'a');
  }
  EXPECT_LT(used_bytes(), 3 * mib);
  check_clean();
}

TEST_F(AttributeSets, survive_the_death_of_the_server) {
  auto writer = open_writer();
  ASSERT_OK(writer->set_attribute("notes", text('a')));
  write_small_step(*writer);
  auto reader = open_reader();
  ASSERT_OK(reader->next(10'000));
  server_.kill();
  server_.start();
  write_small_step(*writer);
  ASSERT_OK(writer->set_attribute("notes", text('b')));
  ASSERT_OK(writer->begin_step());
  server_.kill();
  server_.start();
  ASSERT_OK(writer->end_step());
  for (const char letter : {'a', 'b'}) {
    auto next = reader->next(10'000);
    ASSERT_OK(next);
    if (next->kind == NextStep::Kind::notice) next = reader->next(10'000);
    ASSERT_TRUE(next->step);
    EXPECT_EQ(letter_of(*next->step), letter);
  }
  EXPECT_LT(used_bytes(), 3 * mib);
  check_clean();
}

TEST_F(AttributeSets, go_with_the_steps_that_a_group_takes_back) {
  WriterOptions options;
  options.mode = WriteMode::append;
  auto writer = open_writer(options);
  ASSERT_OK(writer->set_attribute("notes", text('a')));
  for (int step = 0; step < 4; ++step) write_small_step(*writer);
  ASSERT_OK(writer->set_attribute("notes", text('b')));
  write_small_step(*writer);
  ASSERT_OK(writer->close());
  auto reader = open_reader();
  auto pinned = reader->step(4);
  ASSERT_OK(pinned);
  options.append_after = 1;
  writer = open_writer(options);
  // It inherits the attributes of the last step that is left.
  write_small_step(*writer);
  EXPECT_EQ(letter_at(0), 'a');
  EXPECT_EQ(letter_at(2), 'a');
  EXPECT_EQ(letter_of(**pinned), 'b');
  check_clean();
  // The pinned step, those kept of the first group, and the new group.
  EXPECT_GT(used_bytes(), 3 * mib);
  pinned->reset();
  wait_for_used_below(3 * mib);
  options.mode = WriteMode::replace;
  options.append_after.reset();
  ASSERT_OK(writer->close());
  writer = open_writer(options);
  write_small_step(*writer);
  EXPECT_EQ(letter_at(0), '-');
  wait_for_used_below(mib);
  check_clean();
}

TEST_F(AttributeSets, are_kept_by_retention_as_long_as_steps_are) {
  WriterOptions options;
  options.retention = *parse_retention("last:2");
  auto writer = open_writer(options);
  for (const char letter : {'a', 'b', 'c'}) {
    ASSERT_OK(writer->set_attribute("notes", text(letter)));
    for (int step = 0; step < 5; ++step) write_small_step(*writer);
  }
  EXPECT_EQ(letter_at(13), 'c');
  EXPECT_EQ(letter_at(14), 'c');
  wait_for_used_below(2 * mib);
  check_clean();
}

TEST_F(AttributeSets, a_reader_reads_each_once_and_an_audit_finds_damage) {
  auto writer = open_writer();
  ASSERT_OK(writer->set_attribute("notes", text('a')));
  write_small_step(*writer);
  write_small_step(*writer);
  auto reader = open_reader();
  ASSERT_OK(reader->next(10'000));
  std::size_t found = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(server_.root() + "/reservations")) {
    if (file.path().parent_path().filename() != "segments" || !file.is_regular_file()) continue;
    std::string content(file.file_size(), '\0');
    std::ifstream(file.path(), std::ios::binary).read(content.data(), static_cast<std::streamsize>(content.size()));
    const std::size_t at = content.find(std::string(1000, 'a'));
    if (at == std::string::npos) continue;
    ++found;
    std::fstream out(file.path(), std::ios::binary | std::ios::in | std::ios::out);
    out.seekp(static_cast<std::streamoff>(at + 500));
    out.put('x');
  }
  ASSERT_EQ(found, 1U);
  auto second = reader->next(10'000);
  ASSERT_OK(second);
  EXPECT_EQ(letter_of(*second->step), 'a');
  const auto fresh = open_reader()->step(1);
  ASSERT_FALSE(fresh);
  EXPECT_EQ(fresh.error().code, ErrorCode::corrupt);
  const auto damage = admin()->audit(true);
  ASSERT_OK(damage);
  EXPECT_EQ(std::ranges::count_if(*damage,
                                  [](const Finding& finding) {
                                    return finding.what.find("checksum mismatch in a step's attributes") !=
                                           std::string::npos;
                                  }),
            2);
}

}  // namespace
}  // namespace forebay::testing
