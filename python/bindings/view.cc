// SPDX-License-Identifier: Apache-2.0
/// crossdock.open: a checkpoint by its Hugging Face names. crossdock/_view.py makes of this what safetensors.safe_open gives.
#include "crossdock/view.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <atomic>

#include "bindings/module.h"
#include "bindings/run.h"
#include "bindings/tensor.h"
#include "crossdock/call.h"

namespace nb = nanobind;

namespace crossdock::python {
namespace {

/// A read of less is over before a thread of its own would have started; Ctrl-C waits for it.
constexpr std::size_t kShortRead = std::size_t{4} << 20U;

class OpenedView {
 public:
  OpenedView(std::string path, decltype(Call::options) options, nb::object notice)
      : view_(RunAndUnwrap({nb::none(), std::move(notice)}, [&](const Hooks& hooks) { return OpenView({"open", {path}, options}, hooks); })) {}

  [[nodiscard]] nb::list Keys() const {
    nb::list out;
    for (const ViewTensor& tensor : view_->tensors()) out.append(nb::str(tensor.name.data(), tensor.name.size()));
    return out;
  }
  [[nodiscard]] nb::list KeysInFileOrder() const {
    nb::list out;
    for (const std::size_t i : view_->InFileOrder()) out.append(nb::str(view_->tensors()[i].name.data(), view_->tensors()[i].name.size()));
    return out;
  }
  [[nodiscard]] nb::dict Metadata() const {
    nb::dict out;
    for (const auto& [key, value] : view_->metadata()) out[key.c_str()] = value;
    return out;
  }
  [[nodiscard]] nb::tuple Facts(const std::string& name) const {
    const ViewTensor& tensor = view_->tensors()[Unwrap(view_->Find(name))];
    return nb::make_tuple(tensor.dtype, nb::tuple(nb::cast(tensor.shape)));
  }
  [[nodiscard]] std::vector<std::string> Notices() const { return view_->notices(); }
  [[nodiscard]] std::int64_t bytes_read() const { return bytes_read_.load(); }

  Tensor* Read(const std::string& name, std::vector<std::int64_t> offsets, std::vector<std::int64_t> sizes, std::vector<std::int64_t> shape) {
    const std::size_t index = Unwrap(view_->Find(name));
    const DTypeWords* words = WordsOf(view_->tensors()[index].dtype);
    if (words == nullptr) {
      Raise(MakeError(ErrorCode::kUnsupported, "elements of less than a byte are not handed over").WithTensor(name).WithFound(view_->tensors()[index].dtype));
    }
    auto tensor = std::make_unique<Tensor>(*words, std::move(shape));
    const ViewBox box{std::move(offsets), std::move(sizes)};
    const auto read = [&](const Hooks& hooks) { return view_->Read(index, box, tensor->memory(), hooks); };
    bytes_read_ += tensor->memory().size() < kShortRead ? ReadHere(read) : RunAndUnwrap({nb::none(), nb::none()}, read);
    return tensor.release();
  }

 private:
  template <typename F>
  static std::int64_t ReadHere(const F& read) {
    Result<std::int64_t> done = [&] {
      const nb::gil_scoped_release release;
      return read({});
    }();
    return Unwrap(std::move(done));
  }

  std::unique_ptr<View> view_;
  std::atomic<std::int64_t> bytes_read_ = 0;
};

}  // namespace

void BindView(nb::module_& module) {
  nb::class_<OpenedView>(module, "View")
      .def(nb::init<std::string, decltype(Call::options), nb::object>(), nb::arg("path"), nb::arg("options"), nb::arg("notice").none())
      .def("keys", &OpenedView::Keys)
      .def("offset_keys", &OpenedView::KeysInFileOrder)
      .def("metadata", &OpenedView::Metadata)
      .def("facts", &OpenedView::Facts, nb::arg("name"), "(dtype, shape)")
      .def_prop_ro("notices", &OpenedView::Notices)
      .def_prop_ro("bytes_read", &OpenedView::bytes_read)
      .def("read", &OpenedView::Read, nb::arg("name"), nb::arg("offsets"), nb::arg("sizes"), nb::arg("shape"), nb::rv_policy::take_ownership,
           "The box of a tensor; `shape` has the elements of `sizes`.");
}

}  // namespace crossdock::python
