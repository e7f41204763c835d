// SPDX-License-Identifier: Apache-2.0
#include "bindings/raise.h"

#include <nanobind/stl/string.h>

#include <string>
#include <string_view>

namespace nb = nanobind;

namespace crossdock::python {
namespace {

/// Names in files need not be UTF-8; an exception must not fail for that.
nb::object Text(std::string_view text) {
  return nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace"));
}

}  // namespace

void Raise(const Error& error) {
  nb::dict fields;
  fields["code"] = Text(ErrorCodeName(error.code));
  fields["message"] = Text(error.message);
  fields["path"] = Text(error.path);
  fields["tensor"] = Text(error.tensor);
  fields["offset"] = error.offset ? nb::cast(*error.offset) : nb::none();
  fields["expected"] = Text(error.expected);
  fields["found"] = Text(error.found);
  fields["hint"] = Text(error.NextStep());
  const nb::object made = nb::module_::import_("crossdock.errors").attr("_from_core")(Text(error.ToString()), fields);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
  throw nb::python_error();
}

}  // namespace crossdock::python
