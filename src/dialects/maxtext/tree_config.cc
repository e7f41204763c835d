// SPDX-License-Identifier: Apache-2.0
#include "dialects/maxtext/tree_config.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <map>
#include <set>

namespace crossdock::dialects::maxtext {
namespace {

constexpr std::string_view kDecoderPrefix = "decoder.";
constexpr std::string_view kRemainder = "_remainder";

class Sizes {
 public:
  Sizes(const Catalog& catalog, const Inventory& inventory, int scan_axis) : catalog_(catalog), inventory_(inventory), scan_axis_(scan_axis) {}

  Value Run() {
    Set({"vocab_size", "base_emb_dim"}, Find("token_embedder.embedding"));
    out_.Set("logits_via_embedding", Value(!inventory_.tensors.contains("decoder.logits_dense.kernel")));
    Set({"", "base_num_query_heads", "head_dim"}, Find(".query.kernel"));
    Set({"", "base_num_kv_heads", ""}, Find(".key.kernel"));
    Set({"", "base_mlp_dim"}, Find(".mlp.wi_0.kernel"));
    Set({"", "base_mlp_dim"}, Find(".mlp_local.wi_0.kernel"));
    Experts();
    Latents();
    Layers();
    return std::move(out_);
  }

 private:
  /// The shape of one layer's tensor with a name that ends so; empty when there is none of `rank` axes.
  Shape Find(std::string_view ending) const {
    for (const auto& [name, slots] : inventory_.tensors) {
      if (slots[0] < 0 || !std::string_view(name).ends_with(ending)) continue;
      Shape shape = catalog_.entries[static_cast<std::size_t>(slots[0])].shape;
      if (Stacked(name) && !shape.empty()) {
        const int axis = scan_axis_ < static_cast<int>(shape.size()) ? scan_axis_ : 0;
        shape.erase(static_cast<std::size_t>(axis));
      }
      return shape;
    }
    return {};
  }

  /// One of scanned layers: a container without a number, but not the decoder's own tensors and those left over.
  bool Stacked(std::string_view name) const { return !ContainerOf(name).empty() && !ContainerOf(name).ends_with(kRemainder); }

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
    const Shape shared = Find(".shared_experts.wi_0.kernel");
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

  /// Counted by number, or along the axis of some tensor that every layer has.
  void Layers() {
    std::map<std::string, std::int64_t> counts;
    std::map<std::string, std::set<std::string>> places;
    for (const auto& [name, slots] : inventory_.tensors) {
      if (slots[0] < 0) continue;
      if (const std::optional<LayerName> layer = ParseLayerName(name)) {
        counts[layer->container] = std::max(counts[layer->container], layer->number + 1);
        continue;
      }
      const std::string container(ContainerOf(name));
      if (container.empty()) continue;
      const std::string_view rest = std::string_view(name).substr(kDecoderPrefix.size() + container.size() + 1);
      places[container].insert(rest.starts_with("layers_") ? std::string(rest.substr(0, rest.find('.'))) : std::string());
      const Shape& shape = catalog_.entries[static_cast<std::size_t>(slots[0])].shape;
      if (container.ends_with(kRemainder)) {
        counts[container] = 1;
      } else if (!shape.empty()) {
        counts[container] = shape[static_cast<std::size_t>(scan_axis_ < static_cast<int>(shape.size()) ? scan_axis_ : 0)];
      }
    }
    std::int64_t layers = 0;
    for (const auto& [container, count] : counts) {
      const auto cycle = places.find(container);
      layers += count * (cycle == places.end() ? 1 : static_cast<std::int64_t>(cycle->second.size()));
    }
    out_.Set("base_num_decoder_layers", Value(layers));
    out_.Set("hf_layers", Value(inventory_.Holds("self_attention_local.") ? 2 * layers : layers));
    const auto dense = counts.find("dense_layers");
    if (dense != counts.end() || counts.contains("moe_layers")) out_.Set("first_num_dense_layers", Value(dense == counts.end() ? 0 : dense->second));
  }

  const Catalog& catalog_;
  const Inventory& inventory_;
  const int scan_axis_;
  Value out_ = Value::MakeDict();
};

}  // namespace

Value ConfigFromTree(const Catalog& catalog, const Inventory& inventory, int scan_axis) { return Sizes(catalog, inventory, scan_axis).Run(); }

}  // namespace crossdock::dialects::maxtext
