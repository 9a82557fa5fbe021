// SPDX-License-Identifier: Apache-2.0
#include "reader_engine.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "array_order.h"
#include "errors.h"
#include "open_context.h"
#include "parameters.h"
#include "python_gil.h"
#include "variable_selection.h"

namespace forebay::engine {
namespace {

// From this size on, other Python threads may run while a Get copies.
constexpr std::uint64_t long_read_bytes = 1 << 20;

std::int64_t to_milliseconds(float seconds) {
  return seconds < 0 ? -1 : static_cast<std::int64_t>(std::ceil(static_cast<double>(seconds) * 1000));
}

// How many elements fit where a Get shall write. ADIOS2's Python module allocates by the selection's size. For a single
// value over several steps it does so in some modes only, so the array itself is looked at. A pointer from C++ is the
// caller's.
template <class T>
std::uint64_t room_for(const adios2::Variable<T>& variable, const T* values) {
  if (!called_from_python()) return std::numeric_limits<std::uint64_t>::max();
  if (variable.ShapeID() != adios2::ShapeID::GlobalValue) return variable.SelectionSize();
  if (variable.SelectionSize() <= 1) return 1;
  return std::max<std::uint64_t>(1, python_buffer_bytes(values) / sizeof(T));
}

// Which of the kept steps a reader that does not follow gets.
Result<std::vector<std::uint64_t>> kept_steps(Reader& reader, const Start& start, bool latest_only) {
  const auto summaries = reader.steps();
  if (!summaries) return fail(summaries.error());
  std::vector<std::uint64_t> numbers;
  if (start.kind == Start::Kind::next) return numbers;
  for (const StepSummary& summary : *summaries) {
    if (start.kind != Start::Kind::step || summary.step >= start.step) numbers.push_back(summary.step);
  }
  const bool newest = latest_only || start.kind == Start::Kind::latest;
  if (newest && numbers.size() > 1) numbers.erase(numbers.begin(), numbers.end() - 1);
  return numbers;
}

// To look through the metadata of so many takes about a tenth of a second.
constexpr std::size_t offered_steps_max = 1'000;

// Says once in a process what ADIOS2 answers where they cannot.
bool facts_can_be_shown(adios2::IO io) {
  if (check_facts(io)) return true;
  static const bool warned = [] {
    std::cerr << "Forebay: Variable::Min, Max and Steps answer 0, because the plugin was not tested with this build of "
                 "ADIOS2. Engine::BlocksInfo is right. VariableFacts=false silences this line.\n";
    return true;
  }();
  return !warned;
}

bool is_finished(StreamStatus status) {
  return status == StreamStatus::ended || status == StreamStatus::interrupted || status == StreamStatus::failed;
}

// A step that was written anew since the ticket was made is another step.
void check_ticket(const Ticket& ticket, const std::string& uuid, std::uint32_t epoch) {
  if (uuid == ticket.uuid && epoch == ticket.epoch) return;
  throw std::runtime_error("Forebay: the step " + ticket.address.path() + "@" + std::to_string(*ticket.address.step) +
                           " of this ticket is gone; another was written in its place");
}

void check_ticket_of_stream(const Ticket& ticket, const std::string& uuid) {
  if (ticket.uuid.empty() || ticket.epoch || uuid == ticket.uuid) return;
  throw std::runtime_error("Forebay: the stream " + ticket.address.path() + " of this ticket, " + ticket.uuid +
                           ", was removed; the stream of this name is now " + uuid + ". Write a ticket for it.");
}

bool is_same_stream(const StreamInfo& left, const StreamInfo& right) {
  return left.uuid == right.uuid && left.epoch == right.epoch;
}

}  // namespace

ReaderEngine::ReaderEngine(adios2::IO io, const std::string& name, adios2::Mode mode)
    : PluginEngineInterface(io, name, mode) {
  check_selections(m_IO);
  const std::optional<OpenContext> open = current_open();
  const Settings settings = read_settings(
      m_IO.Parameters(), [](const char* variable) { return std::getenv(variable); },
      open ? open->engine : std::string());
  column_major_ = has_column_major_arrays(m_IO, settings.column_major);
  show_facts_ = settings.variable_facts;
  if (show_facts_) show_facts_ = facts_can_be_shown(m_IO);
  const Ticket ticket = stream_ticket(settings, name, open ? std::optional(open->name) : std::nullopt);
  const Address& address = ticket.address;
  path_ = address.path();
  consumer_ = settings.reader.consumer;
  // The ranks of one program need not all say the same.
  speaks_ =
      settings.rank.value_or(found_rank(open ? open->communicator : std::nullopt).value_or(LauncherRank{}).rank) == 0;
  const std::string notice = foreign_notice(settings, path_, false);
  if (!notice.empty() && speaks_) std::cerr << notice + "\n";
  AccessMode access = settings.access;
  if (open && access == AccessMode::automatic)
    access = open->mode == adios2::Mode::ReadRandomAccess ? AccessMode::random : AccessMode::streaming;
  ReaderOptions options = settings.reader;
  options.interrupt = interrupt_requested;
  options.server = stream_server(settings, address);
  if (access == AccessMode::random || address.step) options.follow = false;
  if (!options.follow && !consumer_.empty()) {
    throw std::invalid_argument("Forebay: Consumer=" + consumer_ + " keeps a position while it follows stream " +
                                path_ +
                                "; it cannot be combined with RandomAccess, Follow=false or the address of one step.");
  }
  take_reader_rank(settings, open ? open->communicator : std::nullopt, options);
  in_group_ = options.ranks > 1;
  options.lists = access == AccessMode::automatic;
  open_stream_ = OpenStream(path_, OpenStream::Side::reads, 0, identity_of(m_IO), settings.own_output);
  const std::string action = doing("opening") + " for reading";
  {
    const GilReleased others_run;
    reader_ = value_or_throw(Reader::open(address, options), action);
  }
  if (!ticket.uuid.empty()) {
    const GilReleased others_run;
    check_ticket_of_stream(ticket, value_or_throw(reader_->info(), action).uuid);
  }
  limited_ = !options.run.empty() || options.wait_for_writer;
  if (const std::string opened = original_name(settings, name, open ? std::optional(open->name) : std::nullopt);
      !opened.empty()) {
    const GilReleased others_run;
    check_original_name(settings, path_, value_or_throw(reader_->info(), action).original_name, opened);
  }
  if (options.follow) {
    finished_to_tell_ = speaks_ && !limited_ && is_finished(reader_->status_at_open());
    if (access == AccessMode::automatic) offer_finished_stream(settings);
    return;
  }
  std::vector<std::uint64_t> numbers;
  {
    const GilReleased others_run;
    if (address.step) {
      numbers.push_back(*address.step);
      const auto step = value_or_throw(reader_->step(*address.step), action);
      if (ticket.epoch) check_ticket(ticket, value_or_throw(reader_->info(), action).uuid, step->epoch());
    } else {
      numbers = value_or_throw(kept_steps(*reader_, options.start, options.latest_only), action);
    }
  }
  if (access == AccessMode::random) {
    offer_all_steps(numbers);
  } else {
    listed_.emplace(numbers.begin(), numbers.end());
    listed_steps_ = numbers.size();
  }
}

void ReaderEngine::show_variables(const std::vector<VariableInfo>& variables, const VariableMirror::FactsOf& facts) {
  variables_.show(m_IO, column_major_ ? reversed(variables) : variables, facts);
}

void ReaderEngine::offer_all_steps(const std::vector<std::uint64_t>& numbers) {
  {
    const GilReleased others_run;
    random_access_ = value_or_throw(RandomAccess::open(*reader_, numbers), doing("opening") + " for reading");
  }
  VariableMirror::FactsOf facts;
  if (show_facts_) {
    facts = [this](const VariableInfo& variable) {
      VariableFacts known = random_access_->facts(variable.name);
      if (column_major_) {
        for (VariableFacts::InStep& step : known.by_step) step.shape = reversed(step.shape);
      }
      return known;
    };
  }
  show_variables(random_access_->variables(), facts);
  attributes_.show(m_IO, random_access_->attributes());
  find_core_after_open();
}

void ReaderEngine::offer_finished_stream(const Settings& settings) {
  const ReaderOptions& reader = settings.reader;
  const bool told_how = !reader.consumer.empty() || reader.start.kind != Start::Kind::cursor || reader.latest_only ||
                        reader.distribution != StepDistribution::stream_default || limited_;
  if (told_how) return;
  const std::string action = doing("opening") + " for reading";
  std::vector<std::uint64_t> numbers;
  StreamInfo info;
  if (in_group_) {
    // All ranks decide by what their Open found. Whether all steps are durable it did not say.
    if (reader_->status_at_open() != StreamStatus::ended || reader.min_watermark == Watermark::durable) return;
    const GilReleased others_run;
    info.uuid = reader_->stream_uuid();
    info.epoch = reader_->epoch();
    numbers = value_or_throw(kept_steps(*reader_, reader.start, false), action);
  } else {
    const GilReleased others_run;
    info = value_or_throw(reader_->info(), action);
    if (info.status != StreamStatus::ended) return;
    numbers = value_or_throw(kept_steps(*reader_, reader.start, false), action);
    // A group that forms in between makes another stream of it.
    const StreamInfo after = value_or_throw(reader_->info(), action);
    if (after.status != StreamStatus::ended || !is_same_stream(info, after)) return;
    // With MinWatermark=durable, steps may still be on their way.
    if (numbers.size() != after.steps) return;
  }
  if (numbers.size() > offered_steps_max) {
    if (speaks_) {
      std::cerr << "Forebay: stream " + path_ + " has ended with " + std::to_string(numbers.size()) +
                       " steps, too many to examine at Open; it is read step by step. RandomAccess=true offers "
                       "them all at once.\n";
    }
    return;
  }
  offer_all_steps(numbers);
  offered_ = std::move(info);
  listed_.emplace(numbers.begin(), numbers.end());
  listed_steps_ = numbers.size();
}

void ReaderEngine::go_on_step_by_step() {
  const std::string action = doing("BeginStep of");
  StreamInfo now;
  {
    const GilReleased others_run;
    now = value_or_throw(reader_->info(), action);
  }
  if (!is_same_stream(*offered_, now)) {
    throw std::runtime_error("Forebay, " + action + ": the stream was replaced since it was opened; open it again");
  }
  variables_.keep(m_IO);
  if (core_ != nullptr) set_open_mode(m_IO, core_, adios2::Mode::Read);
  random_access_.reset();
  offered_.reset();
}

ReaderEngine::~ReaderEngine() {
  forget_after_call(after_open_);
}

void ReaderEngine::attach(void* core) {
  if (!show_facts_) return;
  core_ = core;
  variables_.attach(m_IO, core);
  if (random_access_) set_open_mode(m_IO, core, adios2::Mode::ReadRandomAccess);
}

void ReaderEngine::find_core() {
  if (core_ == nullptr && show_facts_) attach_to_core(m_IO, *this);
}

void ReaderEngine::find_core_after_open() {
  if (!called_from_python() || !show_facts_) return;
  after_open_ = run_after_call([this] { find_core(); });
  opened_in_python_thread_ = gettid() != getpid();
}

void ReaderEngine::tell_finished() const {
  std::cerr << "Forebay: stream " + path_ + " had no writer when this reader opened it (status " +
                   std::string(to_string(reader_->status_at_open())) +
                   "), so it begins with what an earlier writer left. To wait for a new writer, set Run or "
                   "WaitForWriter=true (docs/how-to/couple-an-mpi-code.md).\n";
}

adios2::StepStatus ReaderEngine::BeginStep(adios2::StepMode mode, float timeout_seconds) {
  if (offered_) {
    go_on_step_by_step();
    mode = adios2::StepMode::Read;  // for as long as the core engine's mode was ReadRandomAccess, ADIOS2 chose another
  }
  find_core();
  if (random_access_) throw_misuse(doing("BeginStep of"), "with RandomAccess there are no steps to begin");
  if (step_) {
    throw_misuse(
        doing("BeginStep of"),
        "BeginStep is called a second time without EndStep. ADIOS2's Python calls it in Stream.all_blocks_info: "
        "use stream.engine.all_blocks_info(name) there.");
  }
  if (mode != adios2::StepMode::Read) {
    throw std::invalid_argument("Forebay, " + doing("BeginStep of") + ": the stream is open for reading, not writing");
  }
  if (std::exchange(finished_to_tell_, false)) tell_finished();
  adios2::StepStatus status = adios2::StepStatus::EndOfStream;
  std::shared_ptr<const Step> step = unshown_;
  if (!step) {
    const GilReleased others_run;
    step = listed_ ? next_listed(status) : follow(timeout_seconds, status);
  }
  if (!step) {
    if (status != adios2::StepStatus::NotReady) variables_.show(m_IO, {}, {});
    return status;
  }
  // If showing it throws, it is this step again that the next BeginStep is about.
  unshown_ = step;
  VariableMirror::FactsOf facts;
  if (show_facts_) facts = [&](const VariableInfo& variable) { return facts_of(*step, variable); };
  show_variables(step->variables(), facts);
  attributes_.show(m_IO, step->attributes());
  unshown_.reset();
  current_step_ = step->number();
  step_ = std::move(step);
  return adios2::StepStatus::OK;
}

std::shared_ptr<const Step> ReaderEngine::follow(float timeout_seconds, adios2::StepStatus& status) {
  using Clock = std::chrono::steady_clock;
  const std::int64_t timeout_ms = to_milliseconds(timeout_seconds);
  const Clock::time_point begin = Clock::now();
  std::int64_t left_ms = timeout_ms;
  for (;;) {
    Result<NextStep> next = reader_->next(left_ms);
    if (!next) {
      if (next.error().code != ErrorCode::cancelled) throw_error(next.error(), doing("BeginStep of"));
      // Ctrl-C: Python raises it as soon as this call returns.
      status = adios2::StepStatus::NotReady;
      return nullptr;
    }
    switch (next->kind) {
      case NextStep::Kind::step:
        return next->step;
      case NextStep::Kind::not_ready:
        status = adios2::StepStatus::NotReady;
        return nullptr;
      case NextStep::Kind::end_of_stream:
        status = adios2::StepStatus::EndOfStream;
        if (next->status != StreamStatus::ended) {
          status = adios2::StepStatus::OtherError;
          // A StepStatus has no text, and nobody should have to guess; an application may ask again and again.
          if (!std::exchange(failure_told_, true))
            std::cerr << "Forebay: stream " + path_ + " is " + std::string(to_string(next->status)) + ": " +
                             next->text + "\n";
        }
        return nullptr;
      case NextStep::Kind::notice:
        // It says how long the wait may be that begins now, for what, or which steps do not come.
        if (!next->text.empty())
          std::cerr << "Forebay: stream " + path_ + " is " + std::string(to_string(next->status)) + ": " + next->text +
                           "\n";
        break;
    }
    if (timeout_ms < 0) continue;
    const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin).count();
    left_ms = std::max<std::int64_t>(0, timeout_ms - waited);
  }
}

std::shared_ptr<const Step> ReaderEngine::next_listed(adios2::StepStatus& status) {
  status = adios2::StepStatus::EndOfStream;
  while (!listed_->empty()) {
    auto step = reader_->step(listed_->front());
    if (step) {
      listed_->pop_front();
      return *step;
    }
    const ErrorCode code = step.error().code;
    if (code == ErrorCode::cancelled) {
      status = adios2::StepStatus::NotReady;
      return nullptr;
    }
    // Where ranks read together, another one may have got it: none of them leaves it out.
    const bool gone = code == ErrorCode::step_gone || code == ErrorCode::not_found;
    if (in_group_ || !gone) throw_error(step.error(), doing("BeginStep of"));
    listed_->pop_front();
  }
  return nullptr;
}

void ReaderEngine::EndStep() {
  if (!step_) throw_misuse(doing("EndStep of"), "EndStep is called without a successful BeginStep");
  const std::shared_ptr<const Step> step = std::exchange(step_, nullptr);
  blocks_info_.release();
  if (consumer_.empty()) return;
  Result<void> acknowledged;
  {
    const GilReleased others_run;
    acknowledged = reader_->acknowledge(*step);
  }
  if (!acknowledged && acknowledged.error().code != ErrorCode::cancelled) {
    throw_error(acknowledged.error(), doing("EndStep of"));
  }
}

std::size_t ReaderEngine::CurrentStep() const {
  note_reached(const_cast<ReaderEngine*>(this));
  return current_step_;
}

std::size_t ReaderEngine::Steps() const {
  const_cast<ReaderEngine*>(this)->find_core();  // ADIOS2 declares it const
  if (random_access_) return random_access_->steps();
  if (listed_) return listed_steps_;
  if (!reader_) return 0;
  const GilReleased others_run;
  const std::string action = doing("asking for the steps of");
  if (limited_) return value_or_throw(reader_->steps(), action).size();
  return value_or_throw(reader_->info(), action).steps;
}

std::shared_ptr<const Step> ReaderEngine::step_for(const std::string& name, std::size_t index, const char* call) const {
  if (random_access_) {
    return value_or_throw(random_access_->step(name, index),
                          [&] { return std::string(call) + " " + name + " of stream " + path_; });
  }
  if (!step_) {
    throw_misuse(std::string(call) + " " + name + " of stream " + path_,
                 "it belongs between BeginStep and EndStep. To read without steps, open a stream that has ended, or "
                 "set RandomAccess=true.");
  }
  return step_;
}

template <class T>
void ReaderEngine::get(const adios2::Variable<T>& variable, T* values, const adios2::core::Selection* with_get) {
  const std::string name = variable.Name();
  const Selected selected{with_get != nullptr ? *with_get : selection_of(variable), with_get != nullptr, column_major_};
  const std::size_t first = random_access_ ? selected.selection.GetStepStart() : 0;
  const std::size_t steps = random_access_ ? selected.selection.GetStepCount() : 1;
  find_core();
  std::uint64_t room = room_for(variable, values);
  for (std::size_t i = 0; i < steps; ++i) {
    const std::size_t copied = get_step(*step_for(name, first + i, "Get of"), name, selected, room, values);
    values += copied;
    room -= copied;
  }
}

#define FOREBAY_INSTANTIATE(T) \
  template void ReaderEngine::get(const adios2::Variable<T>&, T*, const adios2::core::Selection*);
ADIOS2_FOREACH_STDTYPE_1ARG(FOREBAY_INSTANTIATE)
#undef FOREBAY_INSTANTIATE

template <class T>
std::size_t ReaderEngine::get_step(const Step& step, const std::string& name, const Selected& selected,
                                   std::uint64_t room, T* values) {
  const auto action = [&] { return "Get of " + name + " from stream " + path_; };
  const VariableInfo* variable = step.find(name);
  if (variable == nullptr) {
    throw std::invalid_argument("Forebay, " + action() + ": step " + std::to_string(step.number()) +
                                " does not have it; InquireVariable tells which variables a step has");
  }
  if (variable->type != *data_type_of<T>) {
    throw std::invalid_argument("Forebay, " + action() + ": in step " + std::to_string(step.number()) +
                                " it is of type " + std::string(to_string(variable->type)) +
                                "; inquire it again in each step");
  }
  tell_fault(step, *variable);
  const std::uint64_t elements = selected_elements(*variable, selected);
  if (elements > room) {
    throw std::invalid_argument("Forebay, " + action() +
                                ": the selection is larger than what ADIOS2's Python module has " +
                                "allocated for it. Read one step at a time; give start and count with a block.");
  }
  if constexpr (std::is_same_v<T, std::string>) {
    *values = value_or_throw(read_selected_string(step, *variable, selected), action);
    return 1;
  } else {
    std::optional<GilReleased> others_run;
    if (elements * sizeof(T) >= long_read_bytes) others_run.emplace();
    return value_or_throw(read_selection(step, *variable, selected, values), action);
  }
}

void ReaderEngine::tell_fault(const Step& step, const VariableInfo& variable) {
  if (variable.kind != ShapeKind::global_array || !variable.conflict.empty()) return;
  if (variable.blocks.size() == 1 && variable.blocks.front().count == variable.shape) return;
  if (!looked_at_.insert(variable.name).second) return;
  const std::string fault = fault_of(variable);
  if (!fault.empty() && speaks_)
    std::cerr << "Forebay: variable " + shown_name(variable.name) + " of stream " + path_ + ", step " +
                     std::to_string(step.number()) + ": " + fault + "\n";
}

adios2::MinVarInfo* ReaderEngine::MinBlocksInfo(const std::string& name, std::size_t index) const {
  if (random_access_ && core_ == nullptr && opened_in_python_thread_) {
    const_cast<ReaderEngine*>(this)->find_core();
    // Only then ADIOS2's Python module passes on steps. The call that runs after Open is for the main thread.
    if (core_ != nullptr && index == 0 && random_access_->steps_with(name) > 1) {
      throw std::runtime_error("Forebay, BlocksInfo of " + name + " of stream " + path_ +
                               ": ADIOS2's Python module did not say which step it asks about; ask again");
    }
  }
  // As BP5 answers for a step that others have and this variable has not.
  if (random_access_ && index < random_access_->steps() && index >= random_access_->steps_with(name))
    return std::make_unique<adios2::MinVarInfo>(0, nullptr).release();
  const std::shared_ptr<const Step> step = step_for(name, index, "BlocksInfo of");
  const std::string action = "BlocksInfo of " + name + " of stream " + path_;
  const VariableInfo* variable = step->find(name);
  if (variable == nullptr) {
    throw std::invalid_argument("Forebay, " + action + ": step " + std::to_string(step->number()) +
                                " does not have it; InquireVariable tells which variables a step has");
  }
  const std::size_t label = random_access_ ? index : step->number();
  return value_or_throw(blocks_info_.make(step, *variable, label, column_major_), action);
}

void ReaderEngine::DoClose(int) {
  if (!reader_) return;
  forget_after_call(std::exchange(after_open_, 0));
  variables_.clear(m_IO);
  step_.reset();
  unshown_.reset();
  blocks_info_.release();
  const GilReleased others_run;
  random_access_.reset();
  reader_.reset();
  open_stream_ = OpenStream();
}

}  // namespace forebay::engine
