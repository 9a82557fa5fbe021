// SPDX-License-Identifier: Apache-2.0
// Memory that a program computes in. While the program holds it the step is pinned: by a reader of this writer's own,
// for whom the server takes the pin as it commits the step.
#include <utility>

#include "base/return_error.h"
#include "client/writing/writer_impl.h"

namespace forebay {
namespace {

// A reader with a name: what it pins is not limited as unnamed readers' pins are. It follows nothing, so that there is
// no cursor of this name.
constexpr const char* holder_name = "allocated-memory";

}  // namespace

Result<Writer::Allocation> Writer::Impl::allocate(const BlockSpec& block, std::uint64_t bytes) {
  protocol::StepMetadataBuilder::Block added{block.start, block.count, {}, 0, {}};
  if (bytes == 0) {
    metadata.add_block(variable_of(block), added);
    return Allocation{};
  }
  RETURN_IF_ERROR(take_space(bytes, true, bytes <= client::home_block_bytes_max));
  // Where a segment is on another node, or may be taken back while the program looks at it, the memory is private and
  // is sent at the step's end.
  const bool is_private = remote || ways;
  auto mapping = is_private ? client::Mapping::of_memory(bytes) : allocated.map(pieces, bytes);
  if (!mapping) return failed(std::move(mapping.error()));
  added.pieces = pieces;
  const std::uint32_t number = metadata.add_block(variable_of(block), added);
  if (is_private) {
    allocated.add_private(*mapping, pieces, number, block.type);
  } else {
    allocated.add(*mapping, pieces, number, block.type);
  }
  return Allocation{(*mapping)->bytes(), client::Mapping::hold(*mapping)};
}

Result<void> Writer::Impl::pin_if_held() {
  part.holder = 0;
  if (remote || ways) return {};  // What the program holds is its own memory.
  if (!allocated.any_held()) return {};
  if (!holder) {
    ReaderOptions reading;
    reading.consumer = holder_name;
    reading.follow = false;
    reading.open_timeout_ms = 0;
    reading.reconnect_timeout_ms = options.reconnect_timeout_ms;
    reading.interrupt = options.interrupt;
    ASSIGN_OR_RETURN(holder, client::ReaderLink::open(address, reading, connection->place()));
  } else if (holder->current().connection->is_broken()) {
    RETURN_IF_ERROR(holder->confirm());
  }
  pin_part();
  return {};
}

void Writer::Impl::pin_part() {
  part.holder = holder->session();
  // From now on, so that it is among what is said to be held when the server comes back.
  part_pin = holder->delivered(number, epoch, true, holder->current().generation);
}

}  // namespace forebay
