// SPDX-License-Identifier: Apache-2.0
/// \file  The parts of crossdock._core, each bound by a file of its own.
#pragma once

#include <nanobind/nanobind.h>

namespace crossdock::python {

void BindArray(nanobind::module_& module);
void BindCommands(nanobind::module_& module);
void BindTensor(nanobind::module_& module);
void BindView(nanobind::module_& module);
void BindLive(nanobind::module_& module);
void BindSave(nanobind::module_& module);

}  // namespace crossdock::python
