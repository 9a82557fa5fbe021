// SPDX-License-Identifier: Apache-2.0
// forebay._core.Reader: random access to a stream, or a follower of it.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <span>

#include <forebay/address.h>
#include <forebay/reader.h>

#include "bindings.h"
#include "conversion.h"
#include "gathered_steps.h"
#include "handle.h"

namespace nb = nanobind;

namespace forebay::python {

namespace {

// What PythonReader::next gives besides the kinds of NextStep: another thread closed the reader.
constexpr int closed_meanwhile = 5;

class PythonReader {
 public:
  PythonReader(std::unique_ptr<Reader> reader, std::shared_ptr<Attention> attention)
      : stream_uuid_(reader->stream_uuid()),
        first_step_(reader->first_step()),
        first_step_epoch_(reader->epoch()),
        handle_(std::move(reader), std::move(attention), "a stream open for reading") {}

  const std::string& stream_uuid() const { return stream_uuid_; }
  std::uint64_t first_step() const { return first_step_; }
  std::uint32_t first_step_epoch() const { return first_step_epoch_; }

  nb::tuple next(std::int64_t timeout_ms) {
    using std::chrono::steady_clock;
    const auto deadline = steady_clock::now() + std::chrono::milliseconds(timeout_ms);
    bool again = false;
    const auto brought = handle_.wait([&](Reader& reader) {
      if (again && timeout_ms > 0) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - steady_clock::now());
        return reader.next(std::max<std::int64_t>(left.count(), 0));
      }
      again = true;
      return reader.next(timeout_ms);
    });
    if (!brought) {
      return nb::make_tuple(closed_meanwhile, nb::none(), false, 0, "", "");
    }
    if (brought->kind == NextStep::Kind::step) {
      return nb::make_tuple(static_cast<int>(brought->kind), object_of(brought->step), brought->rewound,
                            brought->skipped, "", "");
    }
    return nb::make_tuple(static_cast<int>(brought->kind), nb::none(), brought->rewound, brought->skipped,
                          to_string(brought->status), text_of(brought->text));
  }

  nb::object step(std::uint64_t number, std::uint32_t epoch) {
    return object_of(handle_.call([&](Reader& reader) { return reader.step(number, epoch); }));
  }

  /// Those of these numbers that are kept.
  nb::list steps_of(const std::vector<std::uint64_t>& numbers) {
    std::vector<std::shared_ptr<const Step>> found;
    for_each_step(numbers, [&](std::shared_ptr<const Step> step) { found.push_back(std::move(step)); });
    nb::list list;
    for (auto& step : found) {
      list.append(object_of(std::move(step)));
    }
    return list;
  }

  nb::list steps() {
    return list_of(handle_.call([](Reader& reader) { return reader.steps(); }));
  }

  nb::tuple metadata(const std::vector<std::uint64_t>& numbers) {
    GatheredSteps gathered;
    for_each_step(numbers, [&](const std::shared_ptr<const Step>& step) { gathered.add(*step); });
    return gathered.to_python();
  }

  nb::dict info() {
    return dict_of(handle_.call([](Reader& reader) { return reader.info(); }));
  }

  void acknowledge(nb::handle step) {
    const Step& passed = step_of(step);
    handle_.call([&](Reader& reader) { return reader.acknowledge(passed); });
  }

  void seek(std::uint64_t step) {
    handle_.call([&](Reader& reader) { return reader.seek(step); });
  }

  std::uint64_t position() {
    return handle_.call([](Reader& reader) -> Result<std::uint64_t> { return reader.position(); });
  }

  void close() { handle_.close(); }

 private:
  // One call takes so many at a time, so that other threads' calls come in between.
  template <class Function>
  void for_each_step(std::span<const std::uint64_t> numbers, Function visit) {
    constexpr std::size_t steps_at_once = 1024;
    while (!numbers.empty()) {
      const auto some = numbers.first(std::min(numbers.size(), steps_at_once));
      handle_.call([&](Reader& reader) {
        return reader.for_each_step(some, [&](std::shared_ptr<const Step> step) -> Result<void> {
          visit(std::move(step));
          return {};
        });
      });
      numbers = numbers.subspan(some.size());
    }
  }

  const std::string stream_uuid_;
  const std::uint64_t first_step_;  // as it was opened
  const std::uint32_t first_step_epoch_;
  Handle<Reader> handle_;
};

// By which one thread ends what another one waits for. Lives at least from `enter` to `exit`, which belong to the
// latter.
class Cancellation {
 public:
  void enter() { Attention::given_up = &flag_; }
  void exit() { Attention::given_up = nullptr; }
  void cancel() { flag_.store(true); }

 private:
  std::atomic<bool> flag_ = false;
};

PythonReader* open_reader(const std::string& address, const std::string& verify, std::int64_t open_timeout_ms,
                          std::int64_t reconnect_timeout_ms, std::string consumer, const std::string& start,
                          const std::string& min_watermark, bool latest_only, const std::string& distribution,
                          bool follow, std::string run, bool wait_for_writer, std::uint64_t first_step,
                          std::uint32_t first_step_epoch, bool trust_writer, std::uint32_t rank, std::uint32_t ranks,
                          std::string ranks_source, std::string group, std::int64_t turn_timeout_ms,
                          const std::string& on_reader_lost, const std::string& on_unavailable, ServerPlace server) {
  const Address place = unwrap(parse_address(address));
  auto attention = std::make_shared<Attention>();
  ReaderOptions options;
  options.consumer = std::move(consumer);
  options.start = unwrap(parse_start(start));
  options.min_watermark = choice<Watermark>("min_watermark", min_watermark,
                                            {{"committed", Watermark::committed}, {"durable", Watermark::durable}});
  options.verify = choice<Verify>(
      "verify", verify,
      {{"auto", Verify::automatic}, {"none", Verify::none}, {"first", Verify::first}, {"read", Verify::read}});
  options.latest_only = latest_only;
  options.distribution = distribution_of(distribution);
  options.follow = follow;
  options.run = std::move(run);
  options.wait_for_writer = wait_for_writer;
  options.first_step = first_step;
  options.first_step_epoch = first_step_epoch;
  options.trust_writer = trust_writer;
  options.rank = rank;
  options.ranks = ranks;
  options.ranks_source = std::move(ranks_source);
  options.group = std::move(group);
  options.turn_timeout_ms = turn_timeout_ms;
  options.on_reader_lost = choice<OnReaderLost>("on_reader_lost", on_reader_lost,
                                                {{"end", OnReaderLost::end}, {"continue", OnReaderLost::go_on}});
  options.on_unavailable = choice<OnUnavailable>(
      "on_unavailable", on_unavailable,
      {{"wait", OnUnavailable::wait}, {"skip", OnUnavailable::skip}, {"error", OnUnavailable::error}});
  options.open_timeout_ms = open_timeout_ms;
  options.reconnect_timeout_ms = reconnect_timeout_ms;
  options.server = std::move(server);
  options.interrupt = Attention::hook(attention);
  Result<std::unique_ptr<Reader>> reader = [&] {
    const WithoutGil released;
    return Reader::open(place, options);
  }();
  return new PythonReader(unwrap(std::move(reader)), std::move(attention));
}

}  // namespace

StepDistribution distribution_of(std::string_view name) {
  return choice<StepDistribution>("distribution", name,
                                  {{"stream_default", StepDistribution::stream_default},
                                   {"all_to_all", StepDistribution::all_to_all},
                                   {"round_robin", StepDistribution::round_robin},
                                   {"on_demand", StepDistribution::on_demand}});
}

void bind_reader(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<Cancellation>(module, "Cancellation")
      .def(nb::init<>())
      .def("enter", &Cancellation::enter)
      .def("exit", &Cancellation::exit)
      .def("cancel", &Cancellation::cancel);
  nb::class_<PythonReader>(module, "Reader")
      .def_static("open", &open_reader, "address"_a, nb::kw_only(), "verify"_a, "open_timeout_ms"_a,
                  "reconnect_timeout_ms"_a, "consumer"_a = "", "start"_a = "cursor", "min_watermark"_a = "committed",
                  "latest_only"_a = false, "distribution"_a = "stream_default", "follow"_a = false, "run"_a = "",
                  "wait_for_writer"_a = false, "first_step"_a = 0, "first_step_epoch"_a = 0, "trust_writer"_a = false,
                  "rank"_a = 0, "ranks"_a = 1, "ranks_source"_a = "default", "group"_a = "", "turn_timeout_ms"_a = -1,
                  "on_reader_lost"_a = "end", "on_unavailable"_a = "wait", "server"_a)
      .def_prop_ro("stream_uuid", &PythonReader::stream_uuid)
      .def_prop_ro("first_step", &PythonReader::first_step)
      .def_prop_ro("first_step_epoch", &PythonReader::first_step_epoch)
      .def("next", &PythonReader::next, "timeout_ms"_a)
      .def("step", &PythonReader::step, "number"_a, "epoch"_a = 0)
      .def("steps_of", &PythonReader::steps_of, "numbers"_a)
      .def("steps", &PythonReader::steps)
      .def("metadata", &PythonReader::metadata, "numbers"_a)
      .def("info", &PythonReader::info)
      .def("acknowledge", &PythonReader::acknowledge, "step"_a)
      .def("seek", &PythonReader::seek, "step"_a)
      .def("position", &PythonReader::position)
      .def("close", &PythonReader::close);
}

}  // namespace forebay::python
