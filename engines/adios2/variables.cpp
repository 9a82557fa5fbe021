// SPDX-License-Identifier: Apache-2.0
#include "variables.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <type_traits>
#include <utility>

#include "errors.h"
#include "variable_selection.h"

namespace forebay::engine {
namespace {

#define FOREBAY_CHECK_TYPE(T) static_assert(data_type_of<T>.has_value());
ADIOS2_FOREACH_STDTYPE_1ARG(FOREBAY_CHECK_TYPE)
#undef FOREBAY_CHECK_TYPE

// Local arrays have no shape. ADIOS2 asks for the size of the selected block, the first by default. Where it cannot,
// the count is that of the largest block in each dimension, so that what it allocates has room for any block.
adios2::Dims largest_block(const VariableInfo& variable) {
  adios2::Dims largest = variable.blocks.empty() ? adios2::Dims{0} : variable.blocks.front().count;
  for (const BlockInfo& block : variable.blocks) {
    for (std::size_t i = 0; i < std::min(largest.size(), block.count.size()); ++i) {
      largest[i] = std::max(largest[i], block.count[i]);
    }
  }
  return largest;
}

// How many readers show a variable, for each IO and name.
class Owners {
 public:
  static Owners& instance() {
    // Never destroyed: an application may keep engines in static objects.
    static Owners& owners = *new Owners;
    return owners;
  }
  void add(const void* io, const std::string& name) {
    const std::lock_guard lock(mutex_);
    ++counts_[io][name];
  }
  /// True if there is no other.
  bool remove(const void* io, const std::string& name) {
    const std::lock_guard lock(mutex_);
    auto& names = counts_[io];
    const auto found = names.find(name);
    if (found == names.end()) return true;
    if (--found->second > 0) return false;
    names.erase(found);
    if (names.empty()) counts_.erase(io);
    return true;
  }
  std::size_t count(const void* io, const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto names = counts_.find(io);
    if (names == counts_.end()) return 0;
    const auto found = names->second.find(name);
    return found == names->second.end() ? 0 : found->second;
  }

 private:
  std::mutex mutex_;
  std::map<const void*, std::unordered_map<std::string, std::size_t>> counts_;
};

}  // namespace

VariableMirror::~VariableMirror() {
  // The IO may be going away itself: its variables stay as they are.
  for (const auto& [name, shown] : shown_) Owners::instance().remove(io_, name);
}

VariableMirror::Shown VariableMirror::describe(const VariableInfo& variable) {
  const auto with = [&](Form form, std::size_t dimensions) { return Shown{variable.type, form, dimensions, 0}; };
  switch (variable.kind) {
    case ShapeKind::global_value:
      return with(Form::value, 0);
    case ShapeKind::local_value:
      // ADIOS2 has no arrays of strings: the values are told apart by block selection.
      if (variable.type == DataType::string) return with(Form::local_string, 0);
      return with(Form::array, variable.shape.size());
    case ShapeKind::local_array:
      return with(Form::local_array, largest_block(variable).size());
    case ShapeKind::global_array:
    case ShapeKind::joined_array:
      break;
  }
  return with(Form::array, variable.shape.size());
}

void VariableMirror::define(adios2::IO io, const VariableInfo& variable, Form form) const {
  with_type(variable.type, [&]<class T>() {
    adios2::Variable<T> shown;
    switch (form) {
      case Form::value:
        shown = io.DefineVariable<T>(variable.name);
        break;
      case Form::local_string:
        shown = io.DefineVariable<T>(variable.name, {adios2::LocalValueDim});
        break;
      case Form::local_array:
        shown = io.DefineVariable<T>(variable.name, {}, {}, largest_block(variable));
        shown.SetBlockSelection(0);
        break;
      case Form::array:
        shown =
            io.DefineVariable<T>(variable.name, variable.shape, adios2::Dims(variable.shape.size(), 0), variable.shape);
        break;
    }
    if (core_ != nullptr) set_engine(shown, core_);
  });
}

bool VariableMirror::reset(adios2::IO io, const VariableInfo& variable, Form form, const FactsOf& facts) const {
  return with_type(variable.type, [&]<class T>() {
    adios2::Variable<T> shown = io.InquireVariable<T>(variable.name);
    if (!shown) return false;  // the application removed it
    // A block that is selected makes ADIOS2 ask for it.
    if (form == Form::array || shown.BlockID() != 0) shown.SetBlockSelection(0);
    if constexpr (!std::is_same_v<T, std::string>) {
      if (form == Form::array) {
        shown.SetShape(variable.shape);
        shown.SetSelection({adios2::Dims(variable.shape.size(), 0), variable.shape});
        shown.SetMemorySelection();
      } else if (form == Form::local_array) {
        shown.SetSelection({{}, largest_block(variable)});
        shown.SetMemorySelection();
        shown.SetBlockSelection(0);
      }
    }
    if (facts) set_facts(shown, facts(variable));
    if (core_ != nullptr) set_engine(shown, core_);
    return true;
  });
}

bool VariableMirror::share(adios2::IO io, const VariableInfo& variable, Form form, const FactsOf& facts) {
  if (io_ == nullptr || Owners::instance().count(io_, variable.name) == 0) return false;
  const bool same_kind = with_type(variable.type, [&]<class T>() {
    adios2::Variable<T> shown = io.InquireVariable<T>(variable.name);
    if (!shown) return false;
    switch (form) {
      case Form::value:
        return shown.ShapeID() == adios2::ShapeID::GlobalValue;
      case Form::local_string:
        return shown.ShapeID() == adios2::ShapeID::LocalValue;
      case Form::local_array:
        return shown.ShapeID() == adios2::ShapeID::LocalArray;
      case Form::array:
        return shown.ShapeID() == adios2::ShapeID::GlobalArray && shown.Shape().size() == variable.shape.size();
    }
    return false;
  });
  return same_kind && reset(io, variable, form, facts);
}

void VariableMirror::show(adios2::IO io, const std::vector<VariableInfo>& variables, const FactsOf& facts) {
  io_ = identity_of(io);
  ++round_;
  // Most steps have the variables of the last one in the same order: there they are found without their names' hashes.
  std::vector<Entry*> last = std::exchange(order_, {});
  order_.reserve(variables.size());
  std::vector<const VariableInfo*> defined;
  for (const VariableInfo& variable : variables) {
    Shown wanted = describe(variable);
    wanted.round = round_;
    const std::size_t place = order_.size();
    Entry* known = place < last.size() && last[place]->first == variable.name ? last[place] : nullptr;
    if (known == nullptr) {
      const auto found = shown_.find(variable.name);
      if (found != shown_.end()) known = &*found;
    }
    if (known != nullptr) {
      Shown& shown = known->second;
      if (shown.hidden) shown.hidden = !hidden_.unhide(io, variable.name);
      const bool same = shown.type == wanted.type && shown.form == wanted.form && shown.dimensions == wanted.dimensions;
      if (!shown.hidden && same && reset(io, variable, wanted.form, facts)) {
        wanted.kept = shown.kept;
        shown = wanted;
        order_.push_back(known);
        continue;
      }
      last.clear();
      remove(io, variable.name, shown);
      shown_.erase(variable.name);
    }
    if (io.VariableType(variable.name).empty()) {
      define(io, variable, wanted.form);
      if (facts) defined.push_back(&variable);
    } else if (!share(io, variable, wanted.form, facts)) {
      clear(io);
      throw_misuse("showing a step's variables",
                   "variable " + variable.name + " is defined already in IO " + io.Name() +
                       ". Give the reader an IO of its own, or remove the variable before BeginStep.");
    }
    Owners::instance().add(io_, variable.name);
    order_.push_back(&*shown_.emplace(variable.name, wanted).first);
  }
  // When all are there: what is known of many steps lives shorter than a variable, and would lie between them.
  for (const VariableInfo* variable : defined) {
    with_type(variable->type, [&]<class T>() {
      if (adios2::Variable<T> shown = io.InquireVariable<T>(variable->name)) set_facts(shown, facts(*variable));
    });
  }
  if (shown_.size() == variables.size()) return;
  for (auto entry = shown_.begin(); entry != shown_.end();) {
    auto& [name, shown] = *entry;
    if (shown.round == round_ || shown.hidden) {
      ++entry;
    } else if (shown.kept && Owners::instance().count(io_, name) == 1) {
      // Where it cannot be hidden it stays in sight, for its handles must stay valid.
      shown.hidden = hidden_.hide(io, name);
      ++entry;
    } else {
      remove(io, name, shown);
      entry = shown_.erase(entry);
    }
  }
}

void VariableMirror::attach(adios2::IO io, const void* core) {
  core_ = core;
  for (auto& [name, shown] : shown_) {
    with_type(shown.type, [&io, &name = name, core]<class T>() {
      if (adios2::Variable<T> variable = io.InquireVariable<T>(name)) set_engine(variable, core);
    });
  }
}

void VariableMirror::remove(adios2::IO io, const std::string& name, const Shown& shown) {
  const bool last = Owners::instance().remove(io_, name);
  if (!last && core_ != nullptr && !shown.hidden) {
    // Another reader's from now on.
    with_type(shown.type, [&]<class T>() {
      if (adios2::Variable<T> variable = io.InquireVariable<T>(name)) unset_engine(variable, core_);
    });
  }
  if (!last || shown.hidden) return;
  // One that is replaced by another of its name, of another type: the handles of it stay valid as well.
  if (shown.kept && hidden_.hide(io, name)) return;
  io.RemoveVariable(name);
}

void VariableMirror::keep(adios2::IO io) {
  for (auto& [name, shown] : shown_) {
    shown.kept = true;
    // Clang captures structured bindings in lambdas from version 16 on.
    with_type(shown.type, [&io, &name = name]<class T>() {
      if (adios2::Variable<T> variable = io.InquireVariable<T>(name)) variable.SetStepSelection({0, 1});
    });
  }
}

void VariableMirror::clear(adios2::IO io) {
  for (auto& [name, shown] : shown_) {
    shown.kept = false;
    remove(io, name, shown);
  }
  hidden_.clear(io);
  shown_.clear();
  order_.clear();
}

}  // namespace forebay::engine
