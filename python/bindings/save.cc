// SPDX-License-Identifier: Apache-2.0
/// Online save: Exporter over addresses, and connections of ranks. crossdock/_exporter.py keeps the tensors alive until a call returns.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <stop_token>
#include <tuple>

#include "bindings/module.h"
#include "bindings/run.h"
#include "crossdock/live_save.h"

namespace nb = nanobind;

namespace crossdock::python {
namespace {

using SavedAddress = std::tuple<std::string, std::uintptr_t, std::int64_t, std::string, std::vector<std::int64_t>>;

/// `str(object)` whatever its characters are, lone surrogates too; empty where it cannot be told. No exception leaves it.
std::string TextOf(nb::handle object) {
  const nb::object text = nb::steal(PyObject_Str(object.ptr()));
  const nb::object encoded = nb::steal(text.is_valid() ? PyUnicode_AsEncodedString(text.ptr(), "utf-8", "backslashreplace") : nullptr);
  char* data = nullptr;
  Py_ssize_t size = 0;
  if (!encoded.is_valid() || PyBytes_AsStringAndSize(encoded.ptr(), &data, &size) != 0) {
    PyErr_Clear();
    return "";
  }
  return std::string(data, static_cast<std::size_t>(size));
}

/// A connection that is written in Python: `rank`, `size`, `allgather_bytes(bytes) -> list[bytes]`. It is called with the GIL, from
/// whichever thread a save works in.
class PythonComm final : public Comm {
 public:
  explicit PythonComm(nb::object object) : object_(std::move(object)), rank_(nb::cast<int>(object_.attr("rank"))), size_(nb::cast<int>(object_.attr("size"))) {}
  ~PythonComm() override {
    const nb::gil_scoped_acquire acquire;
    object_.reset();
  }
  void Heed(std::stop_token stop) override { stop_ = std::move(stop); }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Result<std::vector<std::string>> AllGather(const std::string& bytes) override {
    const nb::gil_scoped_acquire acquire;
    try {
      const nb::bytes mine(bytes.data(), bytes.size());
      const nb::object all = nb::hasattr(object_, "allgather_until")
                                 ? object_.attr("allgather_until")(mine, nb::cpp_function([stop = stop_] { return stop.stop_requested(); }))
                                 : object_.attr("allgather_bytes")(mine);
      std::vector<std::string> out;
      for (const nb::handle one : all) {
        const nb::bytes text(one);
        out.emplace_back(text.c_str(), text.size());
      }
      return out;
    } catch (nb::python_error& error) {
      if (stop_.stop_requested()) return MakeError(ErrorCode::kCancelled, "the waiting for other ranks was interrupted");
      const std::string what = TextOf(error.value());
      const char* kind = PyExceptionClass_Name(error.type().ptr());   // of a class of Python's own: with no module before it
      return MakeError(ErrorCode::kIo, "the connection of the ranks failed").WithFound(std::string(kind) + ": " + Printable(what, 1000))
          .WithHint("a rank was killed or is too slow, or the connection is none that calls from another thread can use");
    } catch (const std::exception& error) {
      return MakeError(ErrorCode::kIo, "the connection of the ranks gave no list of bytes").WithFound(error.what());
    }
  }

 private:
  nb::object object_;
  const int rank_, size_;
  std::stop_token stop_;
};

std::shared_ptr<Comm> CommOf(const nb::object& object) {
  if (object.is_none()) return MakeSoloComm();
  if (nb::isinstance<Comm>(object)) return nb::cast<std::shared_ptr<Comm>>(object);
  return std::make_shared<PythonComm>(object);
}

std::vector<LiveBuffer> BuffersOf(const std::vector<SavedAddress>& addresses) {
  std::vector<LiveBuffer> buffers;
  buffers.reserve(addresses.size());
  for (const auto& [name, address, bytes, dtype, shape] : addresses) buffers.push_back({name, reinterpret_cast<void*>(address), bytes, dtype, shape});
  return buffers;
}

nb::tuple ReportOf(const ExportReport& report) {
  return nb::make_tuple(report.path, report.step, report.files, report.bytes, report.own_bytes, report.copied_bytes, report.seconds);
}

void BindComm(nb::module_& module) {
  nb::class_<Comm>(module, "Comm")
      .def_prop_ro("rank", &Comm::rank)
      .def_prop_ro("size", &Comm::size)
      .def("allgather_bytes", [](Comm& comm, const nb::bytes& bytes) {
        const std::string mine(bytes.c_str(), bytes.size());
        const std::vector<std::string> all = RunAndUnwrap({nb::none(), nb::none()}, [&](const Hooks& hooks) {
          comm.Heed(hooks.stop);
          Result<std::vector<std::string>> gathered = comm.AllGather(mine);
          comm.Heed({});
          return gathered;
        });
        nb::list out;
        for (const std::string& one : all) out.append(nb::bytes(one.data(), one.size()));
        return out;
      });
  module.def(
      "file_comm",
      [](const std::string& dir, int rank, int size, double timeout) -> std::shared_ptr<Comm> {
        return RunAndUnwrap({nb::none(), nb::none()}, [&](const Hooks&) { return MakeFileComm({dir, rank, size, timeout}); });
      },
      nb::arg("dir"), nb::arg("rank"), nb::arg("size"), nb::arg("timeout"));
}

void BindExportOptions(nb::module_& module) {
  nb::class_<Fp8Request>(module, "Fp8Request")
      .def(nb::init<>())
      .def_rw("strategy", &Fp8Request::strategy, nb::arg("value").none())
      .def_rw("block", &Fp8Request::block, nb::arg("value").none())
      .def_rw("scale_fmt", &Fp8Request::scale_format, nb::arg("value").none())
      .def_rw("format", &Fp8Request::format, nb::arg("value").none())
      .def_rw("arith", &Fp8Request::arithmetic, nb::arg("value").none())
      .def_rw("skip", &Fp8Request::skip)
      .def_rw("only", &Fp8Request::only)
      .def_rw("check_tp", &Fp8Request::check_tp, nb::arg("value").none());
  nb::class_<ExportOptions>(module, "ExportOptions")
      .def(nb::init<>())
      .def_rw("to", &ExportOptions::to)
      .def_rw("states", &ExportOptions::states)
      .def_rw("distributed_optimizer", &ExportOptions::distributed_optimizer)
      .def_rw("dst", &ExportOptions::dst)
      .def_rw("overwrite", &ExportOptions::overwrite)
      .def_rw("reference", &ExportOptions::reference)
      .def_rw("family", &ExportOptions::family, nb::arg("value").none())
      .def_rw("rules", &ExportOptions::rules, nb::arg("value").none())
      .def_rw("layout", &ExportOptions::layout)
      .def_prop_rw(
          "place",
          [](const ExportOptions& o) { return std::tuple(o.place.tensor, o.place.stage, o.place.expert, o.place.expert_tensor); },
          [](ExportOptions& o, const std::tuple<int, int, int, int>& p) { o.place = {std::get<0>(p), std::get<1>(p), std::get<2>(p), std::get<3>(p)}; })
      .def_rw("dtype", &ExportOptions::dtype, nb::arg("value").none())
      .def_rw("keep_dtype", &ExportOptions::keep_dtype)
      .def_rw("fp8", &ExportOptions::fp8)
      .def_rw("max_shard_bytes", &ExportOptions::max_shard_bytes)
      .def_rw("mtp", &ExportOptions::mtp)
      .def_rw("local_layers", &ExportOptions::local_layers)
      .def_rw("grouped_experts", &ExportOptions::grouped_experts)
      .def_rw("vocab_divisor", &ExportOptions::vocab_divisor, nb::arg("value").none())
      .def_rw("padded_vocab", &ExportOptions::padded_vocab, nb::arg("value").none())
      .def_rw("set_args", &ExportOptions::set_args)
      .def_rw("run_args", &ExportOptions::run_args)
      .def_rw("allow", &ExportOptions::allow)
      .def_rw("memory", &ExportOptions::memory)
      .def_rw("threads", &ExportOptions::threads)
      .def_rw("snapshot", &ExportOptions::snapshot);
}

/// A status as what RunAndUnwrap takes.
Result<bool> Done(const Status& status) { return status ? Result<bool>(true) : Result<bool>(status.error()); }

/// Ends with the GIL released: the destructor of an exporter waits for its job, whose connection may want it.
struct OwnedExporter {
  std::unique_ptr<Exporter> exporter;
  bool snapshot = false;
  ~OwnedExporter() {
    const nb::gil_scoped_release release;
    exporter.reset();
  }
};

}  // namespace

void BindSave(nb::module_& module) {
  BindComm(module);
  BindExportOptions(module);
  nb::class_<ExportJob>(module, "ExportJob")
      .def("done", &ExportJob::Done)
      .def(
          "wait",
          [](ExportJob& job, double seconds) {
            return ReportOf(RunAndUnwrap({nb::none(), nb::none()}, [&](const Hooks& hooks) { return job.Wait(seconds, hooks.stop); }));
          },
          nb::arg("seconds"));
  nb::class_<OwnedExporter>(module, "Exporter")
      .def_static(
          "make",
          [](const ExportOptions& options, const nb::object& comm) {
            auto owned = std::make_unique<OwnedExporter>();
            owned->exporter = Unwrap(Exporter::Make(options, CommOf(comm)));
            owned->snapshot = options.snapshot;
            return owned.release();
          },
          nb::rv_policy::take_ownership, nb::arg("options"), nb::arg("comm").none())
      .def("validate",
           [](OwnedExporter& self) {
             RunAndUnwrap({nb::none(), nb::none()}, [&](const Hooks& hooks) {
               self.exporter->Heed(hooks.stop);
               return Done(self.exporter->Validate());
             });
           })
      .def("tensors",
           [](const OwnedExporter& self) {
             nb::list out;
             for (const LiveTensor& tensor : self.exporter->tensors()) out.append(nb::make_tuple(tensor.name, tensor.dtype, tensor.shape));
             return out;
           })
      .def(
          "save",
          [](OwnedExporter& self, std::int64_t step, const std::vector<SavedAddress>& addresses, nb::object progress, const nb::bytes& common) {
            const std::vector<LiveBuffer> buffers = BuffersOf(addresses);
            const std::string text(common.c_str(), common.size());
            return RunAndUnwrap({std::move(progress), nb::none()}, [&](const Hooks& hooks) {
              self.exporter->Heed(hooks.stop);
              return self.exporter->Save(step, buffers, self.snapshot ? Hooks() : hooks, text);
            });
          },
          nb::arg("step"), nb::arg("addresses"), nb::arg("progress").none(), nb::arg("common"))
      .def(
          "refuse",
          [](OwnedExporter& self, std::int64_t step, const std::string& why) {
            RunAndUnwrap({nb::none(), nb::none()}, [&](const Hooks& hooks) {
              self.exporter->Heed(hooks.stop);
              return Done(self.exporter->Refuse(step, MakeError(ErrorCode::kCancelled, "the loop could not hand over its tensors").WithFound(Printable(why, 1000))));
            });
          },
          nb::arg("step"), nb::arg("why"));
}

}  // namespace crossdock::python
