// SPDX-License-Identifier: Apache-2.0
#include "bindings/module.h"

NB_MODULE(_core, module) {
  // An exception that ends the program keeps the frames that it passed, and what they hold, past the end: no leak of ours to warn of.
  nanobind::set_leak_warnings(false);
  module.doc() = "The engine of crossdock. Private: use the package.";
  crossdock::python::BindArray(module);
  crossdock::python::BindCommands(module);
  crossdock::python::BindTensor(module);
  crossdock::python::BindView(module);
  crossdock::python::BindLive(module);
  crossdock::python::BindSave(module);
}
