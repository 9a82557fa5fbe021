// SPDX-License-Identifier: Apache-2.0
// Clients that get no memory while they come, go, hold steps, come back after a restart of the server, or administer:
// what is left of them is what a client that was killed leaves.
#include <atomic>
#include <cstring>
#include <vector>

#include <forebay/admin.h>

#include "tests/unit/client/faults/failing_memory_fixture.h"

namespace forebay::testing {
namespace {

class FailingSessions : public FailingMemoryTest {
 protected:
  void SetUp() override {
    FailingMemoryTest::SetUp();
    server_.set_restart_grace_ms(500);
    ASSERT_OK(server_.restart(false));
  }
  void TearDown() override {
    order_ = Order::end;
    order_.notify_all();
  }
  /// In a thread of its own, for the caller's has no memory. Whoever waits for nothing does not come back.
  void restart_server() {
    order_ = Order::restart;
    order_.notify_all();
    order_.wait(Order::restart);
  }
  static std::unique_ptr<Admin> admin() {
    auto connected = Admin::connect();
    EXPECT_TRUE(connected) << connected.error().message();
    return connected ? std::move(*connected) : nullptr;
  }
  bool is_held(std::uint64_t number) const {
    const auto steps = admin()->steps(address_);
    return steps && std::ranges::any_of(
                        *steps, [number](const StepSummary& step) { return step.step == number && step.pins > 0; });
  }
  /// Nobody holds a step any more, once the server has seen the end of those that did.
  void check_nothing_is_held() {
    const auto asking = admin();
    const auto held = [&] {
      const auto steps = asking->steps(address_);
      EXPECT_TRUE(steps) << steps.error().message();
      return steps && std::ranges::any_of(*steps, [](const StepSummary& step) { return step.pins > 0; });
    };
    const Deadline deadline = Deadline::after_ms(10'000);
    while (held() && !deadline.passed()) std::this_thread::yield();
    EXPECT_FALSE(held()) << "a step is held by nobody";
    const auto findings = asking->audit(true);
    ASSERT_OK(findings);
    for (const Finding& finding : *findings)
      EXPECT_NE(finding.severity, Finding::Severity::problem) << finding.where << ": " << finding.what;
  }
  /// What came before is not in doubt any more: a new writer goes on behind it.
  void go_on() {
    write_whole_step(*writer());
    const std::uint64_t newest = committed_.rbegin()->first;
    if (in_doubt_ && newest > in_doubt_->first) committed_.insert(*in_doubt_);
    in_doubt_.reset();
    check_stream();
    check_nothing_is_held();
  }

 private:
  enum class Order { none, restart, end };
  std::atomic<Order> order_ = Order::none;
  std::jthread restarting_{[this] {
    while (true) {
      order_.wait(Order::none);
      if (order_ == Order::end) return;
      EXPECT_TRUE(server_.restart(false));
      order_ = Order::none;
      order_.notify_all();
    }
  }};
};

// crash-matrix: no memory | writer, any allocation of opening or closing, once, and from then on | the stream; another writer opens it and goes on
TEST_F(FailingSessions, a_writer_that_comes_and_goes_leaves_the_stream_whole) {
  write_whole_step(*writer());
  sweep_failures(15, [&](std::uint64_t n, bool lasting) {
    const bool failed = fails_at(n, lasting, [&]() -> Result<void> {
      auto opened = Writer::open(address_, writer_options_);
      if (!opened) return fail(opened.error());
      return (*opened)->close();
    });
    go_on();
    return failed;
  });
}

// crash-matrix: no memory | reader, any allocation of opening, of looking at a step in place or of letting go of it, once, and from then on | the stream and the consumer's place; the same reader goes on, also with a restarted server; nothing stays held
TEST_F(FailingSessions, a_reader_that_comes_and_goes_holds_nothing_afterwards) {
  write_whole_step(*writer());
  sweep_failures(50, [&](std::uint64_t n, bool lasting) {
    std::unique_ptr<Reader> reading;
    std::shared_ptr<const Step> step;
    std::optional<Step::View> view;
    const bool failed = fails_at(n, lasting, [&]() -> Result<void> {
      auto opened = Reader::open(address_, reader_options_);
      if (!opened) return fail(opened.error());
      reading = std::move(*opened);
      auto next = next_step(*reading);
      if (!next) return fail(next.error());
      step = std::move(*next);
      if (auto content = content_of(*step); !content) return fail(content.error());
      auto seen = step->view(*step->find("T"), {{0}, step->find("T")->shape});
      if (!seen) return fail(seen.error());
      view = std::move(*seen);
      return {};
    });
    // The same reader, with a server that knows of it by what it says alone.
    restart_server();
    if (step) check_content(*step);
    if (reading) {
      write_whole_step(*writer());
      if (const auto next = next_step(*reading)) {
        check_content(**next);
      } else {
        EXPECT_EQ(next.error().code, ErrorCode::busy) << next.error().message();
      }
    }
    fails_at(n, lasting, [&]() -> Result<void> {
      view.reset();
      step.reset();
      reading.reset();
      return {};
    });
    go_on();
    return failed;
  });
}

// crash-matrix: no memory | writer, any allocation of computing a step in place, ending it, and of ending another one with a restarted server, once, and from then on | every step told committed, with its content; what the program holds of the step's memory stays as it is until it lets go, and then nothing stays held
TEST_F(FailingSessions, memory_that_was_computed_in_is_the_programs_until_it_lets_go) {
  constexpr std::size_t ballast_bytes = std::size_t{64} << 10;
  const std::uint64_t shape[] = {ballast_bytes};
  const std::uint64_t zeros[] = {0};
  const BlockSpec ballast{"ballast", DataType::uint8, ShapeKind::global_array, shape, zeros, shape, {}, {}};
  sweep_failures(115, [&](std::uint64_t n, bool lasting) {
    auto writing = writer();
    const std::uint64_t number = writing->current_step();
    const std::uint64_t contents[] = {++content_, ++content_};
    const auto filling = static_cast<unsigned char>(contents[0]);
    bool ended[] = {false, false};
    std::optional<Writer::Allocation> memory;
    const bool failed = fails_at(n, lasting, [&]() -> Result<void> {
      if (auto begun = writing->begin_step(); !begun) return fail(begun.error());
      if (auto put = put_content(*writing, contents[0]); !put) return put;
      auto allocated = writing->allocate(ballast);
      if (!allocated) return fail(allocated.error());
      memory = std::move(*allocated);
      std::memset(memory->bytes.data(), filling, memory->bytes.size());
      if (auto end = writing->end_step(); !end) return end;
      ended[0] = true;
      restart_server();
      if (auto begun = writing->begin_step(); !begun) return fail(begun.error());
      if (auto put = put_content(*writing, contents[1]); !put) return put;
      auto end = writing->end_step();
      ended[1] = end.has_value();
      return end;
    });
    if (!failed) {
      EXPECT_TRUE(ended[1]);
      EXPECT_TRUE(is_held(number));
    }
    // Where it was the program's own memory the writer goes on. One that was given up does not come back, so that each
    // restart waits its grace time: some do.
    const bool goes_on = !failed || writing->in_step();
    const std::uint64_t open = writing->current_step() - number;
    if (writing->in_step() && !writing->abort_step() && writing->end_step()) ended[open] = true;
    for (std::uint64_t i = 0; i < 2; ++i) {
      if (ended[i]) committed_[number + i] = contents[i];
    }
    if (!ended[1]) in_doubt_ = {number + (ended[0] ? 1 : 0), contents[ended[0] ? 1 : 0]};
    if (goes_on || n % 4 == 0) restart_server();
    // So many steps that the space of the first one goes round, unless it is held.
    for (int step = 0; step < 4; ++step) {
      const auto begun = writing->begin_step();
      if (!begun) {
        EXPECT_EQ(begun.error().code, ErrorCode::group_broken) << begun.error().message();
        writing = writer();
        continue;
      }
      EXPECT_TRUE(put_content(*writing, ++content_));
      EXPECT_TRUE(writing->end_step());
      // The step in doubt came before it or never.
      if (in_doubt_ && *begun > in_doubt_->first) committed_.insert(*in_doubt_);
      in_doubt_.reset();
      committed_[*begun] = content_;
    }
    if (memory && ended[0]) {
      EXPECT_TRUE(std::ranges::all_of(memory->bytes, [&](std::byte each) { return each == std::byte{filling}; }));
    }
    fails_at(n, lasting, [&]() -> Result<void> {
      memory.reset();
      return {};
    });
    writing.reset();
    go_on();
    return failed;
  });
}

// crash-matrix: no memory | any allocation of any administrative call, once, and from then on | the reservation and its streams; the call can be made again, by the same client and by others
TEST_F(FailingSessions, administration_can_be_asked_again) {
  sweep_failures(60, [&](std::uint64_t n, bool lasting) {
    write_whole_step(*writer());
    const std::uint64_t newest = committed_.rbegin()->first;
    std::unique_ptr<Admin> asking;
    const auto ask_all = [&]() -> Result<void> {
      if (!asking) {
        auto connected = Admin::connect();
        if (!connected) return fail(connected.error());
        asking = std::move(*connected);
      }
      ReservationSpec spec;
      spec.name = "other";
      spec.capacity_bytes = std::uint64_t{8} << 20;
      spec.lifetime = Lifetime::persistent;
      if (auto made = asking->create_reservation(spec); !made) return fail(made.error());
      if (auto server = asking->server(); !server) return fail(server.error());
      if (auto all = asking->reservations(); !all) return fail(all.error());
      if (auto one = asking->reservation("other"); !one) return fail(one.error());
      if (auto streams = asking->streams("res"); !streams) return fail(streams.error());
      const auto stream = asking->stream(address_);
      if (!stream) return fail(stream.error());
      if (auto steps = asking->steps(address_); !steps) return fail(steps.error());
      if (auto set = asking->set_retention(address_, *writer_options_.retention); !set) return set;
      if (auto set = asking->set_precious(address_, {newest}, true); !set) return set;
      if (auto set = asking->mark_staged(address_, stream->epoch, {newest}, "receipt"); !set) return set;
      if (auto gone = asking->remove_consumer(address_, "gone"); !gone && gone.error().code != ErrorCode::not_found)
        return gone;
      if (auto found = asking->audit(true); !found) return fail(found.error());
      return asking->destroy_reservation("other", false);
    };
    const bool failed = fails_at(n, lasting, ask_all);
    const auto again = ask_all();
    EXPECT_TRUE(again) << again.error().message();
    asking.reset();
    const auto others = ask_all();
    EXPECT_TRUE(others) << others.error().message();
    go_on();
    return failed;
  });
}

}  // namespace
}  // namespace forebay::testing
