// SPDX-License-Identifier: Apache-2.0
// The engine that `Mode::Read` opens: follows a stream step by step, or (RandomAccess) offers all its steps at once.
// Like any ADIOS2 engine it is used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>

#include <adios2.h>
#include <adios2/plugin/PluginEngineInterface.h>

#include <forebay/reader.h>

#include "attributes.h"
#include "blocks_info.h"
#include "core_engine.h"
#include "open_streams.h"
#include "parameters.h"
#include "random_access.h"
#include "read_selection.h"
#include "variables.h"

namespace forebay::engine {

class ReaderEngine final : public adios2::plugin::PluginEngineInterface, public BehindCoreEngine {
 public:
  /// Opens the stream; see errors.h for what it throws.
  ReaderEngine(adios2::IO io, const std::string& name, adios2::Mode mode);
  ~ReaderEngine() override;
  ReaderEngine(const ReaderEngine&) = delete;
  ReaderEngine& operator=(const ReaderEngine&) = delete;

  adios2::StepStatus BeginStep(adios2::StepMode mode, float timeout_seconds) override;
  void EndStep() override;
  std::size_t CurrentStep() const override;
  std::size_t Steps() const override;
  void PerformGets() override {}  // every Get has copied already
  adios2::MinVarInfo* MinBlocksInfo(const std::string& name, std::size_t step) const override;
  void DoClose(int transport_index) override;
  void attach(void* core) override;

#define FOREBAY_GET(T)                                                                                             \
  void DoGetSync(adios2::Variable<T> variable, T* values) override {                                               \
    get(variable, values, nullptr);                                                                                \
  }                                                                                                                \
  void DoGetDeferred(adios2::Variable<T> variable, T* values) override {                                           \
    get(variable, values, nullptr);                                                                                \
  }                                                                                                                \
  void DoGetSync(adios2::Variable<T> variable, T* values, const adios2::core::Selection& selection) override {     \
    get(variable, values, &selection);                                                                             \
  }                                                                                                                \
  void DoGetDeferred(adios2::Variable<T> variable, T* values, const adios2::core::Selection& selection) override { \
    get(variable, values, &selection);                                                                             \
  }
  ADIOS2_FOREACH_STDTYPE_1ARG(FOREBAY_GET)
#undef FOREBAY_GET

 private:
  template <class T>
  void get(const adios2::Variable<T>& variable, T* values, const adios2::core::Selection* with_get);
  template <class T>
  std::size_t get_step(const Step& step, const std::string& name, const Selected& selected, std::uint64_t room,
                       T* values);

  /// Tells once of each variable if its blocks overlap or leave elements out.
  void tell_fault(const Step& step, const VariableInfo& variable);
  /// Shows these variables of the stream in the IO, in its array order.
  void show_variables(const std::vector<VariableInfo>& variables, const VariableMirror::FactsOf& facts);
  /// Finds the core engine in front of this one, once, if it can be found yet.
  void find_core();
  /// Where ADIOS2's Python module is about to ask: as soon as Open has returned to it.
  void find_core_after_open();
  /// Shows the variables of all steps in the IO.
  void offer_all_steps(const std::vector<std::uint64_t>& numbers);
  /// Without being told to: only a stream that has ended, and of which nothing is left to decide.
  void offer_finished_stream(const Settings& settings);
  /// The steps at hand are those of a writer that had gone before: not what a coupled program expects.
  void tell_finished() const;
  /// The first BeginStep after that: the same steps, one after another.
  void go_on_step_by_step();
  /// The step that BeginStep returns next, null at the end of the stream or, with `status` NotReady, for now.
  std::shared_ptr<const Step> follow(float timeout_seconds, adios2::StepStatus& status);
  std::shared_ptr<const Step> next_listed(adios2::StepStatus& status);
  /// The step for a Get or BlocksInfo of a variable; `index` counts in random access.
  std::shared_ptr<const Step> step_for(const std::string& name, std::size_t index, const char* call) const;
  std::string doing(const char* what) const { return std::string(what) + " stream " + path_; }

  std::string path_;
  std::string consumer_;
  OpenStream open_stream_;
  std::unique_ptr<Reader> reader_;
  void* core_ = nullptr;                  // the core engine in front of this one; null: not known
  std::uint64_t after_open_ = 0;          // of the call that finds it
  bool opened_in_python_thread_ = false;  // other than the main one
  bool show_facts_ = true;
  bool column_major_ = false;  // the program's arrays are in Fortran's order
  std::unique_ptr<RandomAccess> random_access_;
  std::optional<StreamInfo> offered_;                // as it was when it was offered unasked; until the first BeginStep
  std::optional<std::deque<std::uint64_t>> listed_;  // the steps to come, where the stream is not followed
  std::size_t listed_steps_ = 0;
  std::shared_ptr<const Step> step_;     // between BeginStep and EndStep
  std::shared_ptr<const Step> unshown_;  // that a BeginStep got and could not show in the IO
  std::size_t current_step_ = 0;
  bool failure_told_ = false;
  bool in_group_ = false;                      // one of several ranks that read together
  bool speaks_ = true;                         // this rank tells the user what concerns all of them
  std::unordered_set<std::string> looked_at_;  // variables of which tell_fault has told
  bool limited_ = false;                       // by Run or WaitForWriter: takes not all steps of the stream
  bool finished_to_tell_ = false;              // by the first BeginStep
  VariableMirror variables_;
  AttributeMirror attributes_;
  mutable BlocksInfo blocks_info_;
};

}  // namespace forebay::engine
