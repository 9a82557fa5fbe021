// SPDX-License-Identifier: Apache-2.0
// The engine that `Mode::Write` and `Mode::Append` open: ADIOS2's Puts become blocks of a stream's steps. Like any
// ADIOS2 engine it is used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <adios2.h>
#include <adios2/plugin/PluginEngineInterface.h>

#include <forebay/writer.h>

#include "attributes.h"
#include "open_streams.h"
#include "parameters.h"
#include "python_gil.h"

namespace forebay::engine {

class WriterEngine final : public adios2::plugin::PluginEngineInterface {
 public:
  /// Opens the stream; see errors.h for what it throws.
  WriterEngine(adios2::IO io, const std::string& name, adios2::Mode mode);
  /// Without DoClose the open step is given up and the stream counts as interrupted.
  ~WriterEngine() override;
  WriterEngine(const WriterEngine&) = delete;
  WriterEngine& operator=(const WriterEngine&) = delete;

  adios2::StepStatus BeginStep(adios2::StepMode mode, float timeout_seconds) override;
  void EndStep() override;
  std::size_t CurrentStep() const override;
  std::size_t Steps() const override;
  void PerformPuts() override {}  // every Put has been written already
  void DoClose(int transport_index) override;

#define FOREBAY_PUT(T)                                                         \
  void DoPutSync(adios2::Variable<T> variable, const T* values) override {     \
    put(variable, values);                                                     \
  }                                                                            \
  void DoPutDeferred(adios2::Variable<T> variable, const T* values) override { \
    put(variable, values);                                                     \
  }
  ADIOS2_FOREACH_STDTYPE_1ARG(FOREBAY_PUT)
#undef FOREBAY_PUT
#define FOREBAY_SPAN(T)                                                                           \
  void DoPut(adios2::Variable<T> variable, adios2::Variable<T>::Span&, bool, const T&) override { \
    refuse_span(variable.Name());                                                                 \
  }
  ADIOS2_FOREACH_PRIMITIVE_STDTYPE_1ARG(FOREBAY_SPAN)
#undef FOREBAY_SPAN

 private:
  /// What the parameters say, before the server is asked. Throws std::invalid_argument.
  std::pair<Address, WriterOptions> prepare(const Settings& settings, const std::string& name, adios2::Mode mode);
  template <class T>
  void put(const adios2::Variable<T>& variable, const T* values);
  /// Throws std::invalid_argument, or says once that the elements are written as they are.
  void refuse_operators(const std::string& name, const std::vector<adios2::Operator>& operators);
  [[noreturn]] static void refuse_span(const std::string& name);

  void begin(bool implicit);
  /// Throws std::invalid_argument if the IO has a variable of struct type. Looks only if the IO has more variables, or
  /// fewer, than before.
  void refuse_structs();
  /// Handles an error of a Put: one that leaves the step incomplete keeps it from being published.
  void check_put(const Result<void>& result, const std::string& variable);
  void abort_step();
  /// The open step has ended, or was given up.
  void step_over();
  /// True if the client was asked to stop by Ctrl-C, which Python raises itself when this call returns.
  bool cancelled(const Error& error);
  void note(const Error& error);
  std::string doing(const char* what) const { return std::string(what) + " stream " + path_; }

  std::string path_;
  bool replaces_ = true;
  bool column_major_ = false;  // the program's arrays are in Fortran's order
  std::uint32_t ranks_ = 1;
  std::uint32_t rank_ = 0;
  OpenStream open_stream_;
  std::unique_ptr<Writer> writer_;
  AttributeSource attributes_;
  std::size_t variables_seen_ = 0;
  bool attributes_due_ = true;
  bool attributes_each_step_ = true;
  bool ignores_operators_ = false;
  bool told_operators_ = false;
  bool in_step_ = false;
  bool begin_failed_ = false;  // the last one
  // What was going wrong already when the step began: it has nothing to do with the step.
  HandledException handled_before_;
  int thrown_before_ = 0;
  bool implicit_step_ = false;  // begun by a Put, without BeginStep
  bool stepped_ = false;        // a step was begun
  std::string incomplete_;      // why the open step must not be published
  std::string broken_;          // why the engine cannot go on
};

}  // namespace forebay::engine
