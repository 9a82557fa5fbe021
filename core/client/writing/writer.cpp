// SPDX-License-Identifier: Apache-2.0
// The public calls of Writer and the checks that they make.
#include <algorithm>
#include <exception>

#include <forebay/reader.h>
#include <forebay/writer.h>

#include "base/bounds.h"
#include "base/plain_text.h"
#include "base/process_identity.h"
#include "base/return_error.h"
#include "base/uuid.h"
#include "client/connection/pause.h"
#include "client/connection/pool.h"
#include "client/connection/reconnect.h"
#include "client/reading/boxes.h"
#include "client/segments/client_device.h"
#include "client/writing/writer_impl.h"
#include "client/writing/writer_rejoin.h"
#include "protocol/record_conversion.h"
#include "protocol/step_metadata.h"

namespace forebay {

using client::Extents;
using protocol::MessageType;

namespace {

constexpr std::size_t name_bytes_max = 4096;
// A refusal is not held up by a server that does not answer.
constexpr std::int64_t report_timeout_ms = 2'000;
// A server that is away is looked for again after so long.
constexpr std::int64_t server_pause_ms = 50;

tl::unexpected<Error> invalid(const BlockSpec& block, std::string what) {
  return fail(ErrorCode::invalid_argument, std::move(what), "variable " + shown_name(block.name));
}

bool is_single_value(ShapeKind kind) {
  return kind == ShapeKind::global_value || kind == ShapeKind::local_value;
}

Result<void> check_joined(const BlockSpec& block) {
  if (block.shape.size() != block.count.size() || std::ranges::count(block.shape, joined_dimension) != 1) {
    return invalid(
        block, "a joined array's shape has one dimension for each of the block's, and exactly one of them is joined");
  }
  for (std::size_t d = 0; d < block.shape.size(); ++d) {
    if (block.shape[d] != joined_dimension && block.shape[d] != block.count[d]) {
      return invalid(block, "the block's extents must be the shape's in all dimensions but the joined one");
    }
  }
  return {};
}

/// After a restart of the server: those of the group that it expects back whose processes ran on this node, and do no
/// more. On another node the server cannot look for them.
Result<std::vector<std::string>> gone_processes(client::Connection& connection, const Address& address,
                                                Deadline deadline) {
  wire::RanksMissingT request;
  request.reservation = address.reservation;
  request.stream = address.stream;
  ASSIGN_OR_RETURN(const auto answer,
                   connection.call(MessageType::ranks_missing, request, MessageType::ranks_missing_answer, deadline));
  ASSIGN_OR_RETURN(const auto body, protocol::body_of<wire::RanksMissingAnswer>(answer));
  std::vector<std::string> gone;
  if (body->processes() == nullptr) return gone;
  for (const flatbuffers::String* process : *body->processes()) {
    if (process_has_ended(process->string_view())) gone.push_back(process->str());
  }
  return gone;
}

}  // namespace

Writer::Impl::Impl(Address address_, WriterOptions options_)
    : address(std::move(address_)),
      options(std::move(options_)),
      segments(client::client_device()),
      allocated(segments, space),
      blocks(segments, options.checksums, options.statistics) {}

void Writer::Impl::give_up() noexcept {
  given_up = true;
  open_writer.end();
  state = State::between_steps;
  connection->give_up();
  if (holder) holder->give_up();
  // The step may have committed: what the program holds of it stays pinned.
  if (part_pin) allocated.keep_while_held(part_pin);
}

void Writer::Impl::write_remotely() {
  remote = std::make_shared<client::RemoteSpace>();
}

std::string Writer::Impl::where() const {
  const bool open = state == State::in_step || state == State::publishing;
  return "stream " + address.path() + ", step " + std::to_string(open ? number : step);
}

Result<void> Writer::Impl::check_usable() const {
  RETURN_IF_ERROR(opening_process.check());
  if (given_up)
    return fail(
        ErrorCode::group_broken,
        "this process ran out of memory, so the writer closed its connection and its group is interrupted; what "
        "was committed is safe; open the stream again to continue",
        "stream " + address.path());
  if (ended_by) return fail(*ended_by);
  if (state == State::closed)
    return fail(ErrorCode::invalid_argument, "the writer is closed; open the stream again", "stream " + address.path());
  return {};
}

Result<void> Writer::Impl::check_in_step() const {
  RETURN_IF_ERROR(check_usable());
  if (state == State::in_step) return {};
  if (state == State::publishing)
    return fail(ErrorCode::invalid_argument,
                "the step is being published; call end_step again to learn whether it committed", where());
  return fail(ErrorCode::invalid_argument, "no step is open; call begin_step first", where());
}

Result<void> Writer::Impl::check_step_whole() const {
  RETURN_IF_ERROR(check_in_step());
  if (!step_error) return {};
  return fail(step_error->code,
              "this step can only be aborted (abort_step), because part of it failed: " + step_error->what, where());
}

Result<std::uint64_t> Writer::Impl::check_block(const BlockSpec& block) const {
  if (block.name.empty() || block.name.size() > name_bytes_max)
    return invalid(block, "a variable's name has 1 to 4096 bytes");
  if (!is_valid(block.type)) return invalid(block, "unknown element type");
  if (is_single_value(block.kind)) {
    if (!block.shape.empty() || !block.start.empty() || !block.count.empty())
      return invalid(block, "a single value has no dimensions");
    if (block.type == DataType::string) return invalid(block, "strings are written with put_string");
    return element_size(block.type);
  }
  if (block.type == DataType::string) return invalid(block, "strings can only be single values");
  if (block.count.empty() || block.count.size() > protocol::dimensions_max)
    return invalid(block, "an array has 1 to 32 dimensions");
  switch (block.kind) {
    case ShapeKind::global_array: {
      auto checked = client::check_box(block.start, block.count, block.shape, "the block");
      if (!checked) return invalid(block, std::move(checked.error().what));
      break;
    }
    case ShapeKind::joined_array:
      RETURN_IF_ERROR(check_joined(block));
      break;
    case ShapeKind::local_array:
      if (!block.shape.empty()) return invalid(block, "a local array has no shape");
      break;
    default:
      return invalid(block, "unknown shape kind");
  }
  if (block.kind != ShapeKind::global_array && !block.start.empty())
    return invalid(block, "only blocks of global arrays have a start");
  if (!block.memory_count.empty() || !block.memory_start.empty()) {
    auto checked = client::check_box(block.memory_start, block.count, block.memory_count, "the memory selection");
    if (!checked) return invalid(block, std::move(checked.error().what));
    if (!checked_bytes(block.memory_count, element_size(block.type)))
      return invalid(block, "the memory selection's array is too large");
  }
  const auto bytes = checked_bytes(block.count, element_size(block.type));
  if (!bytes) return invalid(block, "the block's size overflows");
  return *bytes;
}

Result<void> Writer::Impl::check_against_step(const BlockSpec& block) {
  const auto known = metadata.find(block.name);
  if (!known) return {};
  if (known->type != block.type) {
    return invalid(block, "was written as " + std::string(to_string(known->type)) + " earlier in this step, now as " +
                              std::string(to_string(block.type)));
  }
  if (known->kind != block.kind) {
    return invalid(block, "was written as " + std::string(to_string(known->kind)) + " earlier in this step, now as " +
                              std::string(to_string(block.kind)));
  }
  if (known->dimensions != block.count.size()) {
    return invalid(block, "has another number of dimensions than earlier in this step");
  }
  // The blocks written before lie within a shape that has grown as well.
  const bool grown =
      block.kind == ShapeKind::global_array && std::ranges::equal(known->shape, block.shape, std::ranges::less_equal{});
  if (!grown && !std::ranges::equal(known->shape, block.shape)) {
    return invalid(
        block, "has another shape than earlier in this step; only a global array's shape may change, and only grow");
  }
  return {};
}

protocol::StepMetadataBuilder::Variable Writer::Impl::variable_of(const BlockSpec& block) const {
  return {block.name, block.type, block.kind, block.count.size(), block.shape};
}

Result<void> Writer::Impl::inherit_attributes() {
  ReaderOptions reading;
  reading.follow = false;
  reading.server = connection->place();
  reading.interrupt = options.interrupt;
  reading.open_timeout_ms = options.open_timeout_ms;
  reading.reconnect_timeout_ms = options.reconnect_timeout_ms;
  const auto read = [&]() -> Result<void> {
    ASSIGN_OR_RETURN(const auto reader, Reader::open(address, reading));
    // Retention may have dropped the last one.
    ASSIGN_OR_RETURN(const auto kept, reader->steps());
    std::optional<std::uint64_t> last;
    for (const StepSummary& summary : kept) {
      if (summary.step < step) last = summary.step;
    }
    if (!last) return {};
    ASSIGN_OR_RETURN(const auto source, reader->step(*last));
    for (const Attribute& attribute : source->attributes()) attributes.emplace(attribute.name, attribute.value);
    attributes_changed = !attributes.empty();
    return {};
  };
  // The reader has not been greeted and waits for no server; the writer has, and does.
  const Deadline deadline = Deadline::after_ms(options.reconnect_timeout_ms);
  auto result = read();
  while (!result && result.error().code == ErrorCode::disconnected && !deadline.passed()) {
    RETURN_IF_ERROR(client::pause_ms(server_pause_ms, options.interrupt));
    result = read();
  }
  if (result) return {};
  switch (result.error().code) {
    case ErrorCode::permission_denied:  // who may only write must not learn what others wrote
    case ErrorCode::step_gone:
    case ErrorCode::not_found:
      return {};
    default:
      result.error().what = "the attributes of the stream's last step cannot be read: " + result.error().what;
      return result;
  }
}

Writer::Writer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Writer::~Writer() {
  impl_->open_writer.leave(std::uncaught_exceptions() > 0);
}

Result<void> Writer::report_refused(const Address& address, const WriterOptions& options, std::string_view why) {
  ASSIGN_OR_RETURN(const auto place, client::home_of(address, options.server, options.interrupt));
  ASSIGN_OR_RETURN(const auto connection, client::Connection::open(place, Deadline::after_ms(report_timeout_ms), {}));
  wire::WriterRefusedT report;
  report.reservation = address.reservation;
  report.stream = address.stream;
  report.group = options.group;
  report.rank = options.rank;
  report.ranks = options.ranks;
  report.text = why;
  report.run = options.run;
  RETURN_IF_ERROR(
      connection->call(MessageType::writer_refused, report, MessageType::done, Deadline::after_ms(report_timeout_ms)));
  return {};
}

Result<std::unique_ptr<Writer>> Writer::open(const Address& address, const WriterOptions& options) {
  if (address.step)
    return fail(ErrorCode::invalid_argument,
                "a writer opens a stream, not one step of it; use append_after to continue after a step",
                address.path());
  if (options.ranks == 0 || options.rank >= options.ranks) {
    return fail(ErrorCode::invalid_argument,
                "rank " + std::to_string(options.rank) + " of " + std::to_string(options.ranks) +
                    " is impossible (from " + options.ranks_source + ")",
                address.path());
  }
  auto impl = std::make_unique<Impl>(address, options);
  const std::string where = "stream " + address.path();
  ASSIGN_OR_RETURN(auto place, client::home_of(address, options.server, options.interrupt));
  auto connected = client::connect_server(place, options.interrupt);
  if (!connected) return fail(std::move(connected.error()));
  impl->connection = std::move(*connected);

  auto request = protocol::to_wire<wire::WriterOpenT>(options);
  request.reservation = address.reservation;
  request.stream = address.stream;
  request.opening = random_number();
  if (impl->connection->is_remote()) {
    request.process = own_process_identity();
    if (place.remote && place.remote->introduction) impl->near = place.remote->introduction->by_root;
    request.near = impl->near;
  }
  const auto greet = [&](const std::shared_ptr<client::Connection>& connection) -> Result<void> {
    if (connection->is_remote()) {
      ASSIGN_OR_RETURN(request.gone,
                       gone_processes(*connection, address, client::open_deadline(options.open_timeout_ms)));
    }
    ASSIGN_OR_RETURN(auto answer, connection->call(MessageType::writer_open, request, MessageType::writer_opened,
                                                   client::open_deadline(options.open_timeout_ms)));
    ASSIGN_OR_RETURN(auto body, protocol::body_of<wire::WriterOpened>(answer));
    impl->epoch = body->epoch();
    impl->incarnation = body->incarnation();
    impl->step = body->next_step();
    impl->interruption = protocol::text_of(body->interruption());
    impl->segments.set_layout(SegmentLayout(protocol::numbers_of(body->member_segments())), body->segment_bytes());
    impl->space.set_stripe(body->stripe_bytes());
    if (connection->is_remote()) impl->write_remotely();
    impl->reach_members();
    return {};
  };
  auto opened = greet(impl->connection);
  if (!opened && impl->connection->is_broken()) {
    // Whether the group had formed is not known to us; the server knows it by the request's number.
    connected = client::reconnect_server(impl->connection->place(), Deadline::after_ms(options.reconnect_timeout_ms),
                                         options.interrupt, greet);
    if (connected) impl->connection = std::move(*connected);
    opened = connected ? Result<void>() : fail(std::move(connected.error()));
  }
  if (opened && impl->remote) impl->remote->use(impl->connection);
  if (!opened) {
    if (opened.error().where.empty()) opened.error().where = where;
    return fail(std::move(opened.error()));
  }
  impl->open_writer.use(impl->connection);
  // One rank brings the attributes of an earlier run along: the last, for the lowest rank's values go first.
  if (options.mode == WriteMode::append && options.rank + 1 == options.ranks && impl->step > 0)
    RETURN_IF_ERROR(impl->inherit_attributes());
  return std::unique_ptr<Writer>(new Writer(std::move(impl)));
}

Result<std::uint64_t> Writer::begin_step(std::optional<std::uint64_t> number) {
  const auto guard = impl_->guard();
  RETURN_IF_ERROR(impl_->check_usable());
  if (impl_->state != Impl::State::between_steps)
    return fail(ErrorCode::invalid_argument, "a step is open already; call end_step first", impl_->where());
  if (number && *number < impl_->step)
    return fail(ErrorCode::invalid_argument,
                "step " + std::to_string(*number) + " cannot follow: the next number is " +
                    std::to_string(impl_->step) + "; to write steps again, open the stream with append_after",
                "stream " + impl_->address.path());
  impl_->open_writer.forget_failure();
  RETURN_IF_ERROR(impl_->wait_for_readers());
  impl_->allocated.reuse_released();
  impl_->allocated.unmap_unlikely();
  RETURN_IF_ERROR(impl_->request_expected_space());
  impl_->metadata.begin(impl_->options.rank, impl_->options.checksums, impl_->options.statistics);
  impl_->step_error.reset();
  if (impl_->remote) impl_->remote->begin_step();
  for (auto& [number, member] : impl_->members)
    if (member.space) member.space->begin_step();
  impl_->number = number.value_or(impl_->step);
  impl_->state = Impl::State::in_step;
  return impl_->number;
}

Result<void> Writer::put(const BlockSpec& block, const void* data) {
  const auto guard = impl_->guard();
  RETURN_IF_ERROR(impl_->check_step_whole());
  ASSIGN_OR_RETURN(auto bytes, impl_->check_block(block));
  RETURN_IF_ERROR(impl_->check_against_step(block));
  if (bytes > 0 && data == nullptr) return invalid(block, "a block with elements needs data");
  if (is_single_value(block.kind)) {
    impl_->metadata.set_value(impl_->variable_of(block), {static_cast<const std::byte*>(data), bytes});
    return {};
  }

  impl_->pieces.clear();
  if (bytes > 0) {
    RETURN_IF_ERROR(impl_->take_space(bytes, bytes >= protocol::page_bytes, bytes <= client::home_block_bytes_max));
  }
  client::BlockSource source{
      static_cast<const std::byte*>(data), block.count, block.memory_start, block.memory_count, block.type, bytes};
  if (std::ranges::equal(block.memory_count, block.count)) source.memory_count = {};
  auto digest = impl_->blocks.write(source, impl_->pieces);
  if (!digest) {
    impl_->step_error = digest.error();
    return impl_->failed(std::move(digest.error()));
  }
  impl_->metadata.add_block(impl_->variable_of(block),
                            {block.start, block.count, impl_->pieces, digest->checksum, digest->statistics});
  return {};
}

Result<void> Writer::put_string(std::string_view name, ShapeKind kind, std::string_view value) {
  const auto guard = impl_->guard();
  RETURN_IF_ERROR(impl_->check_step_whole());
  BlockSpec block;
  block.name = name;
  block.type = DataType::string;
  block.kind = kind;
  if (name.empty() || name.size() > name_bytes_max) return invalid(block, "a variable's name has 1 to 4096 bytes");
  if (!is_single_value(kind)) return invalid(block, "strings can only be single values");
  RETURN_IF_ERROR(impl_->check_against_step(block));
  impl_->metadata.set_value(impl_->variable_of(block), std::as_bytes(std::span(value)));
  return {};
}

Result<Writer::Allocation> Writer::allocate(const BlockSpec& block) {
  const auto guard = impl_->guard();
  RETURN_IF_ERROR(impl_->check_step_whole());
  ASSIGN_OR_RETURN(auto bytes, impl_->check_block(block));
  if (is_single_value(block.kind)) return invalid(block, "single values are written with put");
  if (!block.memory_count.empty())
    return invalid(block, "allocated memory is contiguous; leave the memory selection empty");
  RETURN_IF_ERROR(impl_->check_against_step(block));
  return impl_->allocate(block, bytes);
}

Result<void> Writer::set_attribute(std::string_view name, AttributeValue value) {
  const auto guard = impl_->guard();
  RETURN_IF_ERROR(impl_->check_usable());
  const std::string where = "attribute " + shown_name(name);
  if (name.empty() || name.size() > name_bytes_max)
    return fail(ErrorCode::invalid_argument, "an attribute's name has 1 to 4096 bytes", where);
  if (!is_valid(value.type)) return fail(ErrorCode::invalid_argument, "unknown element type", where);
  const bool is_text = value.type == DataType::string;
  const std::size_t element_bytes = is_text ? 1 : element_size(value.type);
  const std::size_t elements = is_text ? value.strings.size() : value.bytes.size() / element_bytes;
  if ((is_text ? !value.bytes.empty() : !value.strings.empty()) || value.bytes.size() % element_bytes != 0 ||
      (!value.is_array && elements != 1)) {
    return fail(ErrorCode::invalid_argument, "the value does not hold whole elements of its type, or not exactly one",
                where);
  }
  const auto found = impl_->attributes.find(name);
  if (found == impl_->attributes.end()) {
    impl_->attributes.emplace(name, std::move(value));
  } else if (found->second == value) {
    return {};
  } else {
    found->second = std::move(value);
  }
  impl_->attributes_changed = true;
  return {};
}

Result<void> Writer::remove_attribute(std::string_view name) {
  const auto guard = impl_->guard();
  RETURN_IF_ERROR(impl_->check_usable());
  const auto found = impl_->attributes.find(name);
  if (found == impl_->attributes.end()) return {};
  impl_->attributes.erase(found);
  impl_->attributes_changed = true;
  return {};
}

Result<void> Writer::end_step() {
  const auto guard = impl_->guard();
  RETURN_IF_ERROR(impl_->check_usable());
  if (impl_->state != Impl::State::publishing) {
    RETURN_IF_ERROR(impl_->check_step_whole());
    // The answer may bring the next one.
    if (auto taken = impl_->take_grant(true); !taken) return impl_->failed(std::move(taken.error()));
    if (auto completed = impl_->complete_part(); !completed) return impl_->failed(std::move(completed.error()));
    impl_->state = Impl::State::publishing;
  }
  return impl_->publish();
}

Result<void> Writer::abort_step() {
  const auto guard = impl_->guard();
  RETURN_IF_ERROR(impl_->check_in_step());
  wire::StepAbortT request;
  request.step = impl_->step;
  request.members_lost = impl_->lost_members();
  RETURN_IF_ERROR(impl_->order(MessageType::step_abort, request));
  impl_->members_lost.clear();
  // From here on nothing else can become of it.
  if (!impl_->step_error) impl_->step_error = Error{ErrorCode::io_error, "giving it up", {}};
  impl_->blocks.discard();
  // What the program may still look at is not written to by it any more, nor by the next step.
  if (auto completed = impl_->allocated.complete(impl_->blocks, impl_->metadata); !completed)
    return impl_->failed(std::move(completed.error()));
  impl_->allocated.release(nullptr);
  impl_->space.trim();
  impl_->forget_new_attributes();
  impl_->allocated.grant(impl_->space.used());
  impl_->space.end_step();
  impl_->give_up_members();
  impl_->state = Impl::State::between_steps;
  return {};
}

Result<void> Writer::close() {
  const auto guard = impl_->guard();
  RETURN_IF_ERROR(impl_->opening_process.check());
  if (impl_->state == Impl::State::closed) return {};
  RETURN_IF_ERROR(impl_->check_usable());
  if (impl_->state != Impl::State::between_steps) {
    return fail(ErrorCode::invalid_argument, "a step is open; end it or abort it (abort_step) before closing",
                impl_->where());
  }
  RETURN_IF_ERROR(impl_->order(MessageType::writer_close, wire::WriterCloseT()));
  impl_->state = Impl::State::closed;
  impl_->open_writer.end();
  impl_->allocated.forget_released();
  impl_->holder.reset();
  return {};
}

void Writer::note_failure(std::string_view what) {
  const bool open = impl_->state == Impl::State::in_step || impl_->state == Impl::State::publishing;
  impl_->open_writer.note_failure(what, open ? std::optional(impl_->number) : std::nullopt);
}

bool Writer::in_step() const {
  return impl_->state == Impl::State::in_step || impl_->state == Impl::State::publishing;
}
std::uint64_t Writer::current_step() const {
  return in_step() ? impl_->number : impl_->step;
}
std::uint32_t Writer::incarnation() const {
  return impl_->incarnation;
}
std::uint32_t Writer::epoch() const {
  return impl_->epoch;
}
const std::string& Writer::interruption() const {
  return impl_->interruption;
}
const Address& Writer::address() const {
  return impl_->address;
}

}  // namespace forebay
