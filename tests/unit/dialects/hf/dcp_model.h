// SPDX-License-Identifier: Apache-2.0
/// \file  The tiny model of model.h as the catalog of a plain DCP, with Adam state; for tests.
#pragma once

#include "model.h"

namespace crossdock::dialects::hf {

inline Catalog TinyDcp(const std::string& model = "model.", const std::string& optim = "optim.", double step = 3) {
  Catalog out = TinyModel(model, 2, DType::kF32);
  ValueDict scalars;
  ValueList params;
  for (const Entry& entry : TinyModel().entries) {
    Add(&out, optim + "state." + entry.name + ".exp_avg", entry.shape, DType::kF32);
    Add(&out, optim + "state." + entry.name + ".exp_avg_sq", entry.shape, DType::kF32);
    scalars.emplace_back(Value(optim + "state." + entry.name + ".step"), Value(step));
    params.emplace_back(entry.name);
  }
  out.objects["scalars"] = Value::MakeDict(std::move(scalars));
  out.objects["items"] = Value::MakeDict({{Value(optim + "param_groups.0.lr"), Value(0.5)},
                                          {Value(optim + "param_groups.0.weight_decay"), Value(0.25)},
                                          {Value(optim + "param_groups.0.eps"), Value(1e-6)},
                                          {Value(optim + "param_groups.0.betas"), Value::MakeTuple({Value(0.8), Value(0.95)})},
                                          {Value(optim + "param_groups.0.params"), Value::MakeList(std::move(params))}});
  return out;
}

}  // namespace crossdock::dialects::hf
