// SPDX-License-Identifier: Apache-2.0
// What the requests of administrators have in common.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <forebay/result.h>

#include "protocol/message.h"

namespace forebay::server {

class Stream;

/// The table of a message, unpacked.
template <class Table>
Result<std::unique_ptr<typename Table::NativeTableType>> unpacked(const protocol::Message& message) {
  auto body = protocol::body_of<Table>(message);
  if (!body) return fail(std::move(body.error()));
  return std::unique_ptr<typename Table::NativeTableType>((*body)->UnPack());
}

/// Why removing these streams would lose something; nothing if it would not.
std::optional<Error> loss_of(const std::vector<Stream*>& streams);

}  // namespace forebay::server
