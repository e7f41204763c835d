// SPDX-License-Identifier: Apache-2.0
/// Where the elements of whatever DLPack or the buffer protocol reaches lie; crossdock/_memory.py knows the rest.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <array>
#include <cstdint>
#include <string>

#include "bindings/module.h"

namespace nb = nanobind;

namespace crossdock::python {
namespace {

/// As numpy and ml_dtypes call it; what is not known as the numbers of DLPack.
std::string NameOf(const nb::dlpack::dtype& dtype) {
  using Code = nb::dlpack::dtype_code;
  const std::string bits = std::to_string(dtype.bits);
  if (dtype.lanes == 1) {
    switch (static_cast<Code>(dtype.code)) {
      case Code::Int: return "int" + bits;
      case Code::UInt: return "uint" + bits;
      case Code::Float: return "float" + bits;
      case Code::Bfloat: return "bfloat" + bits;
      case Code::Complex: return "complex" + bits;
      case Code::Bool: return "bool";
      case Code::Float8_E4M3FN: return "float8_e4m3fn";
      case Code::Float8_E4M3FNUZ: return "float8_e4m3fnuz";
      case Code::Float8_E5M2: return "float8_e5m2";
      case Code::Float8_E5M2FNUZ: return "float8_e5m2fnuz";
      case Code::Float8_E8M0FNU: return "float8_e8m0fnu";
      default: break;
    }
  }
  return "DLPack(" + std::to_string(dtype.code) + "," + bits + "," + std::to_string(dtype.lanes) + ")";
}

nb::tuple Describe(const nb::ndarray<nb::ro>& array) {
  nb::list shape, strides;
  for (std::size_t i = 0; i < array.ndim(); ++i) {
    shape.append(array.shape(i));
    strides.append(array.stride(i));
  }
  return nb::make_tuple(reinterpret_cast<std::uintptr_t>(array.data()), array.nbytes(), NameOf(array.dtype()), array.device_type(), nb::tuple(shape),
                        nb::tuple(strides));
}

}  // namespace

void BindArray(nb::module_& module) {
  module.def(
      "array_of", [](nb::object object, bool writable) {
        // Exported once: the memory may be of this export alone, and may be freed, or resized, when the export is given back.
        nb::ndarray<nb::ro> array;
        nb::ndarray<> changeable;
        const bool read_only = !writable || !nb::try_cast(object, changeable);
        if (!read_only) {
          array = nb::ndarray<nb::ro>(changeable.handle());
        } else if (!nb::try_cast(object, array)) {
          return nb::object(nb::none());
        }
        const nb::capsule owner(new nb::ndarray<nb::ro>(array), [](void* held) noexcept { delete static_cast<nb::ndarray<nb::ro>*>(held); });
        return nb::object(nb::make_tuple(Describe(array), read_only, owner));
      },
      nb::arg("object"), nb::arg("writable"),
      "((address, bytes, dtype, device, shape, strides in elements), read_only, owner), or None for what is no array. The memory is there as long "
      "as owner is. Without writable read_only means nothing.");
}

}  // namespace crossdock::python
