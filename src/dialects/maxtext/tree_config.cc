// SPDX-License-Identifier: Apache-2.0
#include "dialects/maxtext/tree_config.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <map>

namespace crossdock::dialects::maxtext {
namespace {

constexpr std::string_view kDecoderPrefix = "decoder.";
constexpr std::string_view kRemainder = "_remainder";
constexpr std::string_view kLocal = "local_layers.";    ///< layers of a block that are stacked themselves
constexpr std::string_view kGlobal = "global_layer.";   ///< the block's last one, beside them

class Sizes {
 public:
  Sizes(const Catalog& catalog, const Inventory& inventory, int scan_axis) : catalog_(catalog), inventory_(inventory), scan_axis_(scan_axis) {}

  Value Run() {
    Set({"vocab_size", "base_emb_dim"}, Find("token_embedder.embedding"));
    out_.Set("logits_via_embedding", Value(!inventory_.tensors.contains("decoder.logits_dense.kernel")));
    Set({"", "base_num_kv_heads", "head_dim"}, Find(".key.kernel"));
    Set({"", "base_num_query_heads", "head_dim"}, Find(".query.kernel"));   // gated attention has twice the head's size here
    Set({"", "base_mlp_dim"}, Find(".mlp.wi_0.kernel"));
    Set({"", "base_mlp_dim"}, Find(".mlp_local.wi_0.kernel"));
    Experts();
    Latents();
    DeltaNets();
    Layers();
    Pattern();
    out_.Set("mtp_num_layers", Value(inventory_.PredictionLayers()));
    return std::move(out_);
  }

 private:
  /// The shape of one layer's tensor with a name that ends so; empty when there is none of `rank` axes.
  Shape Find(std::string_view ending) const {
    for (const auto& [name, slots] : inventory_.tensors) {
      if (slots[0] < 0 || !std::string_view(name).ends_with(ending)) continue;
      Shape shape = catalog_.entries[static_cast<std::size_t>(slots[0])].shape;
      for (int axes = StackAxes(name); axes > 0 && !shape.empty(); --axes) shape.erase(AxisOf(shape));
      return shape;
    }
    return {};
  }

  /// Of a stacked tensor, the axis of layers or blocks.
  std::size_t AxisOf(const Shape& shape) const { return static_cast<std::size_t>(scan_axis_ < static_cast<int>(shape.size()) ? scan_axis_ : 0); }

  /// How many axes count layers or blocks: one in a container without a number, but not of the decoder's own tensors and those left
  /// over, and one more of layers within a block.
  int StackAxes(std::string_view name) const {
    const std::string_view container = ContainerOf(name);
    if (container.empty()) return 0;
    return (container.ends_with(kRemainder) ? 0 : 1) + (Within(name).starts_with(kLocal) ? 1 : 0);
  }

  /// What follows the container in a name that has one.
  std::string_view Within(std::string_view name) const { return name.substr(kDecoderPrefix.size() + ContainerOf(name).size() + 1); }

  std::string_view ContainerOf(std::string_view name) const {
    if (!inventory_.scanned || !name.starts_with(kDecoderPrefix)) return {};
    const std::string_view part = name.substr(kDecoderPrefix.size(), name.find('.', kDecoderPrefix.size()) - kDecoderPrefix.size());
    return part.find("layers") == std::string_view::npos ? std::string_view() : part;
  }

  /// The sizes of a shape under their names, where it has that many.
  void Set(std::initializer_list<const char*> names, const Shape& shape) {
    if (shape.size() != names.size()) return;
    std::size_t at = 0;
    for (const char* name : names) {
      if (*name != '\0' && out_.Find(name) == nullptr) out_.Set(name, Value(shape[at]));
      ++at;
    }
  }

  void Experts() {
    const Shape gate = Find(".wi_0");
    Set({"num_experts", "base_emb_dim", "base_moe_mlp_dim"}, gate);
    if (gate.size() == 3 && out_.Find("base_mlp_dim") == nullptr) out_.Set("base_mlp_dim", Value(gate[2]));
    Shape shared = Find(".shared_experts.wi_0.kernel");
    if (shared.empty()) shared = Find(".shared_expert.wi_0.kernel");
    if (gate.size() == 3 && shared.size() == 2 && gate[2] > 0 && shared[1] % gate[2] == 0) out_.Set("shared_experts", Value(shared[1] / gate[2]));
  }

  void Latents() {
    const Shape down = Find(".wkv_a.kernel");
    const Shape norm = Find(".kv_norm.scale");
    const Shape up = Find(".wkv_b.kernel");
    const Shape out = Find(".out.kernel");
    if (down.size() != 2 || norm.size() != 1 || up.size() != 3 || out.size() != 3) return;
    out_.Set("kv_lora_rank", Value(norm[0]));
    out_.Set("qk_rope_head_dim", Value(down[1] - norm[0]));
    out_.Set("base_num_query_heads", Value(up[1]));
    out_.Set("v_head_dim", Value(out[1]));
    out_.Set("qk_nope_head_dim", Value(up[2] - out[1]));
    const Shape query = Find(".q_norm.scale");
    out_.Set("q_lora_rank", Value(query.size() == 1 ? query[0] : 0));
  }

  /// Gated delta nets. How many key heads there are and how large one is shows in no shape: only both together.
  void DeltaNets() {
    Set({"gdn_num_value_heads"}, Find(".attention.A_log"));
    Set({"gdn_value_head_dim"}, Find(".attention.norm.rms_norm.scale"));
    Set({"gdn_conv_kernel_dim", "", ""}, Find(".attention.conv1d.kernel"));
  }

  /// A block's layers: those before it have no such part. 0: none has it.
  std::int64_t FirstWith(std::string_view part) const {
    std::int64_t first = 0;
    for (const auto& [name, slots] : inventory_.tensors) {
      if (name.find(part) == std::string::npos) continue;
      const std::optional<std::int64_t> number = NumberOf(name);
      if (number && (first == 0 || *number < first)) first = *number + 1;
    }
    return first;
  }

  /// The layer's number, or that in its block.
  std::optional<std::int64_t> NumberOf(std::string_view name) const {
    if (const std::optional<LayerName> layer = ParseLayerName(name)) return layer->number;
    const std::string_view container = ContainerOf(name);
    if (container.empty()) return std::nullopt;
    const std::optional<LayerName> layer = ParseLayerName(std::string(kDecoderPrefix) + std::string(Within(name)));
    return layer ? std::optional(layer->number) : std::nullopt;
  }

  /// How layers of different kinds follow each other.
  void Pattern() {
    if (const std::int64_t step = FirstWith(".Llama4MoEBlock_0."); step > 0) out_.Set("interleave_moe_layer_step", Value(step));
    const std::int64_t full = FirstWith(".attention.attention.query.");   // gated attention, the last of each block
    out_.Set("inhomogeneous_layer_cycle_interval", Value(block_ == 1 && full > 0 ? full : block_));
  }

  /// Counted by number, or along the axis of some tensor that every layer has.
  void Layers() {
    std::map<std::string, std::int64_t> counts;
    std::map<std::string, std::map<std::string, std::int64_t>> places;   ///< of each part of a block, how many layers it is
    for (const auto& [name, slots] : inventory_.tensors) {
      if (slots[0] < 0) continue;
      if (const std::optional<LayerName> layer = ParseLayerName(name)) {
        counts[layer->container] = std::max(counts[layer->container], layer->number + 1);
        continue;
      }
      const std::string container(ContainerOf(name));
      if (container.empty()) continue;
      const std::string_view rest = Within(name);
      Shape shape = catalog_.entries[static_cast<std::size_t>(slots[0])].shape;
      if (container.ends_with(kRemainder)) {
        counts[container] = 1;
      } else if (!shape.empty()) {
        counts[container] = shape[AxisOf(shape)];
        shape.erase(AxisOf(shape));
      }
      const bool local = rest.starts_with(kLocal);
      const bool named = local || rest.starts_with(kGlobal) || rest.starts_with("layers_") || rest.starts_with("layer_");
      places[container][named ? std::string(rest.substr(0, rest.find('.'))) : std::string()] = local && !shape.empty() ? shape[AxisOf(shape)] : 1;
    }
    std::int64_t layers = 0;
    for (const auto& [container, count] : counts) {
      std::int64_t block = 0;
      for (const auto& [place, many] : places[container]) block += many;
      layers += count * std::max<std::int64_t>(block, 1);
      if (!container.ends_with(kRemainder)) block_ = std::max(block_, block);
    }
    out_.Set("base_num_decoder_layers", Value(layers));
    out_.Set("hf_layers", Value(inventory_.Holds("self_attention_local.") ? 2 * layers : layers));
    const auto dense = counts.find("dense_layers");
    if (dense != counts.end() || counts.contains("moe_layers")) out_.Set("first_num_dense_layers", Value(dense == counts.end() ? 0 : dense->second));
  }

  const Catalog& catalog_;
  const Inventory& inventory_;
  const int scan_axis_;
  std::int64_t block_ = 1;   ///< layers of a scanned block
  Value out_ = Value::MakeDict();
};

}  // namespace

Value ConfigFromTree(const Catalog& catalog, const Inventory& inventory, int scan_axis) { return Sizes(catalog, inventory, scan_axis).Run(); }

}  // namespace crossdock::dialects::maxtext
