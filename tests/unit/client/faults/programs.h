// SPDX-License-Identifier: Apache-2.0
// The programs of a fault sweep: writers, a consumer and an administrator that do, one after another, most of what
// changes a reservation, and write down what they were told. What fails does not keep the others from going on.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <forebay/admin.h>
#include <forebay/reader.h>
#include <forebay/writer.h>

#include "tests/unit/client/faults/told.h"
#include "tests/unit/client/server_on_disk.h"

namespace forebay::testing {

class Programs {
 public:
  static constexpr const char* reservation = "res";

  enum class Play {
    /// Durable and committed writers, a group of two ranks, one without checksums, retention by number and by a
    /// consumer, an acknowledged cursor, steps withdrawn by append_after, a stream replaced, one removed and made anew,
    /// a journal that rolls.
    everything,
    /// Large steps, durable and committed, by a writer that drops the oldest ones.
    full_reservation,
    /// Two streams that keep their last step, one of them durable: while one writes large steps the other's are small,
    /// in turn, so that space goes from one to the other and back; then one of them ends.
    contended
  };

  /// Starts the server, makes the reservation, and lets the disk count anew. `told` outlives the programs.
  Programs(ServerOnDisk& server, Told& told, Play play);

  /// Everything that is played, once. Ends early when the disk has stopped.
  void run();
  /// Expects that all of it was done, without an error.
  void check_whole() const;
  /// On a disk that is full: fills what is left of the journals of those that write, whose ends must succeed then.
  void end_on_full_disk();
  /// Two more durable steps to every stream, by new writers. Every call must succeed, but for streams that have failed.
  void go_on();
  /// Everybody dies.
  void vanish();

  /// What the calls that failed said.
  const std::vector<Error>& errors() const noexcept { return errors_; }
  /// Expects that they said only this: neither that a wait was too long, nor that something was the caller's mistake.
  void check_errors(const std::set<ErrorCode>& allowed) const;

 private:
  /// Notes the error of a call that failed.
  template <class T>
  bool succeeded(const Result<T>& result) {
    if (!result) errors_.push_back(result.error());
    return result.has_value();
  }
  /// Written by two ranks.
  static constexpr const char* group_stream = "pair";

  void run_everything();
  void run_in_full_reservation();
  void run_contended();
  void check_space_went_between_streams() const;
  void open(const std::string& stream, Durability durability, WriterOptions options = {});
  /// All ranks of the group; empty if any failed.
  std::vector<std::unique_ptr<Writer>> open_ranks(const Address& address, WriterOptions options);
  void append_after(const std::string& stream, std::uint64_t step);
  void replace(const std::string& stream);
  void write(const std::string& stream, int steps = 1);
  bool put_and_end(const std::string& stream, std::uint64_t content);
  /// Ends the step of both ranks. Where it fails they are of no use any more.
  bool end_two(std::vector<std::unique_ptr<Writer>>& writers);
  void close(const std::string& stream);
  void remove(const std::string& stream);
  void follow(const std::string& stream);
  void consume(const std::string& stream, int steps);
  void fill_journal(const std::string& stream);

  ServerOnDisk& server_;
  Told& told_;
  const Play play_;
  std::map<std::string, std::vector<std::unique_ptr<Writer>>> writers_;  // by stream and rank
  std::map<std::string, Durability> durabilities_;
  std::map<std::string, std::uint64_t> ballast_bytes_;  // of a stream's next steps
  std::unique_ptr<Reader> consumer_;
  std::uint64_t content_ = 0;
  std::vector<Error> errors_;
};

/// Ends a wait that lasts longer than anything here may take.
InterruptHook end_of_patience();

}  // namespace forebay::testing
