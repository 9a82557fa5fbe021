// SPDX-License-Identifier: Apache-2.0
#include "writer_engine.h"

#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include <forebay/admin.h>

#include "array_order.h"
#include "attribute_list.h"
#include "errors.h"
#include "manager_call.h"
#include "open_context.h"
#include "python_gil.h"
#include "struct_variables.h"
#include "variable_selection.h"

namespace forebay::engine {
namespace {

// From this size on, other Python threads may run while a block is written.
constexpr std::uint64_t long_write_bytes = 1 << 20;

ShapeKind kind_of(adios2::ShapeID shape_id, const std::string& name) {
  switch (shape_id) {
    case adios2::ShapeID::GlobalValue:
      return ShapeKind::global_value;
    case adios2::ShapeID::GlobalArray:
      return ShapeKind::global_array;
    case adios2::ShapeID::JoinedArray:
      return ShapeKind::joined_array;
    case adios2::ShapeID::LocalValue:
      return ShapeKind::local_value;
    case adios2::ShapeID::LocalArray:
      return ShapeKind::local_array;
    case adios2::ShapeID::Unknown:
      break;
  }
  throw std::invalid_argument("Forebay, Put of " + shown_name(name) +
                              ": the variable has no known shape; define it as a value or with shape, start and count");
}

// Asks the server that the writer will write to.
std::unique_ptr<Admin> admin_of(const Address& address, const WriterOptions& options, const std::string& action) {
  ServerPlace place = value_or_throw(ServerPlace::of(address, options.server), action);
  place = value_or_throw(home_of(place, address.reservation, options.interrupt), action);
  return value_or_throw(Admin::connect_to(std::move(place), options.interrupt), action);
}

// True if opening makes the stream, or makes it anew. What rank 0 asks for holds for the group, so ranks need not see
// the same.
bool begins_anew(const Address& address, const WriterOptions& options) {
  if (options.mode == WriteMode::replace) return true;
  const std::string action = "looking up stream " + address.path();
  const auto admin = admin_of(address, options, action);
  const Result<StreamInfo> stream = admin->stream(address);
  if (!stream && stream.error().code != ErrorCode::not_found) throw_error(stream.error(), action);
  return !stream;
}

// AppendAfterSteps counts steps; the stream wants the number of the last one to keep.
void resolve_append_after(const Settings& settings, const Address& address, WriterOptions& options) {
  if (options.append_after) return;
  if (!settings.append_after_steps || *settings.append_after_steps == -1) return;
  const std::string action = "looking up stream " + address.path() + " for AppendAfterSteps";
  const auto admin = admin_of(address, options, action);
  const Result<StreamInfo> stream = admin->stream(address);
  if (!stream && stream.error().code != ErrorCode::not_found) throw_error(stream.error(), action);
  const std::uint64_t available = stream && stream->committed ? *stream->committed + 1 : 0;
  const std::uint64_t kept = steps_to_keep(*settings.append_after_steps, available);
  if (kept == 0) {
    options.mode = WriteMode::replace;
  } else if (kept < available) {
    options.append_after = kept - 1;
  }
}

// The rule that rank 0 passes on to the manager; none on other ranks.
std::optional<StageOutRule> stage_out_rule(const Settings& settings, const Address& address,
                                           const WriterOptions& options) {
  if (!settings.stage_out_rule || settings.stage_out_rule->empty() || options.rank != 0) return std::nullopt;
  const std::string action = "passing on StageOutRule of stream " + address.path();
  const auto admin = admin_of(address, options, action);
  // A server that is named by host and port may be that of this node.
  if (value_or_throw(admin->ping(1, 0), action).transport != "local") {
    throw std::invalid_argument("Forebay, " + action +
                                ": the server is on another node, and its manager takes rules there only; use `forebay "
                                "create --stage-out`, or `forebay stage-out --follow`, on that node");
  }
  return StageOutRule{value_or_throw(admin->server(), action).root, address.path(), *settings.stage_out_rule};
}

// Turns the dimensions around, in `place`, which may hold them already.
void reverse(std::span<const std::uint64_t>& dimensions, adios2::Dims& place) {
  place = adios2::Dims(dimensions.rbegin(), dimensions.rend());
  dimensions = place;
}

const char* environment(const char* variable) {
  return std::getenv(variable);
}

// Readers that wait for a writer which does not come, because its parameters are wrong, are told why. What is wrong may
// be the address itself: then nobody can be told.
void tell_readers(adios2::IO io, const std::string& name, std::string_view why) noexcept try {
  const Settings settings = read_place(io.Parameters(), environment);
  const std::optional<OpenContext> open = current_open();
  const Address address = stream_address(settings, name, open ? std::optional(open->name) : std::nullopt);
  WriterOptions options;
  options.server = stream_server(settings, address);
  options.run = settings.writer.run;
  try {
    take_rank(settings, open ? open->communicator : std::nullopt, options);
  } catch (const std::exception&) {
    options.ranks = 0;  // not known
  }
  constexpr std::string_view prefix = "Forebay: ";
  if (why.starts_with(prefix)) why.remove_prefix(prefix.size());
  const GilReleased others_run;
  // The error that is thrown is the one to report.
  (void)Writer::report_refused(address, options, why);
} catch (const std::exception&) {
}

}  // namespace

WriterEngine::WriterEngine(adios2::IO io, const std::string& name, adios2::Mode mode)
    : PluginEngineInterface(io, name, mode) {
  Settings settings;
  Address address;
  WriterOptions options;
  try {
    check_selections(m_IO);
    const std::optional<OpenContext> open = current_open();
    settings = read_settings(m_IO.Parameters(), environment, open ? open->engine : std::string());
    std::tie(address, options) = prepare(settings, name, mode);
    refuse_structs();
  } catch (const std::exception& error) {
    tell_readers(m_IO, name, error.what());
    throw;
  }
  attributes_each_step_ = settings.attributes_each_step;
  ignores_operators_ = settings.ignore_operators;
  column_major_ = has_column_major_arrays(m_IO, settings.column_major);
  const std::string action = doing("opening") + " for writing";
  const GilReleased others_run;
  if (mode == adios2::Mode::Append || options.append_after) resolve_append_after(settings, address, options);
  replaces_ = options.mode == WriteMode::replace;
  if (settings.retention_if_new && begins_anew(address, options)) options.retention = settings.retention_if_new;
  const auto rule = stage_out_rule(settings, address, options);
  // Before anything is replaced.
  if (rule) value_or_throw(check_stage_out(*rule, options.reconnect_timeout_ms, options.interrupt), action);
  writer_ = value_or_throw(Writer::open(address, options), action);
  // Not before: the stage of a stream that is replaced would end with the old one.
  if (rule) value_or_throw(begin_stage_out(*rule, options.reconnect_timeout_ms, options.interrupt), action);
  if (!replaces_ && options.rank == 0 && !writer_->interruption().empty())
    std::cerr << "Forebay: stream " + path_ +
                     " continues; the group that wrote it before was interrupted: " + writer_->interruption() + "\n";
}

std::pair<Address, WriterOptions> WriterEngine::prepare(const Settings& settings, const std::string& name,
                                                        adios2::Mode mode) {
  const std::optional<OpenContext> open = current_open();
  const std::optional<std::string> opened_name = open ? std::optional(open->name) : std::nullopt;
  Address address = stream_address(settings, name, opened_name);
  path_ = address.path();
  if (address.step) {
    throw std::invalid_argument("Forebay: stream " + path_ + "@" + std::to_string(*address.step) +
                                " names one step; that is for reading. Write to " + path_ + ".");
  }
  WriterOptions options = settings.writer;
  options.interrupt = interrupt_requested;
  options.server = stream_server(settings, address);
  options.original_name = original_name(settings, name, opened_name);
  take_rank(settings, open ? open->communicator : std::nullopt, options);
  options.mode = mode == adios2::Mode::Append || options.append_after ? WriteMode::append : WriteMode::replace;
  ranks_ = options.ranks;
  rank_ = options.rank;
  open_stream_ = OpenStream(path_, OpenStream::Side::writes, options.rank, identity_of(m_IO), settings.own_output);
  if (const std::string notice = foreign_notice(settings, path_, true); options.rank == 0 && !notice.empty())
    std::cerr << notice + "\n";
  return {std::move(address), std::move(options)};
}

WriterEngine::~WriterEngine() {
  // A program that an exception ends says why itself.
  if (writer_ && std::uncaught_exceptions() == 0) open_stream_.tell_not_closed();
}

adios2::StepStatus WriterEngine::BeginStep(adios2::StepMode mode, float) {
  if (in_step_) {
    throw_misuse(doing("BeginStep of"), implicit_step_ ? "a Put without BeginStep has begun a step; call EndStep first"
                                                       : "BeginStep is called a second time without EndStep");
  }
  if (mode == adios2::StepMode::Read) {
    throw std::invalid_argument("Forebay, " + doing("BeginStep of") + ": the stream is open for writing, not reading");
  }
  begin(false);
  return in_step_ ? adios2::StepStatus::OK : adios2::StepStatus::NotReady;
}

void WriterEngine::refuse_structs() {
  const std::size_t variables = count_variables(m_IO);
  if (std::exchange(variables_seen_, variables) == variables) return;
  const std::optional<std::string> name = find_struct_variable(m_IO);
  if (!name) return;
  variables_seen_ = 0;
  const std::string what = "variable " + shown_name(*name) +
                           " is of struct type, which ADIOS2 does not hand to plugin engines. Write a variable for "
                           "each member.";
  if (writer_) writer_->note_failure(what);
  throw std::invalid_argument("Forebay, " + doing("writing") + ": " + what);
}

void WriterEngine::refuse_operators(const std::string& name, const std::vector<adios2::Operator>& operators) {
  const std::string type = operators.front().Type();
  if (!ignores_operators_) {
    throw std::invalid_argument("Forebay, Put of " + shown_name(name) + ": it has the operator " + type +
                                ", which a plugin engine cannot run. Remove `<operation type=\"" + type +
                                "\"/>` from the XML or AddOperation from the program, or set Operators=ignore to store "
                                "the elements as they are.");
  }
  if (std::exchange(told_operators_, true) || rank_ != 0) return;
  std::cerr << "Forebay: stream " + path_ + ": operators of variables are ignored (Operators=ignore), first " + type +
                   " of " + shown_name(name) + "; elements are stored as they are\n";
}

void WriterEngine::begin(bool implicit) {
  if (!broken_.empty()) throw std::runtime_error(broken_);
  refuse_structs();
  Result<std::uint64_t> step;
  {
    const GilReleased others_run;
    step = writer_->begin_step();
  }
  if (!step) {
    if (cancelled(step.error()) && !implicit) return;
    begin_failed_ = true;
    note(step.error());
    throw_error(step.error(), doing("BeginStep of"));
  }
  in_step_ = stepped_ = true;
  begin_failed_ = false;
  implicit_step_ = implicit;
  incomplete_.clear();
  handled_before_ = HandledException::now();
  thrown_before_ = std::uncaught_exceptions();
  open_stream_.note_step(*step);
}

template <class T>
void WriterEngine::put(const adios2::Variable<T>& variable, const T* values) try {
  const std::string name = variable.Name();
  const ShapeKind kind = kind_of(variable.ShapeID(), name);
  if (const auto operators = variable.Operations(); !operators.empty()) refuse_operators(name, operators);
  if (!in_step_) {
    if (stepped_) throw_misuse("Put of " + shown_name(name), "Put belongs between BeginStep and EndStep");
    begin(true);
  }
  if constexpr (std::is_same_v<T, std::string>) {
    check_put(writer_->put_string(name, kind, *values), name);
  } else {
    BlockSpec block;
    block.name = name;
    block.type = *data_type_of<T>;
    block.kind = kind;
    adios2::Dims shape, start, count, memory_start, memory_count;
    adios2::core::Selection selection;
    if (kind != ShapeKind::global_value && kind != ShapeKind::local_value) {
      if (kind != ShapeKind::local_array) block.shape = shape = variable.Shape();
      selection = selection_of(variable);
      if (selection.GetSelectionType() == adios2::SelectionType::BoundingBox && !selection.HasBlockSelection()) {
        // The same as Start() and Count(), which copy once more.
        if (kind == ShapeKind::global_array) block.start = selection.GetStart();
        block.count = selection.GetCount();
      } else {
        if (kind == ShapeKind::global_array) block.start = start = variable.Start();
        block.count = count = variable.Count();
      }
      if (selection.HasMemorySelection()) {
        block.memory_start = selection.GetMemoryStart();
        block.memory_count = selection.GetMemoryCount();
      }
      if (column_major_) {
        reverse(block.shape, shape);
        reverse(block.start, start);
        reverse(block.count, count);
        reverse(block.memory_start, memory_start);
        reverse(block.memory_count, memory_count);
      }
    }
    Result<void> result;
    {
      std::optional<GilReleased> others_run;
      if (element_count(block.count) * sizeof(T) >= long_write_bytes) others_run.emplace();
      result = writer_->put(block, values);
    }
    check_put(result, name);
  }
} catch (const std::bad_alloc&) {
  incomplete_ = "no memory";
  throw;
}

#define FOREBAY_INSTANTIATE(T) template void WriterEngine::put(const adios2::Variable<T>&, const T*);
ADIOS2_FOREACH_STDTYPE_1ARG(FOREBAY_INSTANTIATE)
#undef FOREBAY_INSTANTIATE

void WriterEngine::refuse_span(const std::string& name) {
  throw std::invalid_argument(
      "Forebay, Put of " + shown_name(name) +
      ": ADIOS2's plugin interface cannot hand out a Span (its data would be null). Use Put with a "
      "pointer; to compute in place, use Forebay's own Python or C++ interface (allocate).");
}

void WriterEngine::check_put(const Result<void>& result, const std::string& variable) {
  if (result) return;
  note(result.error());
  const std::string action = "Put of " + shown_name(variable) + " to stream " + path_;
  if (result.error().code != ErrorCode::invalid_argument) incomplete_ = action + ": " + result.error().message();
  if (!cancelled(result.error())) throw_error(result.error(), action);
}

void WriterEngine::EndStep() {
  if (!in_step_) throw_misuse(doing("EndStep of"), "EndStep is called without BeginStep");
  if (!broken_.empty()) throw std::runtime_error(broken_);
  if (!incomplete_.empty()) {
    abort_step();
    throw std::runtime_error("Forebay, " + doing("EndStep of") +
                             ": the step is aborted because it is incomplete: " + incomplete_);
  }
  Result<void> result;
  if (attributes_due_) result = attributes_.send_changes(m_IO, *writer_);
  if (result) attributes_due_ = attributes_each_step_;
  if (result) {
    const GilReleased others_run;
    result = writer_->end_step();
  }
  if (!result) {
    note(result.error());
    // First, while the step still counts as open: where the call was interrupted, its fate is unknown.
    const bool stopped = cancelled(result.error());
    abort_step();
    if (!stopped) throw_error(result.error(), doing("EndStep of"));
  }
  step_over();
}

void WriterEngine::step_over() {
  in_step_ = false;
  handled_before_ = HandledException();
  open_stream_.note_step(std::nullopt);
}

void WriterEngine::abort_step() {
  step_over();
  if (broken_.empty() && writer_->in_step()) {
    const GilReleased others_run;
    if (auto aborted = writer_->abort_step(); !aborted) note(aborted.error());
  }
}

bool WriterEngine::cancelled(const Error& error) {
  if (error.code != ErrorCode::cancelled) return false;
  if (in_step_)
    broken_ = "Forebay: a call to stream " + path_ +
              " was interrupted; whether the step committed is unknown. Open it again.";
  return true;
}

void WriterEngine::note(const Error& error) {
  switch (error.code) {
    case ErrorCode::group_broken:
    case ErrorCode::fenced:
    case ErrorCode::disconnected:
    case ErrorCode::failed:
    case ErrorCode::protocol:
      broken_ = "Forebay: stream " + path_ + " cannot be written any more: " + error.message();
      break;
    default:
      break;
  }
}

std::size_t WriterEngine::CurrentStep() const {
  return writer_ ? writer_->current_step() : 0;
}

std::size_t WriterEngine::Steps() const {
  return CurrentStep();
}

void WriterEngine::DoClose(int) {
  if (!writer_) return;
  // As BP5 does it: what was defined without any step becomes one step, in which all ranks take part.
  if (!stepped_ && replaces_ && broken_.empty() && (ranks_ > 1 || has_attributes(m_IO))) begin(true);
  // A step that is open because the program is failing right now is no whole step.
  const HandledException handled = HandledException::now();
  const bool failing =
      std::uncaught_exceptions() > thrown_before_ || (handled.is_there() && !handled.is_same(handled_before_));
  if (in_step_ && (implicit_step_ || !failing) && broken_.empty()) EndStep();
  // Nor is a stream whole if what ends the program is that its next step could not begin.
  const bool whole = !in_step_ && broken_.empty() && !(begin_failed_ && failing);
  if (!whole && failing) writer_->note_failure(handled.text());
  Result<void> result;
  {
    const GilReleased others_run;
    if (whole) result = writer_->close();
    writer_.reset();
    open_stream_ = OpenStream();
  }
  in_step_ = false;
  if (!result && !cancelled(result.error())) throw_error(result.error(), doing("closing"));
}

}  // namespace forebay::engine
