// SPDX-License-Identifier: Apache-2.0
// forebay._core.Writer: one rank of a writer group.
#include <cstring>

#include <forebay/address.h>
#include <forebay/writer.h>
#include <forebay/writer_options.h>

#include "bindings.h"
#include "conversion.h"
#include "handle.h"
#include "memory.h"
#include "written_blocks.h"

namespace nb = nanobind;

namespace forebay::python {

namespace {

ShapeKind kind_of(int code) {
  return static_cast<ShapeKind>(code);
}
DataType type_of(int code) {
  return static_cast<DataType>(code);
}

class PythonWriter {
 public:
  PythonWriter(std::unique_ptr<Writer> writer, std::shared_ptr<Attention> attention)
      : epoch_(writer->epoch()),
        incarnation_(writer->incarnation()),
        interruption_(writer->interruption()),
        handle_(std::move(writer), std::move(attention), "a stream open for writing") {}

  std::uint64_t begin_step(std::optional<std::uint64_t> number) {
    return handle_.call([this, number](Writer& writer) {
      written_.clear();
      return writer.begin_step(number);
    });
  }

  bool put(const std::string& name, int type, int kind, nb::handle shape, nb::handle start, nb::handle block) {
    const ArrayBuffer buffer(block, ArrayBuffer::Access::read);
    const auto enclosing = buffer.enclosing();
    if (!enclosing) {
      return false;
    }
    const Dimensions whole = dimensions_of(shape);
    const Dimensions place = dimensions_of(start);
    const Dimensions memory_start(enclosing->size(), 0);
    handle_.call([&](Writer& writer) {
      return once(name, kind_of(kind), place, buffer.count(), [&] {
        return writer.put({.name = name,
                           .type = type_of(type),
                           .kind = kind_of(kind),
                           .shape = whole,
                           .start = place,
                           .count = buffer.count(),
                           .memory_start = memory_start,
                           .memory_count = *enclosing},
                          buffer.data());
      });
    });
    return true;
  }

  void put_string(const std::string& name, int kind, nb::str value) {
    const std::string bytes = bytes_of(std::move(value));
    handle_.call([&](Writer& writer) {
      return once(name, kind_of(kind), {}, {}, [&] { return writer.put_string(name, kind_of(kind), bytes); });
    });
  }

  Memory* allocate(const std::string& name, int type, int kind, nb::handle shape, nb::handle start, nb::handle count) {
    const Dimensions whole = dimensions_of(shape);
    const Dimensions place = dimensions_of(start);
    const Dimensions extents = dimensions_of(count);
    auto allocation = handle_.call([&](Writer& writer) {
      return once(name, kind_of(kind), place, extents, [&] {
        return writer.allocate({.name = name,
                                .type = type_of(type),
                                .kind = kind_of(kind),
                                .shape = whole,
                                .start = place,
                                .count = extents,
                                .memory_start = {},
                                .memory_count = {}});
      });
    });
    return new Memory(allocation.bytes.data(), allocation.bytes.size(), std::move(allocation.owner));
  }

  void set_attribute(const std::string& name, int type, bool is_array, nb::bytes data, nb::list texts) {
    AttributeValue value{.type = type_of(type), .is_array = is_array, .bytes = {}, .strings = {}};
    value.bytes.resize(data.size());
    if (data.size() != 0) {
      std::memcpy(value.bytes.data(), data.c_str(), data.size());
    }
    for (nb::handle text : texts) {
      value.strings.push_back(bytes_of(nb::cast<nb::str>(text)));
    }
    handle_.call([&](Writer& writer) { return writer.set_attribute(name, std::move(value)); });
  }

  void remove_attribute(const std::string& name) {
    handle_.call([&](Writer& writer) { return writer.remove_attribute(name); });
  }

  void end_step() {
    handle_.call([](Writer& writer) { return writer.end_step(); });
  }

  void abort_step() {
    handle_.call([](Writer& writer) { return writer.abort_step(); });
  }

  void close() {
    handle_.call([](Writer& writer) { return writer.close(); });
    handle_.close();
  }

  void note_failure(nb::str what) {
    const std::string text = bytes_of(std::move(what));
    handle_.call([&](Writer& writer) {
      writer.note_failure(text);
      return Result<void>();
    });
  }

  void abandon() { handle_.close(); }

  std::uint64_t current_step() {
    return handle_.call([](Writer& writer) -> Result<std::uint64_t> { return writer.current_step(); });
  }
  std::uint32_t epoch() const { return epoch_; }
  std::uint32_t incarnation() const { return incarnation_; }
  nb::str interruption() const { return text_of(interruption_); }

 private:
  /// Writes a block, unless some of it was written before in this step. Under the handle's lock.
  template <class Function>
  auto once(const std::string& name, ShapeKind kind, const Dimensions& start, const Dimensions& count, Function write)
      -> std::invoke_result_t<Function> {
    if (auto checked = written_.check(name, kind, start, count); !checked) return fail(std::move(checked.error()));
    auto result = write();
    if (result) written_.add(name, kind, start, count);
    return result;
  }

  std::uint32_t epoch_;
  std::uint32_t incarnation_;
  std::string interruption_;
  WrittenBlocks written_;  ///< in the open step; guarded by the handle's lock
  Handle<Writer> handle_;
};

using OptionTexts = std::vector<std::pair<std::string, std::string>>;

/// InvalidArgumentError names the option and what it takes.
WriterOptions options_of(const OptionTexts& texts) {
  WriterOptions options;
  for (const auto& [name, text] : texts) {
    const WriterOption* option = find_writer_option(name);
    if (option == nullptr) {
      raise({ErrorCode::invalid_argument, "there is no option " + name, {}});
    }
    if (auto set = option->set(options, text); !set) {
      raise({ErrorCode::invalid_argument, name + "='" + text + "': " + set.error().what, {}});
    }
  }
  return options;
}

PythonWriter* open_writer(const std::string& address, bool append, std::uint32_t rank, std::uint32_t ranks,
                          std::string ranks_source, std::string group, const OptionTexts& texts, ServerPlace server) {
  const Address place = unwrap(parse_address(address));
  auto attention = std::make_shared<Attention>();
  WriterOptions options = options_of(texts);
  options.mode = append ? WriteMode::append : WriteMode::replace;
  options.rank = rank;
  options.ranks = ranks;
  options.ranks_source = std::move(ranks_source);
  options.group = std::move(group);
  options.server = std::move(server);
  options.interrupt = Attention::hook(attention);
  Result<std::unique_ptr<Writer>> writer = [&] {
    const WithoutGil released;
    return Writer::open(place, options);
  }();
  return new PythonWriter(unwrap(std::move(writer)), std::move(attention));
}

/// Tells readers that wait for this writer why it does not come.
void report_refused_writer(const std::string& address, nb::str why, std::string run, ServerPlace server) {
  const Address place = unwrap(parse_address(address));
  const std::string text = bytes_of(std::move(why));
  WriterOptions options;
  options.ranks = 0;  // not known
  options.run = std::move(run);
  options.server = std::move(server);
  unwrap([&] {
    const WithoutGil released;
    return Writer::report_refused(place, options, text);
  }());
}

/// Name, values and meaning of each option.
nb::list option_rows() {
  nb::list rows;
  for (const WriterOption& option : writer_options()) {
    rows.append(nb::make_tuple(option.name, option.values, option.meaning));
  }
  return rows;
}

}  // namespace

void bind_writer(nb::module_& module) {
  using namespace nb::literals;
  module.def("writer_options", &option_rows);
  module.def("report_refused_writer", &report_refused_writer, "address"_a, "why"_a, nb::kw_only(), "run"_a, "server"_a);
  module.def("check_writer_options", [](const OptionTexts& texts) { (void)options_of(texts); }, "options"_a);
  nb::class_<PythonWriter>(module, "Writer")
      .def_static("open", &open_writer, "address"_a, nb::kw_only(), "append"_a, "rank"_a, "ranks"_a, "ranks_source"_a,
                  "group"_a, "options"_a, "server"_a)
      .def("begin_step", &PythonWriter::begin_step, "number"_a.none() = nb::none())
      .def("put", &PythonWriter::put, "name"_a, "data_type"_a, "kind"_a, "shape"_a, "start"_a, "block"_a)
      .def("put_string", &PythonWriter::put_string, "name"_a, "kind"_a, "value"_a)
      .def("allocate", &PythonWriter::allocate, "name"_a, "data_type"_a, "kind"_a, "shape"_a, "start"_a, "count"_a)
      .def("set_attribute", &PythonWriter::set_attribute, "name"_a, "data_type"_a, "is_array"_a, "data"_a, "texts"_a)
      .def("remove_attribute", &PythonWriter::remove_attribute, "name"_a)
      .def("end_step", &PythonWriter::end_step)
      .def("abort_step", &PythonWriter::abort_step)
      .def("close", &PythonWriter::close)
      .def("note_failure", &PythonWriter::note_failure, "what"_a)
      .def("abandon", &PythonWriter::abandon)
      .def_prop_ro("current_step", &PythonWriter::current_step)
      .def_prop_ro("epoch", &PythonWriter::epoch)
      .def_prop_ro("incarnation", &PythonWriter::incarnation)
      .def_prop_ro("interruption", &PythonWriter::interruption);
}

}  // namespace forebay::python
