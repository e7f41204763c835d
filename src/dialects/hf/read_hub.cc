// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "base/sort_through.h"
#include "dialects/hf/claim.h"
#include "dialects/hf/hf_dialect.h"

namespace crossdock::dialects::hf {

Result<HubState> ReadHub(const Catalog& source, const ReadOptions& options) {
  CROSSDOCK_ASSIGN_OR_RETURN(Reading reading, StartReading(source, options, ""));
  CROSSDOCK_RETURN_IF_ERROR(ClaimParams(&reading));
  SortOutRest(&reading, options.allow_unknown_tensors);
  if (options.allow_missing_tensors) reading.missing.clear();
  CROSSDOCK_RETURN_IF_ERROR(Report(reading));
  HubState& hub = reading.hub;
  SortThrough(&hub.tensors, [](const HubTensor& a, const HubTensor& b) { return a.name < b.name; });
  hub.counters.step = source.step;
  hub.load_hint = fmt::format("AutoModelForCausalLM.from_pretrained(\"{}\")", Printable(source.root, 4096));
  return std::move(hub);
}

}  // namespace crossdock::dialects::hf
