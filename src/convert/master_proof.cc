// SPDX-License-Identifier: Apache-2.0
#include "convert/master_proof.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "dialects/mcore/keys.h"
#include "verify/masters.h"

namespace crossdock::convert {
namespace {

/// By hub tensors, which are without the padding of the vocabulary: its rows are nobody's weights.
std::vector<verify::MasterPair> OfHub(const dialects::HubState& hub) {
  std::map<std::string_view, const dialects::HubTensor*> params;
  for (const dialects::HubTensor& t : hub.tensors) {
    if (t.slot == Slot::kParam) params[t.name] = &t;
  }
  std::vector<verify::MasterPair> pairs;
  for (const dialects::HubTensor& t : hub.tensors) {
    const auto param = t.slot == Slot::kMaster ? params.find(t.name) : params.end();
    if (param == params.end()) continue;
    pairs.push_back({t.name, param->second->dtype, t.dtype, t.shape, param->second->expr, t.expr});
  }
  return pairs;
}

/// Of a model that no family describes, by Megatron's keys.
Result<std::vector<verify::MasterPair>> OfKeys(const Source& source) {
  std::vector<verify::MasterPair> pairs;
  const Catalog& seen = source.seen();
  for (std::size_t i = 0; i < seen.entries.size(); ++i) {
    const Entry& master = seen.entries[i];
    const dialects::mcore::TensorKey key = dialects::mcore::ParseTensorKey(master.name);
    const std::int32_t at = key.slot == Slot::kMaster ? seen.Find(key.model_key) : -1;
    if (at < 0) continue;
    const Entry& param = seen.entries[static_cast<std::size_t>(at)];
    CROSSDOCK_ASSIGN_OR_RETURN(expr::Expr left, source.view->OverSource(expr::Leaf(at, param.dtype, param.shape)));
    CROSSDOCK_ASSIGN_OR_RETURN(expr::Expr right, source.view->OverSource(expr::Leaf(static_cast<int>(i), master.dtype, master.shape)));
    pairs.push_back({key.model_key, param.dtype, master.dtype, param.shape, std::move(left), std::move(right)});
  }
  return pairs;
}

}  // namespace

Status ProveMasters(const Source& source, const ConvertOptions& options, const Hooks& hooks) {
  if (!source.view || !source.view->prove_masters || options.no_optim) return OkStatus();
  std::vector<verify::MasterPair> pairs = OfHub(source.hub);
  if (source.hub.tensors.empty()) {
    CROSSDOCK_ASSIGN_OR_RETURN(pairs, OfKeys(source));
  }
  if (pairs.empty()) {
    return MakeError(ErrorCode::kIncomplete, "the order of the optimizer state is proven by its master weights, and there are none to compare")
        .WithPath(source.reader->catalog().root)
        .WithHint("save the run again with --ckpt-format torch_dist --dist-ckpt-optim-fully-reshardable (Megatron-Core 0.15 or newer), or leave the state behind with --no-optim");
  }
  verify::MasterOptions how;
  how.memory = options.memory;
  how.stop = hooks.stop;
  if (hooks.on_progress) {
    how.on_progress = [&hooks](std::int64_t done, std::int64_t total) { hooks.on_progress({"proving master weights", done, total, ""}); };
  }
  Status proven = verify::CheckMasters({source.storage, source.reader.get(), &source.hub, source.label}, pairs, how);
  if (proven) return proven;
  return Error(std::move(proven).error()).WithPath(source.reader->catalog().root);
}

}  // namespace crossdock::convert
