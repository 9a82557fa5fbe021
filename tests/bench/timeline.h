// SPDX-License-Identifier: Apache-2.0
// What the benchmark programs share: memory for the data, the moments of each step, waiting for the start signal, and
// the report in JSON that tests/bench/programs.py reads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace bench {

/// Nanoseconds of the monotonic clock, which all processes of a machine share.
std::int64_t now_ns();

/// Waits until that moment; returns at once where it has passed.
void wait_until_ns(std::int64_t moment);

/// Memory in huge pages where the system has them, touched, so that the data path pays for no first touch.
class Buffer {
 public:
  explicit Buffer(std::size_t bytes);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* data() const { return data_; }
  double* elements() const { return reinterpret_cast<double*>(data_); }
  std::span<std::byte> bytes() const { return {data_, bytes_}; }

 private:
  std::size_t bytes_ = 0;
  std::byte* data_ = nullptr;
};

/// The data of one step: variables one after another, each stamped with the step and its own number.
class StepData {
 public:
  StepData(std::size_t variables, std::size_t variable_bytes);

  std::size_t variables() const { return variables_; }
  std::size_t elements() const { return variable_bytes_ / sizeof(double); }
  double* variable(std::size_t index) const { return buffer_.elements() + index * elements(); }
  const std::string& name(std::size_t index) const { return names_[index]; }
  std::uint64_t bytes() const { return variables_ * variable_bytes_; }

  void stamp(std::uint64_t step);
  /// Ends the program if a variable does not carry the step's stamp.
  void check(std::uint64_t step) const;

 private:
  std::size_t variables_;
  std::size_t variable_bytes_;
  Buffer buffer_;
  std::vector<std::string> names_;
};

/// Moments of one step. Writer: begin called, begin returned, last put returned, end returned. Reader: begin called,
/// begin returned, data held, end returned.
using Moments = std::array<std::int64_t, 4>;

/// What a program reports.
class Timeline {
 public:
  explicit Timeline(std::string program) : program_(std::move(program)) {}

  void reserve(std::size_t steps) { steps_.reserve(steps); }
  void add(const Moments& moments) { steps_.push_back(moments); }
  void set(const std::string& name, double value) { values_[name] = value; }

  /// Says on standard output that everything is open, and waits for a line on standard input.
  void ready() const;
  /// Prints the report as one line.
  void print() const;

 private:
  std::string program_;
  std::vector<Moments> steps_;
  std::map<std::string, double> values_;
};

/// Ends the program with what went wrong.
[[noreturn]] void give_up(const std::string& why);

}  // namespace bench
