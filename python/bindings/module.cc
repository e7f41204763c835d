// SPDX-License-Identifier: Apache-2.0
#include "bindings/module.h"

NB_MODULE(_core, module) {
  module.doc() = "The engine of crossdock. Private: use the package.";
  crossdock::python::BindArray(module);
  crossdock::python::BindCommands(module);
  crossdock::python::BindTensor(module);
  crossdock::python::BindView(module);
  crossdock::python::BindLive(module);
  crossdock::python::BindSave(module);
}
