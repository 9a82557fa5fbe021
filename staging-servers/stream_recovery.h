// SPDX-License-Identifier: Apache-2.0
// Brings a stream back from its journal after the server ended, however it ended.
#pragma once

#include <memory>
#include <string>

#include <forebay/result.h>

namespace forebay::server {

class Reservation;
class Stream;

/// Reads the journal, takes the space that its steps hold in the reservation's map, and closes what a crash left open.
/// After a boot, every block behind the durable watermark is checked and the stream is cut at the first that does not
/// hold.
Result<std::unique_ptr<Stream>> recover_stream(Reservation& reservation, const std::string& name, bool after_boot);

}  // namespace forebay::server
