// SPDX-License-Identifier: Apache-2.0
// forebay._core.Step: variables by index, views and copies of their data, attributes.
#include <forebay/reader.h>

#include "bindings.h"
#include "conversion.h"
#include "handle.h"
#include "memory.h"

namespace nb = nanobind;

namespace forebay::python {

namespace {

class PythonStep {
 private:
  const VariableInfo& at(std::size_t variable) const { return step_->variables().at(variable); }

  template <class Function>
  auto without_gil(Function function) const {
    // The object may be released by another thread meanwhile; this call keeps the step.
    const std::shared_ptr<const Step> step = step_;
    const WithoutGil released;
    return function(*step);
  }

  template <class Function>
  auto call(Function function) const {
    return unwrap(without_gil(function));
  }

  /// (Memory, strides), or None where blocks must be merged or the step is not pinned.
  template <class Function>
  nb::object memory_of(const VariableInfo& info, const Box& box, Function function) const {
    Result<Step::View> view = without_gil(function);
    if (!view && view.error().code == ErrorCode::unsupported) {
      return nb::none();
    }
    Step::View found = unwrap(std::move(view));
    auto strides = nb::steal<nb::tuple>(PyTuple_New(static_cast<Py_ssize_t>(found.strides_bytes.size())));
    std::size_t size_bytes = element_size(info.type);
    for (std::size_t axis = 0; axis < found.strides_bytes.size(); ++axis) {
      PyTuple_SET_ITEM(strides.ptr(), static_cast<Py_ssize_t>(axis), PyLong_FromLongLong(found.strides_bytes[axis]));
      size_bytes += (box.count[axis] - 1) * static_cast<std::uint64_t>(found.strides_bytes[axis]);
    }
    auto* memory = new Memory(found.data, size_bytes, std::move(found.owner));
    return nb::make_tuple(nb::cast(memory, nb::rv_policy::take_ownership), strides);
  }

  /// False, and nothing read, if the strides of `out` are not those of a box in a C-ordered array.
  template <class Function>
  bool copy_to(const VariableInfo& info, nb::handle start, nb::handle count, nb::handle out, Function function) const {
    const Box box{dimensions_of(start), dimensions_of(count)};
    const ArrayBuffer buffer(out, ArrayBuffer::Access::write);
    buffer.expect(box.count, element_size(info.type));
    const auto enclosing = buffer.enclosing();
    if (!enclosing) {
      return false;
    }
    const MemoryLayout memory{Dimensions(enclosing->size(), 0), *enclosing};
    call([&](const Step& step) { return function(step, box, buffer.data(), memory); });
    return true;
  }

 public:
  explicit PythonStep(std::shared_ptr<const Step> step) : step_(std::move(step)) {}
  ~PythonStep() { let_go(std::move(step_), generation_); }
  PythonStep(const PythonStep&) = delete;
  PythonStep& operator=(const PythonStep&) = delete;

  const Step& native() const { return *step_; }

  std::uint64_t number() const { return step_->number(); }
  std::uint32_t epoch() const { return step_->epoch(); }
  std::int64_t time_ns() const { return step_->summary().time_ns; }
  std::uint64_t size_bytes() const { return step_->summary().size_bytes; }
  bool pinned() const { return step_->pinned(); }
  nb::tuple summary() const { return tuple_of(step_->summary()); }

  nb::list names() const {
    nb::list names;
    for (const VariableInfo& variable : step_->variables()) {
      names.append(variable.name);
    }
    return names;
  }

  nb::object find(const std::string& name) const {
    const VariableInfo* variable = step_->find(name);
    if (variable == nullptr) {
      return nb::none();
    }
    return nb::make_tuple(variable - step_->variables().data(), variable->name, static_cast<int>(variable->type),
                          static_cast<int>(variable->kind), tuple_of(variable->shape));
  }

  nb::str fault(std::size_t variable) const { return text_of(fault_of(at(variable))); }

  nb::list blocks(std::size_t variable) const {
    const VariableInfo& info = at(variable);
    const std::size_t element = element_size(info.type);
    nb::list list;
    for (const BlockInfo& block : info.blocks) {
      nb::object statistics = nb::none();
      if (block.has_statistics) {
        statistics = nb::make_tuple(nb::bytes(block.min, element), nb::bytes(block.max, element));
      }
      nb::object checksum = nb::none();
      if (block.has_checksum) {
        checksum = nb::cast(block.checksum);
      }
      list.append(nb::make_tuple(block.rank, tuple_of(block.start), tuple_of(block.count), block.size_bytes, statistics,
                                 checksum));
    }
    return list;
  }

  nb::tuple block_count(std::size_t variable, std::int64_t block) const {
    const VariableInfo& info = at(variable);
    if (block < 0 || static_cast<std::size_t>(block) >= info.blocks.size()) {
      throw nb::index_error(("variable '" + info.name + "' has " + std::to_string(info.blocks.size()) +
                             " blocks, numbered from 0: there is no block " + std::to_string(block))
                                .c_str());
    }
    return tuple_of(info.blocks[static_cast<std::size_t>(block)].count);
  }

  nb::list attributes() const { return list_of(step_->attributes()); }

  nb::object view(std::size_t variable, nb::handle start, nb::handle count) const {
    const VariableInfo& info = at(variable);
    const Box box{dimensions_of(start), dimensions_of(count)};
    return memory_of(info, box, [&](const Step& step) { return step.view(info, box); });
  }

  nb::object view_block(std::size_t variable, std::size_t block, nb::handle start, nb::handle count) const {
    const VariableInfo& info = at(variable);
    const Box box{dimensions_of(start), dimensions_of(count)};
    return memory_of(info, box, [&](const Step& step) { return step.view_block(info, block, box); });
  }

  /// What keeps the descriptors, and (descriptor, offset, bytes) of each part; None where there are none.
  nb::object file_parts(std::size_t variable, std::size_t block) const {
    const VariableInfo& info = at(variable);
    Step::FileParts found = call([&](const Step& step) { return step.file_parts(info, block); });
    if (found.parts.empty()) {
      return nb::none();
    }
    nb::list parts;
    for (const Step::FilePart& part : found.parts) {
      parts.append(nb::make_tuple(part.descriptor, part.offset, part.length));
    }
    auto* owner = new Memory(static_cast<const std::byte*>(nullptr), 0, std::move(found.owner));
    return nb::make_tuple(nb::cast(owner, nb::rv_policy::take_ownership), parts);
  }

  bool read(std::size_t variable, nb::handle start, nb::handle count, nb::handle out) const {
    const VariableInfo& info = at(variable);
    return copy_to(info, start, count, out,
                   [&](const Step& step, const Box& box, void* data, const MemoryLayout& memory) {
                     return step.read(info, box, data, memory);
                   });
  }

  bool read_block(std::size_t variable, std::size_t block, nb::handle start, nb::handle count, nb::handle out) const {
    const VariableInfo& info = at(variable);
    return copy_to(info, start, count, out,
                   [&](const Step& step, const Box& box, void* data, const MemoryLayout& memory) {
                     return step.read_block(info, block, box, data, memory);
                   });
  }

  void read_value(std::size_t variable, std::size_t block, nb::handle out) const {
    const VariableInfo& info = at(variable);
    const ArrayBuffer buffer(out, ArrayBuffer::Access::write);
    buffer.expect({}, element_size(info.type));
    call([&](const Step& step) { return step.read_value(info, block, buffer.data()); });
  }

  nb::str read_string(std::size_t variable, std::size_t block) const {
    const VariableInfo& info = at(variable);
    return text_of(call([&](const Step& step) { return step.read_string(info, block); }));
  }

  void verify(std::optional<std::size_t> variable) const {
    const VariableInfo* info = variable ? &at(*variable) : nullptr;
    call([&](const Step& step) { return step.verify(info); });
  }

 private:
  std::shared_ptr<const Step> step_;
  const std::uint64_t generation_ = fork_generation();
};

}  // namespace

nb::object object_of(std::shared_ptr<const Step> step) {
  return nb::cast(new PythonStep(std::move(step)), nb::rv_policy::take_ownership);
}

const Step& step_of(nb::handle object) {
  return nb::cast<const PythonStep&>(object).native();
}

void bind_step(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<PythonStep>(module, "Step")
      .def_prop_ro("number", &PythonStep::number)
      .def_prop_ro("epoch", &PythonStep::epoch)
      .def_prop_ro("time_ns", &PythonStep::time_ns)
      .def_prop_ro("size_bytes", &PythonStep::size_bytes)
      .def_prop_ro("pinned", &PythonStep::pinned)
      .def("summary", &PythonStep::summary)
      .def("names", &PythonStep::names)
      .def("find", &PythonStep::find, "name"_a)
      .def("fault", &PythonStep::fault, "variable"_a)
      .def("blocks", &PythonStep::blocks, "variable"_a)
      .def("block_count", &PythonStep::block_count, "variable"_a, "block"_a)
      .def("attributes", &PythonStep::attributes)
      .def("view", &PythonStep::view, "variable"_a, "start"_a, "count"_a)
      .def("view_block", &PythonStep::view_block, "variable"_a, "block"_a, "start"_a, "count"_a)
      .def("file_parts", &PythonStep::file_parts, "variable"_a, "block"_a)
      .def("read", &PythonStep::read, "variable"_a, "start"_a, "count"_a, "out"_a)
      .def("read_block", &PythonStep::read_block, "variable"_a, "block"_a, "start"_a, "count"_a, "out"_a)
      .def("read_value", &PythonStep::read_value, "variable"_a, "block"_a, "out"_a)
      .def("read_string", &PythonStep::read_string, "variable"_a, "block"_a)
      .def("verify", &PythonStep::verify, "variable"_a.none());
}

}  // namespace forebay::python
