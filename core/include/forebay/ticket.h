// SPDX-License-Identifier: Apache-2.0
// Tickets: small files that stand for a stream or a step where a program wants a file. Format: docs/formats/ticket.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <forebay/result.h>
#include <forebay/types.h>

namespace forebay {

/// How the name of a ticket's file ends.
inline constexpr std::string_view ticket_suffix = ".forebay";

/// What stands in a ticket.
struct Ticket {
  Address address;                          ///< of a stream, or of one of its steps
  std::string uuid;                         ///< the stream's: one that was removed and made anew has another
  std::optional<std::uint32_t> epoch = {};  ///< of a step's ticket: a stream that was rewound or replaced has another
};

/// True if `path` is that of a file whose name ends as a ticket's.
bool is_ticket_path(const std::string& path);

/// The ticket in a file. invalid_argument if it is none; not_found or an error of the file system if it cannot be read.
Result<Ticket> read_ticket(const std::string& path);

/// The ticket in a text, which was read from `where`.
Result<Ticket> parse_ticket(std::string_view text, std::string_view where = {});

}  // namespace forebay
