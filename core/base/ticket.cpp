// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <limits>
#include <utility>
#include <variant>

#include <forebay/address.h>
#include <forebay/ticket.h>

#include "base/device.h"
#include "base/json_fields.h"
#include "base/return_error.h"

namespace forebay {
namespace {

constexpr std::uint64_t ticket_bytes_max = 64 * 1024;

}  // namespace

bool is_ticket_path(const std::string& path) {
  struct stat status{};
  return path.ends_with(ticket_suffix) && ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

Result<Ticket> read_ticket(const std::string& path) {
  ASSIGN_OR_RETURN(const auto bytes, read_whole(posix_device(), path, ticket_bytes_max));
  return parse_ticket({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
}

Result<Ticket> parse_ticket(std::string_view text, std::string_view where) {
  const auto refuse = [&](const std::string& why) {
    return fail(ErrorCode::invalid_argument, "the file is no ticket of Forebay: " + why, std::string(where));
  };
  const auto fields = parse_json_fields(text);
  if (!fields) return refuse(fields.error().what);
  Ticket ticket;
  const auto text_of = [&](std::string_view name) -> const std::string* {
    const auto field = fields->find(name);
    return field == fields->end() ? nullptr : std::get_if<std::string>(&field->second);
  };
  const std::string* address = text_of("forebay");
  const std::string* uuid = text_of("uuid");
  if (address == nullptr || uuid == nullptr) return refuse("it has no texts \"forebay\" and \"uuid\"");
  auto parsed = parse_address(*address);
  if (!parsed) return refuse(parsed.error().what);
  ticket.address = std::move(*parsed);
  ticket.uuid = *uuid;
  const auto epoch = fields->find("epoch");
  if (epoch != fields->end() && !std::holds_alternative<std::monostate>(epoch->second)) {
    const auto* number = std::get_if<std::uint64_t>(&epoch->second);
    if (number == nullptr || *number > std::numeric_limits<std::uint32_t>::max())
      return refuse("its epoch is no epoch's number");
    ticket.epoch = static_cast<std::uint32_t>(*number);
  }
  return ticket;
}

}  // namespace forebay
