// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/client/faults/programs.h"

#include <gtest/gtest.h>

#include "base/clock.h"
#include "tests/unit/client/numbered_content.h"

namespace forebay::testing {
namespace {

constexpr std::int64_t patience_ms = 20'000;
/// A step that is named so often makes a record of 70 KB.
constexpr std::size_t named_often = 8750;
constexpr std::size_t small_receipt_bytes = 1'000;

/// The stream that drops what is old.
constexpr const char* ring = "ring";
constexpr std::uint64_t ring_step_bytes = std::uint64_t{3} << 19;
constexpr std::uint64_t capacity_bytes = std::uint64_t{12} << 20;
constexpr std::uint64_t capacity_bytes_small = std::uint64_t{8} << 20;

Address address_of(const std::string& stream) {
  return {Programs::reservation, stream, std::nullopt};
}

}  // namespace

InterruptHook end_of_patience() {
  return [deadline = Deadline::after_ms(patience_ms)] { return deadline.passed(); };
}

Programs::Programs(ServerOnDisk& server, Told& told, Play play) : server_(server), told_(told), play_(play) {
  EXPECT_TRUE(server.start());
  EXPECT_TRUE(server.create(reservation, play == Play::everything ? capacity_bytes : capacity_bytes_small));
  server.share_with_clients();
  server.disk().reset();
}

void Programs::open(const std::string& stream, Durability durability, WriterOptions options) {
  writers_.erase(stream);
  if (server_.disk().stopped()) return;
  options.durability = durability;
  options.interrupt = end_of_patience();
  ToldStream& told = told_[stream];
  if (stream == ring) {
    options.when_full = WhenFull::drop_oldest;
    told.kept_when_full = 2;
  }
  const std::uint32_t newest = told.sent.empty() ? 0 : told.sent.rbegin()->first.first;
  const bool rewinds = options.mode == WriteMode::replace || options.append_after;
  const std::uint64_t first = options.append_after ? *options.append_after + 1 : 0;
  auto writers = open_ranks(address_of(stream), options);
  if (writers.empty()) {
    // It may have come to pass all the same.
    if (rewinds) told.maybe_rewinds.emplace(newest + 1, first);
    return;
  }
  const Writer& writer = *writers.front();
  const std::uint32_t epoch = writer.epoch();
  if (epoch > newest && newest > 0) told.rewinds[epoch] = writer.current_step();
  told.checksums = options.checksums;
  if (options.retention) told.retention = *options.retention;
  if (rewinds) {
    told.committed = Place{epoch, first};
    if (told.cursor) told.cursor = Place{epoch, std::min(told.cursor->next, first)};
  }
  writers_[stream] = std::move(writers);
  durabilities_[stream] = durability;
}

void Programs::append_after(const std::string& stream, std::uint64_t step) {
  WriterOptions options;
  options.mode = WriteMode::append;
  options.append_after = step;
  open(stream, Durability::committed, options);
}

void Programs::replace(const std::string& stream) {
  WriterOptions options;
  options.mode = WriteMode::replace;
  open(stream, Durability::committed, options);
}

void Programs::write(const std::string& stream, int steps) {
  for (int i = 0; i < steps && !server_.disk().stopped(); ++i) {
    const auto found = writers_.find(stream);
    if (found == writers_.end()) return;
    for (const auto& writer : found->second) {
      if (succeeded(writer->begin_step())) continue;
      writers_.erase(found);
      return;
    }
    Writer& writer = *found->second.front();
    ToldStream& told = told_[stream];
    const std::uint64_t content = ++content_;
    const std::uint64_t step = writer.current_step();
    const auto key = std::pair(writer.epoch(), step);
    told.sent[key].insert(content);
    if (put_and_end(stream, content)) {
      told.committed = Place{writer.epoch(), step + 1};
      told.committed_contents[key] = content;
      if (durabilities_[stream] == Durability::durable) told.all_durable();
    } else if (found->second.size() > 1 || !writer.in_step() || !writer.abort_step()) {
      writers_.erase(found);
    }
  }
}

bool Programs::put_and_end(const std::string& stream, std::uint64_t content) {
  auto& writers = writers_[stream];
  Putting putting;
  putting.ranks = static_cast<std::uint32_t>(writers.size());
  putting.in_place = content % 2 == 0;
  if (const auto ballast = ballast_bytes_.find(stream); ballast != ballast_bytes_.end())
    putting.ballast_bytes = ballast->second;
  for (; putting.rank < putting.ranks; ++putting.rank) {
    if (!succeeded(put_content(*writers[putting.rank], content, putting))) return false;
  }
  if (writers.size() > 1) return end_two(writers);
  return succeeded(writers.front()->end_step());
}

void Programs::close(const std::string& stream) {
  const auto found = writers_.find(stream);
  if (found == writers_.end()) return;
  for (const auto& writer : found->second) (void)succeeded(writer->close());
  writers_.erase(found);
}

void Programs::remove(const std::string& stream) {
  if (server_.disk().stopped()) return;
  close(stream);
  told_[stream].may_be_gone = true;
  auto admin = Admin::connect({}, end_of_patience());
  if (!succeeded(admin)) return;
  bool gone = succeeded((*admin)->remove_stream(address_of(stream), true));
  if (!gone) {
    const auto left = (*admin)->stream(address_of(stream));
    gone = !left && left.error().code == ErrorCode::not_found && !server_.disk().stopped();
  }
  if (gone) told_[stream] = {};
}

void Programs::follow(const std::string& stream) {
  // A stream that could not be made would be waited for.
  if (!writers_.contains(stream)) return;
  ReaderOptions options;
  options.consumer = "render";
  options.verify = Verify::read;
  options.interrupt = end_of_patience();
  if (auto reader = Reader::open(address_of(stream), options); succeeded(reader)) consumer_ = std::move(*reader);
}

void Programs::consume(const std::string& stream, int steps) {
  ToldStream& told = told_[stream];
  for (int i = 0; i < steps && consumer_ && !server_.disk().stopped(); ++i) {
    // What was not committed does not come.
    if (!told.committed || consumer_->position() >= told.committed->next) return;
    const std::uint64_t position = consumer_->position();
    const auto take_next = [&] {
      auto next = consumer_->next(patience_ms);
      while (next && next->kind == NextStep::Kind::notice) next = consumer_->next(patience_ms);
      return next;
    };
    auto next = take_next();
    if (!next && next.error().code == ErrorCode::io_error && consumer_->position() == position) {
      errors_.push_back(next.error());
      next = take_next();
    }
    if (!succeeded(next) || next->kind == NextStep::Kind::end_of_stream) return;
    ASSERT_EQ(next->kind, NextStep::Kind::step);
    auto content = content_of(*next->step);
    // The server's own work may stop the disk in the middle of it.
    if (!content && server_.disk().stopped()) return;
    if (!content && content.error().code == ErrorCode::io_error) {
      errors_.push_back(content.error());
      content = content_of(*next->step);
    }
    ASSERT_TRUE(content) << content.error().message();
    const Place place{next->step->epoch(), next->step->number() + 1};
    told.cursor_highest = std::max(told.cursor_highest, place.next);
    if (succeeded(consumer_->acknowledge(*next->step))) told.cursor = place;
  }
}

void Programs::fill_journal(const std::string& stream) {
  auto admin = Admin::connect({}, end_of_patience());
  if (!succeeded(admin)) return;
  const auto info = (*admin)->stream(address_of(stream));
  if (!succeeded(info) || !info->committed) return;
  const std::vector<std::uint64_t> steps(named_often, *info->committed);
  for (int i = 0; i < 5 && !server_.disk().stopped(); ++i)
    (void)succeeded((*admin)->mark_staged(address_of(stream), info->epoch, steps, "receipt"));
}

void Programs::run() {
  switch (play_) {
    case Play::everything:
      return run_everything();
    case Play::full_reservation:
      return run_in_full_reservation();
    case Play::contended:
      return run_contended();
  }
}

void Programs::run_everything() {
  WriterOptions plain;
  plain.mode = WriteMode::append;
  WriterOptions raw = plain;
  raw.checksums = false;
  WriterOptions recent = plain;
  recent.retention = Retention{.last = 2, .consumers = {}, .precious_every = 0};
  WriterOptions watched = plain;
  watched.retention = Retention{.last = {}, .consumers = {"render"}, .precious_every = 0};

  open("flow", Durability::durable, plain);
  open("raw", Durability::committed, raw);
  open("recent", Durability::committed, recent);
  open("watched", Durability::committed, watched);
  open("gone", Durability::durable, plain);
  follow("watched");
  write("flow", 2);
  write("raw", 2);
  write("gone");
  write("recent", 2);
  write("watched", 3);
  consume("watched", 2);
  remove("gone");
  close("flow");
  close("raw");
  close("watched");
  // Steps that only committed, behind durable ones.
  open("flow", Durability::committed, plain);
  open("raw", Durability::durable, raw);
  open("watched", Durability::durable, watched);
  write("flow", 2);
  write("raw");
  write("watched");
  consume("watched", 1);
  write("recent", 3);
  close("recent");
  open("recent", Durability::durable, recent);
  write("recent", 4);
  close("flow");
  close("raw");
  // Acknowledged before they are durable.
  close("watched");
  open("watched", Durability::committed, watched);
  write("watched", 3);
  consume("watched", 3);
  append_after("flow", 1);
  write("flow", 2);
  open("raw", Durability::committed, raw);
  write("raw");
  close("flow");
  fill_journal("flow");
  open("flow", Durability::durable, plain);
  write("flow");
  close("flow");
  replace("flow");
  write("flow", 2);
  close("flow");
  open("flow", Durability::durable, plain);
  write("flow");
  open("gone", Durability::committed, plain);
  write("gone");
  close("watched");
  open("watched", Durability::durable, watched);
  write("watched");
  open(group_stream, Durability::durable, plain);
  write(group_stream, 2);
  close(group_stream);
  open(group_stream, Durability::committed, plain);
  write(group_stream);
}

void Programs::run_in_full_reservation() {
  WriterOptions plain;
  plain.mode = WriteMode::append;
  ballast_bytes_[ring] = ring_step_bytes;
  open(ring, Durability::committed, plain);
  write(ring, 5);
  close(ring);
  open(ring, Durability::durable, plain);
  write(ring, 3);
}

void Programs::check_whole() const {
  EXPECT_TRUE(errors_.empty()) << errors_.front().message();
  if (play_ == Play::contended) check_space_went_between_streams();
  if (play_ != Play::full_reservation) return;
  auto admin = Admin::connect({}, end_of_patience());
  ASSERT_TRUE(admin) << admin.error().message();
  const auto steps = (*admin)->steps(address_of(ring));
  ASSERT_TRUE(steps) << steps.error().message();
  EXPECT_GT(steps->front().step, 0U) << "nothing was dropped";
}

void Programs::end_on_full_disk() {
  auto admin = Admin::connect({}, end_of_patience());
  ASSERT_TRUE(admin) << admin.error().message();
  const std::string receipt(small_receipt_bytes, 'r');
  for (auto& [stream, writers] : writers_) {
    SCOPED_TRACE("ending stream " + stream);
    const auto& committed = told_[stream].committed;
    if (!committed || committed->next == 0) continue;
    Result<void> marked;
    while (marked) marked = (*admin)->mark_staged(address_of(stream), committed->epoch, {committed->next - 1}, receipt);
    EXPECT_EQ(marked.error().code, ErrorCode::no_space) << marked.error().message();
    if (stream == "watched") consume(stream, 1);
    for (const auto& writer : writers) {
      const auto closed = writer->close();
      EXPECT_TRUE(closed) << closed.error().message();
    }
    const auto info = (*admin)->stream(address_of(stream));
    ASSERT_TRUE(info) << info.error().message();
    EXPECT_EQ(info->status, StreamStatus::ended);
  }
}

void Programs::go_on() {
  vanish();
  auto admin = Admin::connect({}, end_of_patience());
  ASSERT_TRUE(admin) << admin.error().message();
  errors_.clear();
  // A stream that has failed keeps its space.
  if (play_ == Play::contended) ballast_bytes_.clear();
  for (auto& [stream, told] : told_) {
    SCOPED_TRACE("going on with stream " + stream);
    if (const auto info = (*admin)->stream(address_of(stream)); info && info->status == StreamStatus::failed) continue;
    WriterOptions options;
    options.mode = WriteMode::append;
    options.checksums = told.checksums;
    open(stream, Durability::durable, options);
    write(stream, 2);
    close(stream);
    for (const Error& error : errors_) ADD_FAILURE() << error.message();
    EXPECT_TRUE(told.durable && told.committed && told.durable->next == told.committed->next &&
                told.durable->next >= 2);
  }
}

void Programs::check_errors(const std::set<ErrorCode>& allowed) const {
  for (const Error& error : errors_)
    EXPECT_TRUE(allowed.contains(error.code)) << to_string(error.code) << ": " << error.message();
}

void Programs::vanish() {
  consumer_.reset();
  writers_.clear();
}

}  // namespace forebay::testing
