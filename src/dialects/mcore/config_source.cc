// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/config_source.h"

#include <algorithm>
#include <array>
#include <set>

#include "dialects/hf/config_check.h"
#include "dialects/hf/mtp.h"
#include "dialects/mcore/keys.h"
#include "family/detect.h"
#include "family/row_syntax.h"
#include "family/text_config.h"
#include "fmt/format.h"

namespace crossdock::dialects::mcore {
namespace {

struct Candidate {
  std::string origin;
  family::ModelConfig config;
  family::Model model;
};

/// ITER/hf/config.json, where the reader loaded it.
Result<std::optional<Value>> FindCarriedConfig(const Catalog& catalog) {
  for (const char* name : {"hf/config.json", "config.json"}) {
    const auto found = catalog.objects.find(name);
    if (found != catalog.objects.end() && found->second.as_dict() != nullptr) return std::optional<Value>(found->second);
  }
  for (const SideFile& file : catalog.side_files) {
    if (file.path != "hf/config.json" || !file.bytes) continue;
    Result<Value> parsed = ParseJson(*file.bytes);
    if (!parsed) return std::move(std::move(parsed).error()).WithPath(file.path);
    return std::optional<Value>(*std::move(parsed));
  }
  return std::optional<Value>();
}

Result<std::optional<Value>> CarriedConfig(const Catalog& catalog) {
  CROSSDOCK_ASSIGN_OR_RETURN(std::optional<Value> config, FindCarriedConfig(catalog));
  if (config) CROSSDOCK_RETURN_IF_ERROR(hf::CheckConfigFields(*config, "hf/config.json"));
  return config;
}

Result<const family::FamilyFile*> ChooseFamily(const ReadOptions& options, const std::optional<Value>& carried, const Inventory& inventory,
                                               std::vector<std::string>* notices) {
  if (options.family != nullptr) return options.family;
  std::vector<const family::FamilyFile*> families;
  for (const family::FamilyFile& family : family::BuiltinFamilies()) families.push_back(&family);
  if (carried) return family::DetectByConfig({"hf", *carried}, families);
  if (options.template_config && options.template_config->words == "hf") return family::DetectByConfig(*options.template_config, families);
  std::string notice;
  CROSSDOCK_ASSIGN_OR_RETURN(const family::FamilyFile* family, family::DetectByFacts(inventory.facts, families, &notice));
  notices->push_back(std::move(notice));
  return family;
}

/// The true vocabulary for arguments: their own unless a template keeps more of the stored rows; padded when unknown.
void SetTrueVocabulary(const family::FamilyFile& family, const ReadOptions& options, const Inventory& inventory, Value* args, std::vector<std::string>* notices) {
  const std::int64_t rows = inventory.embedding_rows;
  const std::optional<std::int64_t> own = args->GetInt("vocab_size");
  std::optional<std::int64_t> wanted;
  if (options.template_config && options.template_config->words == "hf") wanted = family::TextConfig(family, *options.template_config).values.GetInt("vocab_size");
  const bool own_fits = own && *own >= 1;
  if (wanted && *wanted >= 1 && *wanted <= rows && (!own_fits || *wanted > *own)) {
    if (own_fits) notices->push_back(fmt::format("the vocabulary is {} as the template says, not {} as the arguments say: the checkpoint stores {} rows", *wanted, *own, rows));
    args->Set("vocab_size", Value(*wanted));
    return;
  }
  if (own_fits || rows == 0) return;
  notices->push_back(fmt::format("the true size of the vocabulary is not stored: all {} rows are kept, padding included (--hf-template DIR tells it)", rows));
  args->Set("vocab_size", Value(rows));
}

Result<Candidate> Evaluate(const family::FamilyFile& family, std::string origin, family::ModelConfig config) {
  Candidate candidate{std::move(origin), std::move(config), {}};
  Result<family::Model> model = family::EvaluateModel(family, candidate.config);
  if (!model) return std::move(std::move(model).error()).WithPath(candidate.origin);
  candidate.model = *std::move(model);
  return candidate;
}

/// The name of a letter in the words of a configuration.
std::string WordOf(const family::FamilyFile& family, const std::string& letter, const std::string& words) {
  const auto rule = family.letters.find(letter);
  if (rule == family.letters.end()) return letter;
  const auto paths = rule->second.paths.find(words);
  return paths == rule->second.paths.end() || paths->second.empty() ? letter : paths->second.front().substr(0, paths->second.front().find(' '));
}

/// The first stored tensor whose shape the two candidates expect differently, and what it says.
std::string DecidingTensor(const Catalog& catalog, const Inventory& inventory, const family::FamilyFile& family, const Candidate& a, const Candidate& b) {
  family::BindOptions options = BindOptionsOf(inventory, family);
  const Result<family::Binding> first = family::Bind(family, a.model, options);
  const Result<family::Binding> second = family::Bind(family, b.model, options);
  if (!first || !second) return {};
  for (const family::DialectTensor& tensor : first->tensors) {
    const auto stored = inventory.tensors.find(tensor.name);
    const auto other = std::find_if(second->tensors.begin(), second->tensors.end(), [&](const family::DialectTensor& t) { return t.name == tensor.name; });
    if (stored == inventory.tensors.end() || stored->second[0] < 0 || other == second->tensors.end() || other->shape == tensor.shape) continue;
    const Shape& shape = catalog.entries[static_cast<std::size_t>(stored->second[0])].shape;
    const std::string verdict = shape == tensor.shape ? "fits " + a.origin : shape == other->shape ? "fits " + b.origin : "fits neither";
    return fmt::format("; the shape of {} is {}, which {}", Printable(tensor.name), ToString(shape), verdict);
  }
  return {};
}

Error Disagreement(const std::string& what, const std::string& a, const std::string& b, const std::string& decides) {
  return MakeError(ErrorCode::kCorrupt, fmt::format("two descriptions of the model disagree about {}", what))
      .WithFound(fmt::format("{} and {}{}", a, b, decides))
      .WithHint("remove or correct the description that is wrong");
}

Status CheckLettersAgree(const Catalog& catalog, const Inventory& inventory, const family::FamilyFile& family, const Candidate& a, const Candidate& b) {
  for (const auto& [letter, value] : a.model.letters) {
    const auto& paths = family.letters.at(letter).paths;
    if (!paths.contains(a.config.words) || !paths.contains(b.config.words)) continue;  // only one of them says it
    if (letter == "v" || b.model.letters.at(letter) == value) continue;
    const std::string word = WordOf(family, letter, b.config.words);
    return Disagreement(word, fmt::format("{} = {} in {}", WordOf(family, letter, a.config.words), value, a.origin),
                        fmt::format("{} = {} in {}", word, b.model.letters.at(letter), b.origin),
                        DecidingTensor(catalog, inventory, family, a, b));
  }
  if (a.model.conditions != b.model.conditions) {
    std::vector<std::string> differing;
    std::set_symmetric_difference(a.model.conditions.begin(), a.model.conditions.end(), b.model.conditions.begin(), b.model.conditions.end(), std::back_inserter(differing));
    const bool head = std::ranges::any_of(inventory.tensors, [](const auto& item) { return WithinLanguageModel(item.first) == "output_layer.weight"; });
    const bool in_a = std::find(a.model.conditions.begin(), a.model.conditions.end(), differing.front()) != a.model.conditions.end();
    std::string decides;
    if (differing.front() == "untied") decides = fmt::format("; output_layer.weight is {}, which fits {}", head ? "stored" : "not stored", head == in_a ? a.origin : b.origin);
    return Disagreement(fmt::format("the condition \"{}\"", differing.front()), fmt::format("{} in {}", in_a, a.origin), fmt::format("{} in {}", !in_a, b.origin), decides);
  }
  return OkStatus();
}

/// Values without a shape: what is said beside the arguments must be the same, or one of them is wrong.
Status CheckNumbersAgree(const Value& args, const std::string& origin, const StoredArgs& stored) {
  constexpr std::pair<const char*, const char*> kSameNumbers[] = {{"rotary_base", "rotary_base"},
                                                              {"layernorm_epsilon", "norm_epsilon"},
                                                              {"rotary_percent", "rotary_percent"}};
  for (const auto& [name, older] : kSameNumbers) {
    const std::optional<double> ours = args.GetFloat(name) ? args.GetFloat(name) : args.GetFloat(older);
    const std::optional<double> theirs = stored.args.GetFloat(name) ? stored.args.GetFloat(name) : stored.args.GetFloat(older);
    if (!ours || !theirs || *ours == *theirs) continue;
    return Disagreement(name, fmt::format("{} in {}", *ours, origin), fmt::format("{} in {}", *theirs, stored.origin), "");
  }
  return OkStatus();
}

/// A run_config.yaml beside arguments in common.pt must not contradict them. What it leaves out, or leaves to a default by
/// null, is no contradiction: its values are laid over the arguments, and the two are compared.
Status CheckRunConfigAgrees(const Catalog& catalog, const Inventory& inventory, const family::FamilyFile& family, const StoredArgs& stored,
                            const Candidate& by_args) {
  const std::optional<StoredArgs> run = ReadRunConfig(catalog);
  if (!run || stored.origin == run->origin) return OkStatus();
  Value laid_over = by_args.config.values;
  for (const auto& [key, value] : run->args.as_dict()->items) {
    if (key.as_string() != nullptr && !value.is_null()) laid_over.Set(*key.as_string(), value);
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const Candidate by_run, Evaluate(family, run->origin, {"mcore", std::move(laid_over)}));
  CROSSDOCK_RETURN_IF_ERROR(CheckLettersAgree(catalog, inventory, family, by_run, by_args));
  return CheckNumbersAgree(run->args, run->origin, stored);
}

/// The prediction layers that are stored, whatever a configuration announces.
std::int64_t StoredMtpLayers(const Inventory& inventory) {
  std::int64_t count = 0;
  const auto there = [&](std::int64_t layer) {
    const std::string prefix = fmt::format("mtp.layers.{}.", layer);
    const auto at = inventory.tensors.lower_bound(prefix);
    return at != inventory.tensors.end() && at->first.starts_with(prefix);
  };
  while (there(count)) ++count;
  return count;
}

/// What the rows of decoder layers call their tensors in the groups of some consumers.
template <typename Of>
std::set<std::string> OwnNames(const family::FamilyFile& family, Of of) {
  std::set<std::string> names;
  for (const family::Group& group : family.groups) {
    if (!of(group.consumer) || std::ranges::none_of(group.index, [](const auto& range) { return range.letter == "l"; })) continue;
    for (const family::Row& row : group.rows) {
      const auto target = row.targets.find("mcore");
      if (target == row.targets.end()) continue;
      for (std::size_t at = 0; at < target->second.ops.size(); ++at) names.insert(family::ExpandGroups(target->second.name, static_cast<std::int64_t>(at)));
    }
  }
  return names;
}

/// Whose names the checkpoint has: the one of the family's consumers with a prefix under which the embedding lies, or with names for
/// a layer's tensors that the first of them does not have.
std::string ConsumerOf(const Inventory& inventory, const family::FamilyFile& family) {
  for (const auto& [consumer, prefixes] : family.consumer_prefixes) {
    for (const auto& [released, own] : prefixes) {
      if (inventory.tensors.contains(own + "embedding.word_embeddings.weight")) return consumer;
    }
  }
  const std::set<std::string> usual = OwnNames(family, [&](const std::string& consumer) { return consumer.empty() || consumer == family.consumers.front(); });
  for (const std::string& consumer : family.consumers) {
    if (consumer == family.consumers.front()) continue;
    for (const std::string& name : OwnNames(family, [&](const std::string& of) { return of == consumer; })) {
      const std::string ending = "." + name;
      if (!usual.contains(name) && std::ranges::any_of(inventory.tensors, [&](const auto& item) { return LayerNumber(item.first) && item.first.ends_with(ending); })) return consumer;
    }
  }
  return {};
}

/// Arguments that say of a tensor whether it is there, against what is there: a family would be chosen by the one, and the model be
/// that of the other. Arguments that do not speak of it contradict nothing.
Status CheckTensorsAgree(const StoredArgs& stored, const family::McoreFacts& facts) {
  struct Said {
    const char* argument;
    const char* tensors;
    bool there;
  };
  const std::array claims = {Said{"add_qkv_bias", "self_attention.linear_qkv.bias", facts.qkv_bias},
                             Said{"qk_layernorm", "self_attention.q_layernorm.weight", facts.qk_layernorm}};
  if (facts.mla || stored.args.GetBool("multi_latent_attention").value_or(false)) return OkStatus();  // its norms have other names
  for (const Said& said : claims) {
    const std::optional<bool> value = stored.args.GetBool(said.argument);
    const bool by_all = said.there && stored.args.GetBool("add_bias_linear").value_or(false);  // biases on all linear layers
    if (!value || *value == said.there || by_all) continue;
    return MakeError(ErrorCode::kCorrupt, fmt::format("the arguments contradict the tensors: {} = {}, {} `{}`", said.argument, *value ? "True" : "False",
                                                      *value ? "but no layer has" : "but layers have", said.tensors))
        .WithPath(stored.origin)
        .WithTensor(said.tensors)
        .WithExpected(*value ? "stored" : "not stored")
        .WithFound(said.there ? "stored" : "not stored")
        .WithHint("tensors were lost or the arguments belong to another run: take the checkpoint from where it was saved");
  }
  return OkStatus();
}

Error NoConfiguration() {
  return MakeError(ErrorCode::kIncomplete, "the checkpoint stores no configuration of its model")
      .WithExpected("arguments in common.pt, run_config.yaml, or hf/config.json")
      .WithHint("give one with --hf-template DIR");
}

}  // namespace

std::optional<std::string> GatedAttentionNotice(const family::FamilyFile& family, const std::string& consumer) {
  const auto gated = [](const family::Row& row) {
    const auto target = row.targets.find("mcore");
    return target != row.targets.end() && std::ranges::any_of(target->second.ops, [](const auto& ops) { return ops.front() == "qgkv"; });
  };
  if (std::ranges::none_of(family.groups, [&](const family::Group& group) { return std::ranges::any_of(group.rows, gated); })) return std::nullopt;
  const bool loongforge = consumer == "loongforge";
  return fmt::format("the rows of gated attention (self_attention.linear_qkv) are those of {}: {} has another order under the same name and shape", loongforge ? "LoongForge" : "Megatron-Core",
                     loongforge ? "Megatron-Core" : "LoongForge");
}

family::BindOptions BindOptionsOf(const Inventory& inventory, const family::FamilyFile& family) {
  family::BindOptions options;
  options.dialect = "mcore";
  options.consumer = ConsumerOf(inventory, family);
  options.stacked_layers = inventory.stacked;
  options.split_gate_up = inventory.split_halves;
  options.stacked_experts = inventory.stacked_experts;
  if (inventory.embedding_rows > 0) options.padded_vocab = inventory.embedding_rows;
  return options;
}

std::string SettingsBehind(const ChosenConfig& chosen, const Inventory& inventory, const std::string& tensor, const Shape& wanted, const Shape& stored) {
  std::string out;
  for (const auto& [letter, value] : chosen.model.letters) {
    family::Model doubled = chosen.model;
    doubled.letters[letter] = 2 * value;
    const Result<family::Binding> binding = family::Bind(*chosen.family, doubled, BindOptionsOf(inventory, *chosen.family));
    if (!binding) continue;
    const auto found = std::find_if(binding->tensors.begin(), binding->tensors.end(), [&](const auto& t) { return t.name == tensor; });
    if (found == binding->tensors.end() || found->shape.size() != wanted.size() || stored.size() != wanted.size()) continue;
    bool decides = false;
    for (std::size_t i = 0; i < wanted.size(); ++i) decides = decides || (stored[i] != wanted[i] && found->shape[i] != wanted[i]);
    if (decides) out += fmt::format("{}{} = {}", out.empty() ? "" : ", ", WordOf(*chosen.family, letter, chosen.config.words), value);
  }
  return out;
}

Result<ChosenConfig> ChooseConfig(const Catalog& catalog, const ReadOptions& options, const Inventory& inventory) {
  ChosenConfig chosen;
  CROSSDOCK_ASSIGN_OR_RETURN(const std::optional<Value> carried, CarriedConfig(catalog));
  chosen.stored = ReadStoredArgs(catalog);
  CROSSDOCK_ASSIGN_OR_RETURN(chosen.family, ChooseFamily(options, carried, inventory, &chosen.notices));
  const family::FamilyFile& family = *chosen.family;
  std::optional<Candidate> by_args;
  std::optional<Candidate> by_config;
  if (chosen.stored) {
    CROSSDOCK_RETURN_IF_ERROR(CheckExpressible(chosen.stored->args, family, chosen.stored->origin));
    CROSSDOCK_RETURN_IF_ERROR(CheckTensorsAgree(*chosen.stored, inventory.facts));
    Value args = chosen.stored->args;
    std::vector<std::string> notices;
    SetTrueVocabulary(family, options, inventory, &args, &notices);
    if (!carried) chosen.notices.insert(chosen.notices.end(), notices.begin(), notices.end());
    Result<Candidate> evaluated = Evaluate(family, chosen.stored->origin, {"mcore", std::move(args)});
    // Arguments of a trainer that keeps the vision tower's sizes elsewhere: then config.json alone says them.
    const bool silent = !evaluated && evaluated.error().code == ErrorCode::kIncomplete && !family.text_config.empty() && (carried || options.template_config);
    if (!evaluated && !silent) return std::move(evaluated).error();
    if (evaluated) {
      by_args = *std::move(evaluated);
      CROSSDOCK_RETURN_IF_ERROR(CheckRunConfigAgrees(catalog, inventory, family, *chosen.stored, *by_args));
    }
  }
  if (carried) {
    CROSSDOCK_ASSIGN_OR_RETURN(by_config, Evaluate(family, "hf/config.json", {"hf", *carried}));
  } else if (!by_args && options.template_config) {
    CROSSDOCK_ASSIGN_OR_RETURN(by_config, Evaluate(family, "the template's config.json", *options.template_config));
  }
  const std::int64_t mtp = StoredMtpLayers(inventory);
  if (by_config) CROSSDOCK_RETURN_IF_ERROR(hf::AgreeOnMtp(family, mtp, by_config->origin, &by_config->config, &by_config->model, &chosen.notices));
  const auto announced = by_args ? by_args->model.letters.find(hf::kMtpLetter) : family::Letters::const_iterator();
  if (by_args && announced != by_args->model.letters.end() && announced->second < mtp) {  // more than are stored is a checkpoint that is not whole
    CROSSDOCK_RETURN_IF_ERROR(hf::AgreeOnMtp(family, mtp, by_args->origin, &by_args->config, &by_args->model, &chosen.notices));
  }
  if (by_args && by_config) {
    CROSSDOCK_RETURN_IF_ERROR(CheckLettersAgree(catalog, inventory, family, *by_config, *by_args));
    CROSSDOCK_ASSIGN_OR_RETURN(const Value said, ArgsFromConfig(family, by_config->model, by_config->config));
    CROSSDOCK_RETURN_IF_ERROR(CheckNumbersAgree(said, by_config->origin, *chosen.stored));
  }
  if (!by_args && !by_config) return NoConfiguration();
  Candidate& winner = by_config ? *by_config : *by_args;
  chosen.config = std::move(winner.config);
  chosen.model = std::move(winner.model);
  chosen.origin = std::move(winner.origin);
  return chosen;
}

}  // namespace crossdock::dialects::mcore
