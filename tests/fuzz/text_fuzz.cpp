// SPDX-License-Identifier: Apache-2.0
// What people write: addresses, tickets, retention, start, and the server's configuration file; and what a server finds
// in its root.
#include <forebay/address.h>
#include <forebay/reader.h>
#include <forebay/ticket.h>
#include <forebay/writer.h>

#include "fabric/token.h"
#include "staging-servers/daemon/root_files.h"
#include "staging-servers/daemon/settings.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace forebay;
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data + 1), size - 1);
  switch (data[0] % 6) {
    case 0:
      if (const auto address = parse_address(text)) {
        fuzz::understood();
        const auto again = parse_address(address->path());
        fuzz::require(again && again->reservation == address->reservation && again->stream == address->stream);
        fuzz::require(address->server.empty() || parse_server(address->server)->text() == address->server);
      }
      if (const auto server = parse_server(text)) {
        const auto again = parse_server(server->text());
        fuzz::require(again && again->host == server->host && again->port == server->port);
      }
      if (const auto token = fabric::parse_token(text, "input")) {
        const auto again = fabric::parse_token(fabric::to_text(*token), "input");
        fuzz::require(again && again->claims == token->claims && again->secret == token->secret);
        if (const auto claims = fabric::decode_claims(token->claims))
          fuzz::require(fabric::encode(*claims) == token->claims);
      }
      if (const auto claims = fabric::decode_pool_claims(std::as_bytes(std::span(text)))) {
        fuzz::understood();
        fuzz::require(fabric::decode_pool_claims(fabric::encode(*claims)) == *claims);
      }
      if (const auto ticket = parse_ticket(text, "input")) {
        fuzz::understood();
        fuzz::require(parse_address(ticket->address.path()).has_value());
      } else {
        fuzz::require(ticket.error().code == ErrorCode::invalid_argument && ticket.error().where == "input");
      }
      break;
    case 1:
      if (const auto retention = parse_retention(text)) {
        fuzz::understood();
        const auto again = parse_retention(to_string(*retention));
        fuzz::require(again && to_string(*again) == to_string(*retention));
      }
      break;
    case 2:
      if (const auto start = parse_start(text); !start)
        fuzz::require(start.error().code == ErrorCode::invalid_argument);
      break;
    case 4:
      if (const auto bytes = server::parse_pool(text, "pool")) {
        fuzz::understood();
        fuzz::require(text.find_first_not_of("0123456789") == std::string::npos);
        fuzz::require(server::parse_pool(std::to_string(*bytes), "pool") == *bytes);
      } else {
        fuzz::require(bytes.error().code == ErrorCode::corrupt && bytes.error().where == "pool");
      }
      break;
    case 5: {
      const server::BootNote note = server::parse_boot_note(text);
      if (!note.unchecked.empty()) fuzz::understood();
      fuzz::require(note.boot_id == text.substr(0, text.find('\n')));
      for (const auto& [id, streams] : note.unchecked) fuzz::require(id.find('/') == std::string::npos);
      const server::BootNote again = server::parse_boot_note(server::to_text(note));
      fuzz::require(again.boot_id == note.boot_id && again.unchecked == note.unchecked);
      break;
    }
    default: {
      server::Settings settings;
      const auto table = server::settings_table(settings);
      const auto none_is_given = [](const server::Setting&) { return false; };
      if (const auto taken = server::take_settings(text, "forebay.toml", table, none_is_given)) {
        fuzz::understood();
      } else {
        fuzz::require(taken.error().code == ErrorCode::invalid_argument && !taken.error().where.empty());
      }
      break;
    }
  }
  return 0;
}
