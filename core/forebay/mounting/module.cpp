// SPDX-License-Identifier: Apache-2.0
// The Python module forebay._fuse: a tree that Python describes, shown by FUSE. Reads of memory need no Python.
#include <cerrno>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "fuse_mount.h"
#include "shown_tree.h"
#include "view_content.h"

namespace nb = nanobind;

namespace forebay::mounting {

namespace {

/// A Python object that goes, with the GIL, when the last owner of the bytes does.
std::shared_ptr<const void> kept(nb::handle object) {
  return {new nb::object(nb::borrow(object)), [](const nb::object* held) {
            const nb::gil_scoped_acquire gil;
            delete held;
          }};
}

/// The memory of a contiguous buffer, as long as the object lives.
class Buffer {
 public:
  explicit Buffer(nb::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) {
      throw nb::python_error();
    }
  }
  ~Buffer() { PyBuffer_Release(&view_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(view_.buf), static_cast<std::size_t>(view_.len)};
  }

 private:
  Py_buffer view_{};
};

/// The errno of the Python exception that was caught: that of an OSError, else EIO.
int error_of(nb::python_error& error) {
  int number = EIO;
  if (error.matches(PyExc_OSError)) {
    const nb::object found = nb::getattr(error.value(), "errno", nb::none());
    if (!found.is_none()) {
      number = nb::cast<int>(found);
    }
  } else {
    error.discard_as_unraisable("a view");
  }
  return number;
}

template <class Call>
int with_python(Call call) {
  const nb::gil_scoped_acquire gil;
  try {
    call();
    return 0;
  } catch (nb::python_error& error) {
    return error_of(error);
  } catch (const std::exception& error) {
    PySys_WriteStderr("%.400s\n", error.what());
    return EIO;
  }
}

/// `ViewContent` as Python fills it.
class PythonContent {
 public:
  explicit PythonContent(std::uint64_t size_bytes) : content_(std::make_shared<ViewContent>(size_bytes)) {}

  void add_memory(std::uint64_t offset, nb::handle buffer) {
    auto held = std::shared_ptr<Buffer>(new Buffer(buffer), [](Buffer* given) {
      const nb::gil_scoped_acquire gil;
      delete given;
    });
    const std::span<const std::byte> bytes = held->bytes();
    content_->add_memory(offset, bytes, std::move(held));
  }

  /// `read(start, stop)` gives a buffer of stop - start bytes.
  void add_read(std::uint64_t offset, std::uint64_t size_bytes, nb::handle read) {
    content_->add_filled(offset, size_bytes,
                         [function = std::static_pointer_cast<const nb::object>(kept(read))](std::uint64_t start,
                                                                                             std::span<std::byte> out) {
                           return with_python([&] {
                             const nb::object found = (*function)(start, start + out.size());
                             const Buffer buffer(found);
                             if (buffer.bytes().size() != out.size()) {
                               throw std::length_error("a part of an array has another size than was asked for");
                             }
                             std::memcpy(out.data(), buffer.bytes().data(), out.size());
                           });
                         });
  }

  std::shared_ptr<const ViewContent> sorted() const {
    content_->sort();
    return content_;
  }

 private:
  std::shared_ptr<ViewContent> content_;
};

/// A Python object with look_up, list_folder and open; see forebay.views.shown_stream.
class PythonTree final : public ShownTree {
 public:
  explicit PythonTree(nb::object tree) : tree_(std::move(tree)) {}

  int look_up(const std::string& path, NodeAttributes& out) override {
    return with_python([&] {
      const auto found = nb::cast<nb::tuple>(tree_.attr("look_up")(nb::bytes(path.data(), path.size())));
      out.kind = static_cast<NodeKind>(nb::cast<int>(found[0]));
      out.size_bytes = nb::cast<std::uint64_t>(found[1]);
      out.time_ns = nb::cast<std::int64_t>(found[2]);
      out.target = text_of(found[3]);
      out.version = nb::cast<std::uint64_t>(found[4]);
    });
  }

  int list(const std::string& path, std::vector<ListedNode>& out) override {
    return with_python([&] {
      for (const nb::handle one : nb::cast<nb::list>(tree_.attr("list_folder")(nb::bytes(path.data(), path.size())))) {
        out.push_back({text_of(one[0]), static_cast<NodeKind>(nb::cast<int>(one[1]))});
      }
    });
  }

  int open(const std::string& path, std::uint64_t version, std::shared_ptr<const ViewContent>& out) override {
    return with_python([&] {
      const nb::object found = tree_.attr("open")(nb::bytes(path.data(), path.size()), version);
      out = nb::cast<const PythonContent&>(found).sorted();
    });
  }

 private:
  static std::string text_of(nb::handle bytes) {
    const Buffer buffer(bytes);
    return {reinterpret_cast<const char*>(buffer.bytes().data()), buffer.bytes().size()};
  }

  nb::object tree_;
};

class PythonMount {
 public:
  PythonMount(nb::object tree, const std::string& folder, const std::string& source) : tree_(std::move(tree)) {
    std::string error;
    {
      const nb::gil_scoped_release released;
      mount_ = FuseMount::mount(tree_, folder, source, error);
    }
    if (mount_ == nullptr) {
      throw std::runtime_error(error);
    }
  }

  int run() {
    const nb::gil_scoped_release released;
    const int status = mount_->run();
    mount_.reset();
    return status;
  }

 private:
  PythonTree tree_;
  std::unique_ptr<FuseMount> mount_;
};

}  // namespace

}  // namespace forebay::mounting

NB_MODULE(_fuse, module) {
  using namespace forebay::mounting;
  nb::class_<PythonContent>(module, "Content")
      .def(nb::init<std::uint64_t>(), nb::arg("size_bytes"))
      .def("add_memory", &PythonContent::add_memory, nb::arg("offset"), nb::arg("buffer"))
      .def("add_read", &PythonContent::add_read, nb::arg("offset"), nb::arg("size_bytes"), nb::arg("read"));
  nb::class_<PythonMount>(module, "Mount")
      .def(nb::init<nb::object, const std::string&, const std::string&>(), nb::arg("tree"), nb::arg("folder"),
           nb::arg("source"))
      .def("run", &PythonMount::run);
}
