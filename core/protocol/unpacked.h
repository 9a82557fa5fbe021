// SPDX-License-Identifier: Apache-2.0
// The body of a message as an object of its own, for what outlives the message.
#pragma once

#include <memory>

#include "base/return_error.h"
#include "protocol/message.h"

namespace forebay::protocol {

/// ErrorCode::protocol if the body does not verify.
template <class T>
Result<std::unique_ptr<typename T::NativeTableType>> unpacked(const Message& message) {
  ASSIGN_OR_RETURN(const T* body, body_of<T>(message));
  return std::unique_ptr<typename T::NativeTableType>(body->UnPack());
}

}  // namespace forebay::protocol
