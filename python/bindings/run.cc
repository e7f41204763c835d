// SPDX-License-Identifier: Apache-2.0
#include "bindings/run.h"

#include <nanobind/stl/string.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace nb = nanobind;

namespace crossdock::python {
namespace {

constexpr std::chrono::milliseconds kPause(50);   ///< between two looks for signals and events

/// What the working threads leave for the waiting one. Of the events of one phase the latest counts.
class Mailbox {
 public:
  void Put(const ProgressEvent& event) {
    const std::scoped_lock lock(mutex_);
    if (!events_.empty() && events_.back().phase == event.phase) {
      events_.back() = event;
    } else {
      events_.push_back(event);
    }
  }
  void Put(const std::string& notice) {
    const std::scoped_lock lock(mutex_);
    notices_.push_back(notice);
  }
  void Close() {
    const std::scoped_lock lock(mutex_);
    closed_ = true;
    change_.notify_all();
  }
  /// Waits for the end of the work, but not longer than a pause; true when it has ended.
  bool Wait(std::vector<ProgressEvent>* events, std::vector<std::string>* notices) {
    std::unique_lock lock(mutex_);
    change_.wait_for(lock, kPause, [this] { return closed_; });
    events->swap(events_);
    notices->swap(notices_);
    return closed_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable change_;
  std::vector<ProgressEvent> events_;
  std::vector<std::string> notices_;
  bool closed_ = false;
};

nb::object Text(const std::string& text) {
  return nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace"));
}

void Deliver(const Callbacks& callbacks, const std::vector<ProgressEvent>& events, const std::vector<std::string>& notices) {
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
  if (!callbacks.notice.is_none()) {
    for (const std::string& notice : notices) callbacks.notice(Text(notice));
  }
  if (callbacks.progress.is_none()) return;
  for (const ProgressEvent& event : events) {
    callbacks.progress(Text(event.phase), event.bytes_done, event.bytes_total, Text(event.current));
  }
}

}  // namespace

void RunWithoutGil(const Callbacks& callbacks, const std::function<void(const Hooks&)>& work) {
  for (const nb::object* callback : {&callbacks.progress, &callbacks.notice}) {
    if (callback->is_none() || PyCallable_Check(callback->ptr()) != 0) continue;
    Raise(MakeError(ErrorCode::kUsage, "`progress` and `notice` take a callable or None"));
  }
  Mailbox mailbox;
  std::stop_source stop;
  Hooks hooks;
  hooks.stop = stop.get_token();
  if (!callbacks.progress.is_none()) hooks.on_progress = [&](const ProgressEvent& event) { mailbox.Put(event); };
  if (!callbacks.notice.is_none()) hooks.on_notice = [&](const std::string& text) { mailbox.Put(text); };
  std::exception_ptr failure;   // std::bad_alloc, which the engine lets through
  std::jthread worker([&] {
    try {
      work(hooks);
    } catch (...) {
      failure = std::current_exception();
    }
    mailbox.Close();
  });
  std::exception_ptr raised;
  for (bool ended = false; !ended;) {
    std::vector<ProgressEvent> events;
    std::vector<std::string> notices;
    {
      const nb::gil_scoped_release release;
      ended = mailbox.Wait(&events, &notices);
    }
    if (raised) continue;   // the work is being stopped: nothing more is told
    try {
      Deliver(callbacks, events, notices);
    } catch (nb::python_error&) {
      raised = std::current_exception();
      stop.request_stop();
    }
  }
  {
    const nb::gil_scoped_release release;
    worker.join();
  }
  if (raised) std::rethrow_exception(raised);
  if (failure) std::rethrow_exception(failure);
}

}  // namespace crossdock::python
