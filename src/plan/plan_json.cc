// SPDX-License-Identifier: Apache-2.0
#include "plan/plan_json.h"

#include <utility>

namespace crossdock::plan {

Value PlanValue(const PlanSummary& s) {
  ValueList files;
  for (const FileRef& f : s.files) {
    Value row = Value::MakeDict();
    row.Set("path", f.path);
    row.Set("bytes", f.identity.size);
    files.push_back(std::move(row));
  }
  ValueList slots;
  for (const SlotTotals& t : s.slots) {
    Value row = Value::MakeDict();
    row.Set("slot", SlotName(t.slot));
    row.Set("tensors", t.tensors);
    row.Set("bytes_read", t.bytes_read);
    row.Set("bytes_written", t.bytes_written);
    slots.push_back(std::move(row));
  }
  Value out = Value::MakeDict();
  out.Set("total_bytes", s.total_bytes);
  out.Set("files", Value::MakeList(std::move(files)));
  out.Set("slots", Value::MakeList(std::move(slots)));
  out.Set("tensors", s.tensors);
  out.Set("bytes_read", s.bytes_read);
  out.Set("bytes_written", s.bytes_written);
  out.Set("tasks", s.tasks);
  out.Set("reads", s.reads);
  out.Set("largest_task_bytes", s.largest_task);
  out.Set("peak_memory_bytes", s.peak_memory);
  out.Set("plan_hash", s.hash);
  return out;
}

std::string PlanJson(const PlanSummary& summary) { return ToJson(PlanValue(summary)); }

}  // namespace crossdock::plan
