// SPDX-License-Identifier: Apache-2.0
#include "bindings/tensor.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <new>

#include "bindings/module.h"

namespace nb = nanobind;

namespace crossdock::python {
namespace {

using Code = nb::dlpack::dtype_code;

constexpr nb::dlpack::dtype Type(Code code, int bits) { return {static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(bits), 1}; }

constexpr std::array kWords = {
    DTypeWords{"U64", "Q", 8, Type(Code::UInt, 64)},
    DTypeWords{"I64", "q", 8, Type(Code::Int, 64)},
    DTypeWords{"F64", "d", 8, Type(Code::Float, 64)},
    DTypeWords{"C64", "Zf", 8, Type(Code::Complex, 64)},
    DTypeWords{"F32", "f", 4, Type(Code::Float, 32)},
    DTypeWords{"U32", "I", 4, Type(Code::UInt, 32)},
    DTypeWords{"I32", "i", 4, Type(Code::Int, 32)},
    DTypeWords{"BF16", "H", 2, Type(Code::Bfloat, 16)},
    DTypeWords{"F16", "e", 2, Type(Code::Float, 16)},
    DTypeWords{"U16", "H", 2, Type(Code::UInt, 16)},
    DTypeWords{"I16", "h", 2, Type(Code::Int, 16)},
    DTypeWords{"F8_E5M2FNUZ", "B", 1, Type(Code::Float8_E5M2FNUZ, 8)},
    DTypeWords{"F8_E4M3FNUZ", "B", 1, Type(Code::Float8_E4M3FNUZ, 8)},
    DTypeWords{"F8_E8M0", "B", 1, Type(Code::Float8_E8M0FNU, 8)},
    DTypeWords{"F8_E4M3", "B", 1, Type(Code::Float8_E4M3FN, 8)},
    DTypeWords{"F8_E5M2", "B", 1, Type(Code::Float8_E5M2, 8)},
    DTypeWords{"I8", "b", 1, Type(Code::Int, 8)},
    DTypeWords{"U8", "B", 1, Type(Code::UInt, 8)},
    DTypeWords{"BOOL", "?", 1, Type(Code::Bool, 8)},
};

int GetBuffer(PyObject* self, Py_buffer* view, int flags) {
  Tensor* tensor = nb::inst_ptr<Tensor>(nb::handle(self));
  const bool strided = (flags & PyBUF_STRIDES) == PyBUF_STRIDES;
  view->buf = tensor->memory().data();
  view->len = static_cast<Py_ssize_t>(tensor->memory().size());
  view->readonly = 0;
  view->itemsize = tensor->words().bytes;
  view->format = (flags & PyBUF_FORMAT) != 0 ? const_cast<char*>(tensor->words().letter) : nullptr;  // the protocol's own type
  view->ndim = static_cast<int>(tensor->shape().size());
  view->shape = (flags & PyBUF_ND) != 0 ? tensor->buffer_shape.data() : nullptr;
  view->strides = strided ? tensor->buffer_strides.data() : nullptr;
  view->suboffsets = nullptr;
  view->internal = nullptr;
  view->obj = Py_NewRef(self);
  return 0;
}

const PyType_Slot kSlots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(GetBuffer)}, {0, nullptr}};

nb::tuple ShapeOf(const Tensor& tensor) {
  nb::list out;
  for (const std::int64_t size : tensor.shape()) out.append(size);
  return nb::tuple(out);
}

nb::object DlPack(const nb::handle& self, const nb::kwargs& options) {
  const Tensor* tensor = nb::inst_ptr<Tensor>(self);
  const std::vector<std::size_t> shape(tensor->shape().begin(), tensor->shape().end());
  const nb::ndarray<nb::array_api> array(tensor->memory().data(), shape.size(), shape.data(), self, nullptr, tensor->words().dlpack, nb::device::cpu::value, 0, 'C');
  return nb::cast(array, nb::rv_policy::reference).attr("__dlpack__")(**options);
}

}  // namespace

const DTypeWords* WordsOf(const std::string& dtype) {
  const auto found = std::ranges::find(kWords, std::string_view(dtype), [](const DTypeWords& words) { return std::string_view(words.name); });
  return found == kWords.end() ? nullptr : &*found;
}

Tensor::Tensor(const DTypeWords& words, std::vector<std::int64_t> shape) : words_(&words), shape_(std::move(shape)) {
  constexpr std::size_t kAlignment = 64;
  std::int64_t stride = words.bytes;
  buffer_shape.assign(shape_.begin(), shape_.end());
  buffer_strides.resize(shape_.size());
  for (std::size_t axis = shape_.size(); axis-- > 0;) {
    buffer_strides[axis] = stride;
    stride *= shape_[axis];
  }
  bytes_ = static_cast<std::size_t>(stride);
  const std::size_t rounded = std::max(bytes_ + kAlignment - 1, kAlignment) / kAlignment * kAlignment;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded)));
  if (!data_) throw std::bad_alloc();
}

void BindTensor(nb::module_& module) {
  nb::class_<Tensor>(module, "Tensor", nb::type_slots(kSlots),
                     "A tensor in memory, row-major. Others take it without a copy by DLPack (torch.from_dlpack, jax.dlpack.from_dlpack) or by\n"
                     "the buffer protocol (memoryview, numpy.asarray), where BF16 and FP8 appear as unsigned integers of their bits.")
      .def_prop_ro("dtype", [](const Tensor& t) { return std::string(t.words().name); }, "As safetensors spells it: \"BF16\", \"F8_E4M3\".")
      .def_prop_ro("shape", &ShapeOf, "A tuple, the slowest axis first.")
      .def_prop_ro("nbytes", [](const Tensor& t) { return t.memory().size(); }, "Bytes of the elements.")
      .def("__dlpack__", &DlPack, nb::arg("options"), nb::sig("def __dlpack__(self, **options) -> object"))
      .def("__dlpack_device__", [](const Tensor&) { return nb::make_tuple(1, 0); })
      .def("__len__", [](const Tensor& t) {
        if (t.shape().empty()) throw nb::type_error("a tensor without axes has no length");
        return t.shape().front();
      })
      .def("__repr__", [](const nb::handle& self) {
        const Tensor* t = nb::inst_ptr<Tensor>(self);
        return nb::str("<crossdock.Tensor {} {}>").format(t->words().name, ShapeOf(*t));
      });
}

}  // namespace crossdock::python
