// SPDX-License-Identifier: Apache-2.0
/// Online load: LoadPlan over addresses. crossdock/_live.py turns tensors of any library into addresses and keeps them alive.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <tuple>

#include "bindings/module.h"
#include "bindings/run.h"
#include "crossdock/live.h"
#include "crossdock/resume_plan.h"

namespace nb = nanobind;

namespace crossdock::python {
namespace {

using Place = std::tuple<int, int, int, int>;
using Step = std::optional<std::pair<std::int64_t, bool>>;   ///< number, release
/// name, address, bytes, dtype, shape
using Address = std::tuple<std::string, std::uintptr_t, std::int64_t, std::string, std::vector<std::int64_t>>;

RankPlace PlaceOf(const Place& place) { return {std::get<0>(place), std::get<1>(place), std::get<2>(place), std::get<3>(place)}; }

std::optional<StepChoice> StepOf(const Step& step) {
  return step ? std::optional(StepChoice{step->first, step->second}) : std::nullopt;
}

void BindLayout(nb::module_& module) {
  nb::class_<LayoutOptions>(module, "LayoutOptions")
      .def(nb::init<>())
      .def_rw("tp", &LayoutOptions::tp)
      .def_rw("pp", &LayoutOptions::pp)
      .def_rw("ep", &LayoutOptions::ep)
      .def_rw("etp", &LayoutOptions::etp)
      .def_rw("encoder_tp", &LayoutOptions::encoder_tp)
      .def_rw("pipeline_layers", &LayoutOptions::pipeline_layers)
      .def_rw("first_stage_layers", &LayoutOptions::first_stage_layers, nb::arg("value").none())
      .def_rw("last_stage_layers", &LayoutOptions::last_stage_layers, nb::arg("value").none())
      .def_rw("vpp", &LayoutOptions::vpp)
      .def_rw("layers_per_virtual_stage", &LayoutOptions::layers_per_virtual_stage, nb::arg("value").none())
      .def_rw("pipeline_layout", &LayoutOptions::pipeline_layout)
      .def_rw("account_for_embedding", &LayoutOptions::account_for_embedding)
      .def_rw("account_for_loss", &LayoutOptions::account_for_loss)
      .def_rw("given", &LayoutOptions::given);
  module.def(
      "place_of_rank",
      [](const LayoutOptions& layout, int rank, int world_size, int context_parallel) -> Place {
        const RankPlace place = Unwrap(PlaceOfRank(layout, {rank, world_size, context_parallel}));
        return {place.tensor, place.stage, place.expert, place.expert_tensor};
      },
      nb::arg("layout"), nb::arg("rank"), nb::arg("world_size"), nb::arg("context_parallel"));
}

void BindLoadOptions(nb::module_& module) {
  nb::class_<LoadOptions>(module, "LoadOptions")
      .def(nb::init<>())
      .def_rw("path", &LoadOptions::path)
      .def_rw("source_format", &LoadOptions::from, nb::arg("value").none())
      .def_prop_rw(
          "step", [](const LoadOptions& o) -> Step { return o.step ? Step({o.step->number, o.step->release}) : Step(); },
          [](LoadOptions& o, const Step& step) { o.step = StepOf(step); }, nb::arg("value").none())
      .def_rw("family", &LoadOptions::family, nb::arg("value").none())
      .def_rw("rules", &LoadOptions::rules, nb::arg("value").none())
      .def_rw("hf_template", &LoadOptions::hf_template, nb::arg("value").none())
      .def_rw("layout", &LoadOptions::layout)
      .def_prop_rw(
          "place",
          [](const LoadOptions& o) -> Place { return {o.place.tensor, o.place.stage, o.place.expert, o.place.expert_tensor}; },
          [](LoadOptions& o, const Place& place) { o.place = PlaceOf(place); })
      .def_rw("dtype", &LoadOptions::dtype, nb::arg("value").none())
      .def_rw("keep_dtype", &LoadOptions::keep_dtype)
      .def_rw("consumer", &LoadOptions::consumer)
      .def_rw("local_layers", &LoadOptions::local_layers)
      .def_rw("grouped_experts", &LoadOptions::grouped_experts)
      .def_rw("vocab_divisor", &LoadOptions::vocab_divisor, nb::arg("value").none())
      .def_rw("padded_vocab", &LoadOptions::padded_vocab, nb::arg("value").none())
      .def_rw("mtp", &LoadOptions::mtp)
      .def_rw("set_args", &LoadOptions::set_args)
      .def_rw("allow", &LoadOptions::allow);
}

nb::tuple ReadInto(LoadPlan& plan, const std::vector<Address>& addresses, const ReadIntoOptions& options, nb::object progress) {
  std::vector<LiveBuffer> buffers;
  buffers.reserve(addresses.size());
  for (const auto& [name, address, bytes, dtype, shape] : addresses) {
    buffers.push_back({name, reinterpret_cast<void*>(address), bytes, dtype, shape});
  }
  const LoadReport report = RunAndUnwrap({std::move(progress), nb::none()}, [&](const Hooks& hooks) { return plan.ReadInto(buffers, options, hooks); });
  return nb::make_tuple(report.tensors, report.bytes_read, report.bytes_written, report.peak_buffer_bytes);
}

}  // namespace

void BindLive(nb::module_& module) {
  BindLayout(module);
  BindLoadOptions(module);
  nb::class_<LoadPlan>(module, "LoadPlan")
      .def_static(
          "make",
          [](const LoadOptions& options, nb::object progress) {
            return RunAndUnwrap({std::move(progress), nb::none()}, [&](const Hooks& hooks) { return LoadPlan::Make(options, hooks); });
          },
          nb::arg("options"), nb::arg("progress").none())
      .def("tensors",
           [](const LoadPlan& plan) {
             nb::list out;
             for (const LiveTensor& tensor : plan.tensors()) out.append(nb::make_tuple(tensor.name, tensor.dtype, tensor.shape));
             return out;
           })
      .def("notices", [](const LoadPlan& plan) { return plan.notices(); })
      .def(
          "read_into",
          [](LoadPlan& plan, const std::vector<Address>& addresses, int threads, std::int64_t memory, bool strict, bool cast, nb::object progress) {
            return ReadInto(plan, addresses, {threads, memory, strict, cast}, std::move(progress));
          },
          nb::arg("addresses"), nb::arg("threads"), nb::arg("memory"), nb::arg("strict"), nb::arg("cast"), nb::arg("progress").none());
  module.def(
      "detect_resume",
      [](const std::string& load, const std::string& pretrained, const Step& step, bool no_optim, bool no_rng) {
        const ResumeDecision d = RunAndUnwrap({nb::none(), nb::none()}, [&](const Hooks&) {
          return DetectResume({load, pretrained, StepOf(step), no_optim, no_rng});
        });
        return nb::make_tuple(ResumeActionName(d.action), d.format, d.path, d.step, d.release, d.load_optim, d.load_rng, d.finetune, d.reason, d.notices);
      },
      nb::arg("load"), nb::arg("pretrained"), nb::arg("step").none(), nb::arg("no_optim"), nb::arg("no_rng"));
}

}  // namespace crossdock::python
