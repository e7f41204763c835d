// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/inventory.h"

#include <algorithm>

#include "base/names.h"
#include "dialects/mcore/args.h"
#include "dialects/mcore/keys.h"
#include "fmt/format.h"

namespace crossdock::dialects::mcore {
namespace {

constexpr const char* kResave =
    "to carry it, save the run again with --dist-ckpt-optim-fully-reshardable (Megatron-Core 0.15 or newer); --no-optim leaves it behind";

std::int64_t BytesOf(const Entry& entry) {
  const Result<std::int64_t> bytes = ByteSize(entry.dtype, entry.shape);
  return bytes ? *bytes : 0;
}

class Sorter {
 public:
  Sorter(const Catalog& catalog, bool no_optim) : catalog_(catalog), no_optim_(no_optim) {}

  Result<Inventory> Run() {
    ReadFacts();
    for (std::size_t i = 0; i < catalog_.entries.size(); ++i) CROSSDOCK_RETURN_IF_ERROR(OneEntry(static_cast<std::int32_t>(i)));
    Objects();
    CROSSDOCK_RETURN_IF_ERROR(LayerForm());
    if (!inventory_.optimizer_refusal.empty()) DropOptimizer();
    if (optimizer_count_ > 0) {
      std::string reason = no_optim_ ? "left behind by --no-optim" : inventory_.optimizer_refusal + "; " + kResave;
      inventory_.left_out.push_back({"optimizer state", std::move(reason), optimizer_count_, optimizer_bytes_});
    }
    return std::move(inventory_);
  }

 private:
  void ReadFacts() {
    for (const Entry& entry : catalog_.entries) {
      const std::string_view name = entry.name;
      family::McoreFacts& facts = inventory_.facts;
      if (IsVision(ParseTensorKey(name).model_key)) {  // has attention and biases of its own, which tell nothing of the decoder
        facts.vision = true;
        continue;
      }
      facts.qk_layernorm = facts.qk_layernorm || name.ends_with("self_attention.q_layernorm.weight");
      facts.qkv_bias = facts.qkv_bias || name.ends_with("self_attention.linear_qkv.bias");
      facts.experts = facts.experts || name.find(".mlp.experts.") != std::string_view::npos || name.ends_with("mlp.router.weight");
      facts.expert_bias = facts.expert_bias || name.ends_with("mlp.router.expert_bias");
      facts.shared_gate = facts.shared_gate || name.ends_with("mlp.shared_experts.gate_weight");
      facts.shared_experts = facts.shared_experts || name.find(".mlp.shared_experts.") != std::string_view::npos;
      facts.gated_delta = facts.gated_delta || name.find("self_attention.in_proj") != std::string_view::npos;
      facts.mla = facts.mla || name.find("linear_kv_up_proj") != std::string_view::npos;
      inventory_.split_halves = inventory_.split_halves || name.ends_with("linear_fc1.weight_w");
      inventory_.stacked_experts = inventory_.stacked_experts && !HasExpertNumber(name);
      if (WithinLanguageModel(name) == "embedding.word_embeddings.weight" && !entry.shape.empty()) inventory_.embedding_rows = entry.shape[0];
    }
  }

  void LeaveOptimizer(const Entry& entry) {
    ++optimizer_count_;
    optimizer_bytes_ += BytesOf(entry);
  }

  void Refuse(std::string why) {
    if (inventory_.optimizer_refusal.empty()) inventory_.optimizer_refusal = std::move(why);
  }

  /// The optimizer tensors that no slot takes; true when the entry is done with.
  bool OptimizerOddity(const TensorKey& key, const Entry& entry) {
    if (key.kind == TensorKey::Kind::kModel) return false;
    inventory_.has_optimizer = inventory_.has_optimizer || !no_optim_;
    if (no_optim_) {
      LeaveOptimizer(entry);
      return true;
    }
    if (key.kind == TensorKey::Kind::kBucket) {
      Refuse("it is stored as dp_reshardable, flat buckets in the order of the run that wrote them");
    } else if (key.kind == TensorKey::Kind::kOther || !key.slot) {
      Refuse(fmt::format("it holds {}, which is no state of Adam or Muon", key.state.empty() ? Printable(entry.name) : Printable(key.state)));
    } else if (key.slot == Slot::kMaster && !IsFloating(entry.dtype)) {
      Refuse("its master weights are stored as remainders (--use-precision-aware-optimizer with store_param_remainders)");
    } else {
      return false;
    }
    LeaveOptimizer(entry);
    return true;
  }

  Status OneEntry(std::int32_t index) {
    const Entry& entry = catalog_.entries[static_cast<std::size_t>(index)];
    const TensorKey key = ParseTensorKey(entry.name);
    if (OptimizerOddity(key, entry)) return OkStatus();
    std::string model_key = inventory_.facts.experts || inventory_.facts.mla ? key.model_key : WithFusedNorms(key.model_key);
    auto [place, fresh] = inventory_.tensors.try_emplace(std::move(model_key));
    if (fresh) place->second.fill(-1);
    std::int32_t& slot = place->second[static_cast<std::size_t>(*key.slot)];
    if (slot >= 0) {
      return MakeError(ErrorCode::kCorrupt, "two tensors mean the same")
          .WithTensor(entry.name)
          .WithFound(fmt::format("also {}", Printable(catalog_.entries[static_cast<std::size_t>(slot)].name)));
    }
    slot = index;
    return OkStatus();
  }

  /// The state's tensors, when some of it cannot be carried: half an optimizer state is none.
  void DropOptimizer() {
    for (auto place = inventory_.tensors.begin(); place != inventory_.tensors.end();) {
      bool any = false;
      for (const Slot slot : kAllSlots) {
        std::int32_t& entry = place->second[static_cast<std::size_t>(slot)];
        if (slot == Slot::kParam) {
          any = entry >= 0;
        } else if (entry >= 0) {
          LeaveOptimizer(catalog_.entries[static_cast<std::size_t>(entry)]);
          entry = -1;
        }
      }
      place = any ? std::next(place) : inventory_.tensors.erase(place);
    }
  }

  void Objects() {
    struct Kind {
      ObjectKind kind;
      const char* name;
      const char* reason;
    };
    constexpr Kind kKinds[] = {
        {ObjectKind::kExtraState, "_extra_state", "TransformerEngine's state of a module; made anew where a target wants it"},
        {ObjectKind::kRng, "rng_state", "random number generators belong to the ranks of the run that wrote them"},
        {ObjectKind::kRerun, "rerun_state_machine_state", "belongs to the run that wrote it"},
        {ObjectKind::kOptimizer, "optimizer objects", "belong to an optimizer state that is not carried"},
        {ObjectKind::kOther, "unknown objects", "no rule claims them"}};
    for (const Kind& kind : kKinds) {
      LeftOut left{kind.name, kind.reason, 0, 0};
      std::vector<std::string> names;
      for (const ObjectRef& ref : catalog_.object_refs) {
        if (ClassifyObject(ref.name) != kind.kind) continue;
        ++left.count;
        left.bytes += ref.bytes.length;
        names.push_back(ref.name);
      }
      if (left.count == 0) continue;
      if (kind.kind == ObjectKind::kOther) left.name = SomeNames(names);
      inventory_.left_out.push_back(std::move(left));
    }
  }

  Status LayerForm() {
    std::vector<std::string> numbered;
    std::vector<std::string> stacked;
    for (const auto& [key, slots] : inventory_.tensors) {
      if (LayerNumber(key)) numbered.push_back(key);
      if (HasLayerAxis(key)) stacked.push_back(key);
    }
    if (inventory_.tensors.contains("decoder.final_norm.weight")) {
      return MakeError(ErrorCode::kUnsupported, "the checkpoint holds a HybridModel, whose layers are numbered by sub-block; this version has no rules for it")
          .WithTensor("decoder.final_norm.weight");
    }
    if (!numbered.empty() && !stacked.empty()) {
      return MakeError(ErrorCode::kUnsupported, "some layers are numbered and others lie along an axis")
          .WithFound(fmt::format("{}, and {}", Printable(numbered.front()), Printable(stacked.front())));
    }
    inventory_.stacked = numbered.empty();
    return OkStatus();
  }

  const Catalog& catalog_;
  const bool no_optim_;
  Inventory inventory_;
  std::int64_t optimizer_count_ = 0;
  std::int64_t optimizer_bytes_ = 0;
};

}  // namespace

Result<Inventory> TakeInventory(const Catalog& catalog, bool no_optim) { return Sorter(catalog, no_optim).Run(); }

}  // namespace crossdock::dialects::mcore
