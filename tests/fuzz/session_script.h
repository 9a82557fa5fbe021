// SPDX-License-Identifier: Apache-2.0
// Courses of events in the form of session_fuzz's inputs: what people do with the system, as far as choices can say it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

namespace forebay::fuzz {

class SessionScript {
 public:
  /// As Requests::make() counts them.
  enum Kind : std::uint8_t {
    writer_open = 0,
    space_request = 1,
    part = 3,
    step_abort = 5,
    writer_close = 6,
    writer_rejoin = 7,
    reader_open = 8,
    step_wait = 9,
    step_get = 11,
    step_release = 12,
    cursor_move = 13,
    segments_get = 14,
    step_check = 15,
    reader_leave = 16,
    reservation_create = 17,
    reservation_destroy = 18,
    stream_remove = 19,
    consumer_remove = 20,
    retention_set = 21,
    staged_mark = 22,
    precious_set = 23,
    audit_query = 24,
    steps_query = 25,
    streams_query = 26,
    unknown = 27,
    step_poll = 28,
    server_query = 29,
    reservations_query = 30,
    hello = 31,
    token_create = 32,
    reservation_share = 34,
    steps_drop = 37,
  };
  enum Action : std::uint8_t {
    settle = 0,
    cut_off = 1,
    hold = 2,
    let_go = 3,
    close = 4,
    restart = 8,
    shut_down = 9,
    boot = 10,
    damage = 11
  };

  explicit SessionScript(std::uint8_t options) : bytes_{options} {}
  SessionScript& act(Action action, std::uint8_t slot = 0) {
    bytes_.push_back(action);
    bytes_.push_back(slot);
    return *this;
  }
  SessionScript& ask(Kind kind, std::uint8_t slot = 0, std::initializer_list<std::uint8_t> choices = {}) {
    bytes_.push_back(static_cast<std::uint8_t>(12 + kind));
    bytes_.push_back(slot);
    bytes_.push_back(static_cast<std::uint8_t>(choices.size() == 0 ? 0 : choices.size() + 1));
    if (choices.size() != 0) bytes_.push_back(0);
    bytes_.insert(bytes_.end(), choices);
    return *this;
  }
  /// A rank opens res/flow: `shape` says which of how many, `flags` when_full and durability, `rule` the retention.
  SessionScript& open(std::uint8_t slot, std::uint8_t shape = 0, std::uint8_t flags = 0, std::uint8_t rule = 0,
                      std::uint8_t mode = 0) {
    return ask(writer_open, slot, {0, 0, shape, mode, flags, rule});
  }
  SessionScript& write(std::uint8_t slot, int steps, std::uint8_t size = 0) {
    for (; steps > 0; --steps) ask(space_request, slot, {0, size}).ask(part, slot);
    return *this;
  }
  /// A step that the reader of that slot is to hold from its commit on, or, from 0xE0 on, somebody who is none.
  SessionScript& write_held(std::uint8_t slot, std::uint8_t holder) {
    return ask(space_request, slot, {0, 2}).ask(part, slot, {0, 0, 0, 0, 0, 0, holder});
  }
  SessionScript& resume(std::uint8_t slot, std::uint8_t consumer) {
    return ask(reader_open, slot, {0, 0, consumer, 1, 0, 0, 0, 2});
  }
  SessionScript& read(std::uint8_t slot, int steps) {
    for (; steps > 0; --steps) ask(step_wait, slot);
    return *this;
  }
  const std::vector<std::uint8_t>& bytes() const noexcept { return bytes_; }

 private:
  std::vector<std::uint8_t> bytes_;
};

inline std::vector<std::vector<std::uint8_t>> session_scripts() {
  using Script = SessionScript;
  std::vector<std::vector<std::uint8_t>> all;
  const auto add = [&all](const Script& script) { all.push_back(script.bytes()); };
  for (std::uint8_t options = 0; options < 4; ++options) {
    // One writer, one reader with a name, to the end.
    add(Script(options)
            .open(0)
            .write(0, 2)
            .ask(Script::reader_open, 1, {0, 0, 1})
            .read(1, 2)
            .ask(Script::step_release, 1, {1})
            .ask(Script::cursor_move, 1)
            .ask(Script::step_check, 1)
            .ask(Script::segments_get, 1, {3})
            .read(1, 1)
            .write(0, 1)
            .ask(Script::writer_close)
            .read(1, 1)
            .ask(Script::reader_leave, 1)
            .ask(Script::audit_query, 2, {1}));
    // Two ranks that wait for what is durable, one of which is lost; then they come again.
    add(Script(options)
            .open(0, 1, 0x10)
            .open(1, 4, 0x10)
            .ask(Script::space_request, 0)
            .ask(Script::space_request, 1)
            .act(Script::hold)
            .ask(Script::part, 0)
            .ask(Script::part, 1)
            .act(Script::let_go)
            .act(Script::settle)
            .ask(Script::space_request, 0)
            .ask(Script::part, 0)
            .act(Script::close, 1)
            .act(Script::close, 0)
            .open(2, 1)
            .open(3, 4)
            .ask(Script::writer_close, 2)
            .ask(Script::writer_close, 3));
    // The server dies, and all come back to the next one.
    for (const auto how : {Script::restart, Script::shut_down, Script::boot, Script::damage}) {
      add(Script(options)
              .open(0)
              .write(0, 2)
              .ask(Script::reader_open, 1, {0, 0, 1, 1})
              .read(1, 2)
              .ask(Script::space_request, 0)
              .act(how)
              .ask(Script::writer_rejoin, 0)
              .ask(Script::reader_open, 1, {0, 0, 1, 1, 0, 0, 0, 2})
              .write(0, 1)
              .read(1, 1)
              .act(Script::restart)
              .open(2)
              .write(2, 1));
    }
    // What a reader holds stays its own while the server is away, while it has no connection, and while more is written
    // than there is space: until it comes back and lets go.
    for (const auto how : {Script::restart, Script::shut_down, Script::cut_off}) {
      for (const std::uint8_t consumer : {std::uint8_t{0}, std::uint8_t{1}}) {
        for (const bool withdrawn : {false, true}) {
          Script script(options);
          script.open(0, 0, 1, 1).write(0, 1, 2).ask(Script::reader_open, 1, {0, 0, consumer, 1}).read(1, 1);
          if (withdrawn) script.ask(Script::writer_close, 0).open(2, 0, 0x21, 1, 2).write(2, 1, 2);
          const std::uint8_t writer = withdrawn ? 2 : 0;
          script.act(how, 1);
          if (how != Script::cut_off) script.ask(Script::writer_rejoin, writer, {0, 0, 0, 0, 0, 0, 1});
          for (int i = 0; i < 4; ++i) script.write(writer, 1, 3).act(Script::settle);
          script.resume(1, consumer).write(writer, 2, 3).ask(Script::step_release, 1, {0}).act(Script::settle);
          add(script.write(writer, 3, 3).act(Script::settle).write(writer, 2, 3));
        }
      }
    }
    // Steps that their writer's process holds: through a reader with a name, through one without, through nobody.
    for (const std::uint8_t holder : {std::uint8_t{1}, std::uint8_t{2}, std::uint8_t{0xE0}, std::uint8_t{0xE6}}) {
      Script script(options);
      script.open(0, 0, 1, 1).ask(Script::reader_open, 1, {0, 0, 1, 1}).ask(Script::reader_open, 2, {0, 0, 0, 1});
      script.write_held(0, holder).write_held(0, holder);
      for (int i = 0; i < 4; ++i) script.write(0, 1, 3).act(Script::settle);
      script.ask(Script::step_poll, 1).read(1, 1).ask(Script::step_poll, 1);
      add(script.act(Script::restart).ask(Script::writer_rejoin, 0, {0, 0, 0, 0, 0, 0, 1}).resume(1, 1).write(0, 3, 3));
    }
    // A full reservation: dropped, waited for, refused.
    for (std::uint8_t flags = 0; flags < 3; ++flags) {
      add(Script(options)
              .open(0, 0, flags)
              .ask(Script::reader_open, 1, {0, 0, 0, 1})
              .read(1, 1)
              .write(0, 3, 3)
              .ask(Script::step_release, 1)
              .act(Script::close, 1)
              .ask(Script::retention_set, 2, {0, 0, 1})
              .write(0, 2, 3)
              .ask(Script::writer_close));
      add(Script(options)
              .open(0, 0, flags, 3)
              .ask(Script::reader_open, 1, {0, 0, 1, 1})
              .write(0, 4, 2)
              .read(1, 3)
              .ask(Script::step_release, 1, {2, 0, 0, 1, 0, 0, 2})
              .ask(Script::cursor_move, 1)
              .act(Script::close, 1)
              .ask(Script::consumer_remove, 2, {0, 0, 1})
              .write(0, 2, 2));
    }
    // Anew, after an earlier step, and with a step given up.
    add(Script(options)
            .open(0, 0, 0, 4)
            .write(0, 3)
            .ask(Script::reader_open, 1, {0, 0, 2, 1})
            .read(1, 2)
            .ask(Script::writer_close)
            .ask(Script::writer_open, 2, {0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 225})
            .write(2, 1)
            .ask(Script::space_request, 2)
            .ask(Script::step_abort, 2)
            .read(1, 2)
            .act(Script::close, 2)
            .open(3, 0, 0x20, 0, 2)
            .write(3, 2)
            .read(1, 2));
    // Administration.
    add(Script(options)
            .ask(Script::reservation_create, 2, {3})
            .act(Script::settle)
            .open(0, 0, 0, 4)
            .ask(Script::writer_open, 3, {3, 3})
            .write(0, 3)
            .write(3, 1)
            .ask(Script::staged_mark, 2, {0, 0, 0, 2})
            .ask(Script::precious_set, 2, {0, 0, 1})
            .ask(Script::steps_query, 2)
            .ask(Script::server_query, 2)
            .ask(Script::reservations_query, 2)
            .ask(Script::streams_query, 2)
            .ask(Script::streams_query, 2, {0, 1})
            .ask(Script::stream_remove, 2)
            .ask(Script::stream_remove, 2, {0, 0, 1})
            .ask(Script::reservation_destroy, 2, {3})
            .ask(Script::reservation_destroy, 2, {3, 1})
            .act(Script::settle)
            .ask(Script::reader_open, 1, {3, 0})
            .ask(Script::hello, 2)
            .ask(Script::unknown, 4, {9}));
  }
  return all;
}

}  // namespace forebay::fuzz
