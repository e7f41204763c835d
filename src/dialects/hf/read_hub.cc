// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "base/sort_through.h"
#include "dialects/hf/claim.h"
#include "dialects/hf/hf_dialect.h"

namespace crossdock::dialects::hf {
namespace {

/// By name. Where every tensor is an entry of the source under its own name, the order of the entries is that of the names, and numbers are
/// compared instead of names that begin alike.
void SortTensors(const Catalog& source, std::vector<HubTensor>* tensors) {
  const auto stored_so = [&](const HubTensor& t) {
    return t.expr->op == expr::Op::kLeaf && source.entries[static_cast<std::size_t>(t.expr->leaf)].name == t.name;
  };
  if (std::ranges::all_of(*tensors, stored_so)) {
    SortThrough(tensors, [](const HubTensor& a, const HubTensor& b) { return a.expr->leaf < b.expr->leaf; });
  } else {
    SortThrough(tensors, [](const HubTensor& a, const HubTensor& b) { return a.name < b.name; });
  }
}

}  // namespace

Result<HubState> ReadHub(const Catalog& source, const ReadOptions& options) {
  CROSSDOCK_ASSIGN_OR_RETURN(Reading reading, StartReading(source, options, ""));
  CROSSDOCK_RETURN_IF_ERROR(ClaimParams(&reading));
  SortOutRest(&reading, options.allow_unknown_tensors);
  if (options.allow_missing_tensors) reading.missing.clear();
  CROSSDOCK_RETURN_IF_ERROR(Report(reading));
  HubState& hub = reading.hub;
  SortTensors(source, &hub.tensors);
  hub.counters.step = source.step;
  hub.load_hint = fmt::format("AutoModelForCausalLM.from_pretrained(\"{}\")", Printable(source.root, 4096));
  return std::move(hub);
}

}  // namespace crossdock::dialects::hf
