// SPDX-License-Identifier: Apache-2.0
// The Python module forebay.workflows.staging._bp5. Arrays come and go as bytes (uint8), types as the format's codes.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bp5_file.h"

namespace nb = nanobind;
using forebay::AttributeValue;
using forebay::DataType;
using forebay::Dimensions;
using forebay::staging::Bp5Reader;
using forebay::staging::Bp5Variable;
using forebay::staging::Bp5Writer;

namespace {

using Bytes = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using WritableBytes = nb::ndarray<std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

DataType type_of(int code) {
  if (code < static_cast<int>(DataType::character) || code > static_cast<int>(DataType::string)) {
    throw std::invalid_argument("there is no element type " + std::to_string(code));
  }
  return static_cast<DataType>(code);
}

std::size_t size_of(DataType type) {
  return forebay::staging::with_element_type(type, []<class T>() { return sizeof(T); });
}

/// The writer, with the arrays that it still points into.
class Writer {
 public:
  explicit Writer(const std::string& path) : writer_(path) {}

  void put(const std::string& name, int code, const Dimensions& shape, const Dimensions& start, const Dimensions& count,
           Bytes data) {
    const DataType type = type_of(code);
    if (data.size() != forebay::element_count(count) * size_of(type)) {
      throw std::invalid_argument("the bytes for variable " + name + " do not have the block's size");
    }
    held_.push_back(data);
    const nb::gil_scoped_release released;
    writer_.put(name, type, shape, start, count, reinterpret_cast<const std::byte*>(data.data()));
  }

  void put_string(const std::string& name, const std::string& value) { writer_.put_string(name, value); }

  void set_attribute(const std::string& name, int code, bool is_array, nb::bytes data, std::vector<std::string> texts) {
    AttributeValue value{.type = type_of(code), .is_array = is_array, .bytes = {}, .strings = std::move(texts)};
    const auto* begin = reinterpret_cast<const std::byte*>(data.c_str());
    value.bytes.assign(begin, begin + data.size());
    writer_.set_attribute(name, value);
  }

  void next_step() {
    {
      const nb::gil_scoped_release released;
      writer_.next_step();
    }
    held_.clear();
  }

  void close() {
    {
      const nb::gil_scoped_release released;
      writer_.close();
    }
    held_.clear();
  }

 private:
  std::vector<Bytes> held_;
  Bp5Writer writer_;
};

class Reader {
 public:
  Reader(const std::string& path, bool step_by_step) : reader_(path, step_by_step) {
    if (!step_by_step) variables_ = reader_.variables();
  }

  bool next_step() {
    const bool found = reader_.next_step();
    variables_ = found ? reader_.variables() : std::vector<Bp5Variable>();
    return found;
  }

  std::size_t steps() const { return reader_.steps(); }

  using Block = std::tuple<Dimensions, Dimensions>;
  using Described = std::tuple<std::string, int, bool, Dimensions, std::vector<Block>>;
  std::vector<Described> variables() const {
    std::vector<Described> described;
    for (const Bp5Variable& variable : variables_) {
      std::vector<Block> blocks;
      for (const forebay::Box& box : variable.blocks) {
        blocks.emplace_back(box.start, box.count);
      }
      described.emplace_back(variable.name, static_cast<int>(variable.type), variable.is_value, variable.shape, blocks);
    }
    return described;
  }

  nb::list attributes() {
    nb::list described;
    for (const auto& [name, value] : reader_.attributes()) {
      described.append(nb::make_tuple(name, static_cast<int>(value.type), value.is_array,
                                      nb::bytes(value.bytes.data(), value.bytes.size()), value.strings));
    }
    return described;
  }

  void read_block(std::size_t variable, std::size_t block, WritableBytes out) {
    const nb::gil_scoped_release released;
    reader_.read_block(variables_.at(variable), block, reinterpret_cast<std::byte*>(out.data()), out.size());
  }

  std::string read_string(const std::string& name) { return reader_.read_string(name); }

  void close() { reader_.close(); }

 private:
  Bp5Reader reader_;
  std::vector<Bp5Variable> variables_;
};

}  // namespace

NB_MODULE(_bp5, module) {
  nb::class_<Writer>(module, "Writer")
      .def(nb::init<const std::string&>(), nb::arg("path"))
      .def("put", &Writer::put, nb::arg("name"), nb::arg("code"), nb::arg("shape"), nb::arg("start"), nb::arg("count"),
           nb::arg("data"))
      .def("put_string", &Writer::put_string, nb::arg("name"), nb::arg("value"))
      .def("set_attribute", &Writer::set_attribute, nb::arg("name"), nb::arg("code"), nb::arg("is_array"),
           nb::arg("data"), nb::arg("texts"))
      .def("next_step", &Writer::next_step)
      .def("close", &Writer::close);
  nb::class_<Reader>(module, "Reader")
      .def(nb::init<const std::string&, bool>(), nb::arg("path"), nb::arg("step_by_step") = false)
      .def_prop_ro("steps", &Reader::steps)
      .def("next_step", &Reader::next_step)
      .def("variables", &Reader::variables)
      .def("attributes", &Reader::attributes)
      .def("read_block", &Reader::read_block, nb::arg("variable"), nb::arg("block"), nb::arg("out"))
      .def("read_string", &Reader::read_string, nb::arg("name"))
      .def("close", &Reader::close);
}
