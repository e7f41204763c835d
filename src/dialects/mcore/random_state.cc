// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/random_state.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "dialects/mcore/args.h"
#include "dialects/mcore/keys.h"
#include "dialects/mcore/layout_args.h"
#include "fmt/format.h"

namespace crossdock::dialects::mcore {
namespace {

/// What NumPy pickles an array of, by any of its versions, and what stands for bytes in older pickles.
constexpr std::array kOfArrays = {std::string_view("numpy.core.multiarray._reconstruct"), std::string_view("numpy._core.multiarray._reconstruct"),
                                  std::string_view("numpy.ndarray"), std::string_view("numpy.dtype"), std::string_view("_codecs.encode"),
                                  std::string_view("builtins.bytearray"), std::string_view("collections.OrderedDict")};

}  // namespace

std::string RandomStateKey(int stage, int stages, int tensor_rank, int tensor_ranks) {
  return fmt::format("rng_state/shard_{}.{}_{}.{}", stage, tensor_rank, stages, tensor_ranks);
}

std::string RandomLayout(const layout::ParallelLayout& layout, const layout::StageMap& stages) {
  std::string words = fmt::format("tp {}, ep {}, etp {}, pp {}:", layout.tp, layout.ep, layout.expert_tp(), stages.pp);
  for (const layout::StageMap::ModelChunk& chunk : stages.chunks) words += fmt::format(" {}+{}{}{} on {}", chunk.first, chunk.count, chunk.embedding ? "E" : "", chunk.head ? "L" : "", chunk.stage);
  return words;
}

namespace {

Status ReadAll(const Catalog& seen, const ObjectLoader& load, RandomStates* out) {
  const std::optional<StoredArgs> stored = ReadStoredArgs(seen);
  const std::int64_t layers = stored ? stored->args.GetInt("num_layers").value_or(0) : 0;
  if (layers < 1) return MakeError(ErrorCode::kIncomplete, "no arguments say to which layout they belong");
  CROSSDOCK_ASSIGN_OR_RETURN(const layout::ParallelLayout layout, LayoutOfArgs(stored->args));
  CROSSDOCK_ASSIGN_OR_RETURN(const layout::StageMap stages, layout::MakeStageMap(layout, layers));
  out->layout = RandomLayout(layout, stages);
  for (int stage = 0; stage < layout.pp; ++stage) {
    for (int rank = 0; rank < layout.tp; ++rank) {
      const std::string key = RandomStateKey(stage, layout.pp, rank, layout.tp);
      const auto loaded = seen.objects.find("object:" + key);
      const auto ref = std::ranges::find(seen.object_refs, key, &ObjectRef::name);
      if (loaded == seen.objects.end() && (ref == seen.object_refs.end() || !load)) {
        return MakeError(ErrorCode::kIncomplete, fmt::format("there are none for pipeline rank {} and tensor-parallel rank {}", stage, rank));
      }
      CROSSDOCK_ASSIGN_OR_RETURN(Value state, loaded != seen.objects.end() ? Result<Value>(loaded->second) : load(*ref));
      CROSSDOCK_RETURN_IF_ERROR(CheckRandomState(state));
      out->states.Set(key, std::move(state));
    }
  }
  return OkStatus();
}

std::int64_t CountRandomStates(const Catalog& seen) {
  const auto is_rng = [](std::string_view name) { return ClassifyObject(name) == ObjectKind::kRng; };
  constexpr std::string_view kObject = "object:";
  return std::ranges::count_if(seen.object_refs, [&](const ObjectRef& ref) { return is_rng(ref.name); }) +
         std::ranges::count_if(seen.objects, [&](const auto& item) { return item.first.starts_with(kObject) && is_rng(std::string_view(item.first).substr(kObject.size())); });
}

}  // namespace

RandomStates ReadRandomStates(const Catalog& seen, const ObjectLoader& load) {
  RandomStates out;
  if (CountRandomStates(seen) == 0) return out;
  if (const Status read = ReadAll(seen, load, &out); !read) {
    out.states = Value::MakeDict();
    out.refusal = "random states cannot be carried: " + read.error().message;
  }
  return out;
}

void PlaceRandomStates(const TargetOptions& options, TargetState* target) {
  const RandomStates& random = options.random;
  const auto leave = [&](std::string reason) { target->left_out.push_back({"rng_state", std::move(reason), std::max<std::int64_t>(random.count(), 1), 0}); };
  if (!random.refusal.empty()) return leave(random.refusal);
  if (random.count() == 0) return;
  if (options.no_rng) return leave("left behind by --no-rng");
  if (random.layout != RandomLayout(options.layout, target->stages)) return leave("random states belong to the ranks of the run that wrote them, and the layout is another");
  for (const auto& [key, state] : random.states.as_dict()->items) {
    // A full state may come from anywhere.
    if (const Status checked = CheckRandomState(state); !checked) return leave("random states cannot be carried: " + checked.error().message);
  }
  for (const auto& [key, state] : random.states.as_dict()->items) target->catalog.objects["object:" + *key.as_string()] = state;
  target->random_states = random.count();
  target->notices.push_back(fmt::format("the random states of {} ranks are carried: the layout is that of the run that wrote them", random.count()));
}

Status CheckRandomState(const Value& state) {
  if (const ValueList* items = state.as_sequence()) {
    for (const Value& item : *items) CROSSDOCK_RETURN_IF_ERROR(CheckRandomState(item));
  } else if (const Value::Dict* dict = state.as_dict()) {
    for (const auto& [key, item] : dict->items) {
      CROSSDOCK_RETURN_IF_ERROR(CheckRandomState(key));
      CROSSDOCK_RETURN_IF_ERROR(CheckRandomState(item));
    }
  } else if (const Opaque* object = state.as_opaque()) {
    const std::string name = object->module + "." + object->name;
    if (std::ranges::find(kOfArrays, name) == kOfArrays.end()) {
      return MakeError(ErrorCode::kUnsupported, fmt::format("they hold an object of `{}`, which random states do not need", Printable(name)));
    }
    for (const Value& argument : object->args) CROSSDOCK_RETURN_IF_ERROR(CheckRandomState(argument));
    if (object->state != nullptr) CROSSDOCK_RETURN_IF_ERROR(CheckRandomState(*object->state));
    for (const Value& item : object->items) CROSSDOCK_RETURN_IF_ERROR(CheckRandomState(item));
    for (const auto& [key, item] : object->entries) {
      CROSSDOCK_RETURN_IF_ERROR(CheckRandomState(key));
      CROSSDOCK_RETURN_IF_ERROR(CheckRandomState(item));
    }
  }
  return OkStatus();
}

}  // namespace crossdock::dialects::mcore
