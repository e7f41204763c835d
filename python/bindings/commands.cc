// SPDX-License-Identifier: Apache-2.0
/// The commands: names and texts in, the parts of a report out. crossdock/_commands.py gives them their signatures.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/module.h"
#include "bindings/run.h"
#include "crossdock/call.h"

namespace nb = nanobind;

namespace crossdock::python {
namespace {

nb::tuple RunCommand(Call call, nb::object progress, nb::object notice) {
  const Report report =
      RunAndUnwrap({std::move(progress), std::move(notice)}, [&](const Hooks& hooks) { return RunCall(call, hooks); });
  return nb::make_tuple(report.text, report.json, report.equal, report.consistent, report.remarks);
}

}  // namespace

void BindCommands(nb::module_& module) {
  using Options = decltype(Call::options);
  module.def(
      "run_command",
      [](std::string command, std::vector<std::string> paths, Options options, nb::object progress, nb::object notice) {
        return RunCommand({std::move(command), std::move(paths), std::move(options)}, std::move(progress), std::move(notice));
      },
      nb::arg("command"), nb::arg("paths"), nb::arg("options"), nb::arg("progress").none(), nb::arg("notice").none(),
      "Runs a command; returns (text, json, equal, consistent, remarks).");
  module.def("version", &VersionString, "\"crossdock 0.1.0\", as `crossdock --version`.");
}

}  // namespace crossdock::python
