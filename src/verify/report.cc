// SPDX-License-Identifier: Apache-2.0
#include "tensor/value.h"
#include "verify/verify.h"

namespace crossdock::verify {
namespace {

Value Strings(const std::vector<std::string>& items) {
  ValueList list;
  for (const std::string& s : items) list.emplace_back(s);
  return Value::MakeList(std::move(list));
}

void SetCounts(const Counts& c, Value* out) {
  out->Set("num_baseline", c.num_baseline);
  out->Set("num_roundtrip", c.num_roundtrip);
  out->Set("num_common", c.num_common);
  out->Set("num_bit_identical", c.num_bit_identical);
  out->Set("num_exact_matches", c.num_exact_matches);
  out->Set("num_close_matches", c.num_close_matches);
  out->Set("num_different", c.num_different);
}

}  // namespace

std::string ToJsonReport(const Comparison& c) {
  Value out = Value::MakeDict();
  out.Set("passed", c.passed);
  SetCounts(c.total, &out);
  out.Set("missing_keys", Strings(c.missing_keys));
  out.Set("extra_keys", Strings(c.extra_keys));
  out.Set("shape_mismatches", Strings(c.shape_mismatches));
  out.Set("mismatched_keys", Strings(c.mismatched_keys));
  out.Set("dtype_mismatches", Strings(c.dtype_mismatches));
  out.Set("nonfinite", Strings(c.nonfinite));
  out.Set("counter_differences", Strings(c.counter_differences));
  out.Set("max_abs_diff", c.max_abs_diff);
  out.Set("mean_abs_diff", c.mean_abs_diff);
  ValueList config;
  for (const ConfigDifference& d : c.config_differences) {
    Value row = Value::MakeDict();
    row.Set("key", d.key);
    row.Set("a", d.a);
    row.Set("b", d.b);
    row.Set("consequence", d.consequence);
    config.push_back(std::move(row));
  }
  out.Set("config_differences", Value::MakeList(std::move(config)));
  Value slots = Value::MakeDict();
  for (const auto& [name, counts] : c.slots) {
    Value row = Value::MakeDict();
    SetCounts(counts, &row);
    slots.Set(name, std::move(row));
  }
  out.Set("slots", std::move(slots));
  ValueList worst;
  for (const Difference& d : c.worst) {
    Value row = Value::MakeDict();
    row.Set("name", d.name);
    row.Set("max_abs_diff", d.max_abs);
    row.Set("first_index", d.first_index);
    row.Set("incomparable", d.incomparable);
    worst.push_back(std::move(row));
  }
  out.Set("worst", Value::MakeList(std::move(worst)));
  return ToJson(out, 2) + "\n";
}

}  // namespace crossdock::verify
