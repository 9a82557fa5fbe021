// SPDX-License-Identifier: Apache-2.0
#include "client/segments/client_device.h"

namespace forebay::client {
namespace {

Device* chosen = nullptr;

}  // namespace

Device& client_device() noexcept {
  return chosen != nullptr ? *chosen : posix_device();
}

void set_client_device(Device& device) noexcept {
  chosen = &device;
}

}  // namespace forebay::client
