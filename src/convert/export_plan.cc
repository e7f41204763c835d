// SPDX-License-Identifier: Apache-2.0
#include "convert/export_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "convert/convert_source.h"
#include "convert/layout_options.h"
#include "convert/live_names.h"
#include "convert/live_options.h"
#include "convert/planned_shards.h"
#include "dialects/hf/mtp.h"
#include "dialects/mcore/common_state.h"
#include "dialects/mcore/global_view.h"
#include "dialects/mcore/legacy_names.h"
#include "formats/live/live.h"
#include "formats/placed_reader.h"

namespace crossdock::convert {
namespace {

/// The reference into the form of the run.
ConvertOptions IntoRun(const ExportOptions& options) {
  ConvertOptions out;
  out.source = options.reference;
  out.from = "hf";
  out.to = "megatron-legacy";
  out.family = options.family;
  out.rules = options.rules;
  out.layout = options.layout;
  out.layout.given = true;
  out.vocab_divisor = options.vocab_divisor;
  out.padded_vocab = options.padded_vocab;
  out.mtp = options.mtp == "none" || options.mtp == "template" ? "drop" : "keep";
  out.allow = options.allow;
  out.no_optim = true;
  out.set_args = options.set_args;
  NameModules(options.local_layers, options.grouped_experts, &out.set_args);
  return out;
}

/// The run back into a Hugging Face directory: the words of the command.
ConvertOptions OutOfRun(const ExportOptions& options) {
  ConvertOptions out;
  out.source = kLiveRoot;
  out.target = options.dst;
  out.to = "hf";
  out.hf_template = options.reference;
  out.family = options.family;
  out.rules = options.rules;
  out.dtype = options.dtype;
  out.keep_dtype = options.keep_dtype;
  out.fp8 = options.fp8;
  out.max_shard_bytes = options.max_shard_bytes;
  out.mtp = options.mtp == "none" ? "keep" : options.mtp;
  out.allow = options.allow;
  out.no_optim = true;
  out.memory = options.memory;
  out.threads = options.threads;
  return out;
}

/// The run into a torch_dist iteration of its own layout. Its number is a save's, which renames nothing within.
ConvertOptions IntoMegatron(const ExportOptions& options) {
  ConvertOptions out;
  out.source = kLiveRoot;
  out.target = options.dst;
  out.to = "megatron";
  out.layout = options.layout;
  out.layout.given = true;
  out.iteration = 0;
  out.allow = options.allow;
  out.memory = options.memory;
  out.threads = options.threads;
  return out;
}

/// The arguments in every rank's file are the run's, where it says them.
Status TakeArguments(const ExportOptions& options, Catalog* catalog) {
  std::vector<std::pair<std::string, Value>> given;
  for (const auto& [name, text] : options.run_args) {
    Result<Value> value = ParseJson(text);
    if (!value) return std::move(value).error().WithTensor(name).WithContext("reading the run's arguments");
    given.emplace_back(name, *std::move(value));
  }
  if (given.empty()) return OkStatus();
  for (auto& [file, object] : catalog->objects) {
    const Value* args = object.Find("args");
    if (args == nullptr || args->as_opaque() == nullptr || args->as_opaque()->state == nullptr) continue;
    Value taken = *args->as_opaque()->state;
    for (const auto& [name, value] : given) taken.Set(name, value);
    object.Set("args", dialects::mcore::MakeNamespace(std::move(taken)));
  }
  return OkStatus();
}

/// The parameters that all ranks together hold, as the reader of legacy files would find them; not placed.
Result<Catalog> CatalogOfRun(io::Storage& storage, const ExportOptions& options, const ExportTypes& types) {
  const ConvertOptions conversion = IntoRun(options);
  const SourceRequest request = RequestOf(conversion);
  CROSSDOCK_ASSIGN_OR_RETURN(const std::unique_ptr<io::OverlayStorage> planned, OverPlannedShards(storage, request));
  io::Storage& reference = planned ? static_cast<io::Storage&>(*planned) : storage;
  CROSSDOCK_ASSIGN_OR_RETURN(const Source source, OpenAndRead(reference, request));
  const auto predicting = source.hub.model.letters.find(dialects::hf::kMtpLetter);
  if (predicting != source.hub.model.letters.end() && predicting->second > 0) {
    return MakeError(ErrorCode::kUnsupported, "layers of multi-token prediction that a run holds are not saved from inside it by this version")
        .WithPath(options.reference)
        .WithFound(fmt::format("{} in the reference, and mtp `{}`", predicting->second, options.mtp))
        .WithHint("mtp `template` takes them from the reference, `none` leaves them out; `convert` carries those of the run's checkpoint");
  }
  CROSSDOCK_ASSIGN_OR_RETURN(dialects::TargetState state, ArrangeTarget(source, formats::Kind::kMegatronLegacy, conversion));
  Catalog catalog = std::move(state.catalog);
  catalog.side_files.clear();
  std::erase_if(catalog.objects, [](const auto& item) { return item.first.starts_with("hf/"); });
  CROSSDOCK_RETURN_IF_ERROR(TakeArguments(options, &catalog));
  for (Entry& entry : catalog.entries) {
    const auto type = types.find(entry.name);
    if (type != types.end()) entry.dtype = type->second;
  }
  return catalog;
}

Result<Catalog> PlaceRun(Catalog catalog) {
  CROSSDOCK_ASSIGN_OR_RETURN(catalog, formats::live::PlaceBuffers(std::move(catalog)));
  catalog.format = "mp_rank";  // what its names and objects mean
  catalog.root = kLiveRoot;
  return catalog;
}

std::string DirectoryOf(const Entry& entry) { return entry.name.substr(0, entry.name.find('/')); }

/// Who feeds each chunk. Of ranks that hold the same, those with less to do.
class Owners {
 public:
  Owners(const Catalog& catalog, std::int32_t border, const RunStates& states, const std::vector<RankHolds>& ranks)
      : catalog_(catalog), border_(border), states_(states), load_(ranks.size(), 0), ranks_(ranks.size()), owners_(catalog.entries.size()) {
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) by_directory_[ranks[rank].directory].push_back(static_cast<int>(rank));
  }

  Status Choose(const std::set<std::int32_t>& used) {
    for (const std::int32_t index : used) {
      if (index >= border_) continue;  // the reference's own: every rank can read it
      const Entry& entry = catalog_.entries[static_cast<std::size_t>(index)];
      for (std::size_t chunk = 0; chunk < entry.chunks.size(); ++chunk) {
        const LivePart part{index, static_cast<std::int32_t>(chunk)};
        const std::vector<int>* holders = HoldersOf(part, entry);
        if (holders == nullptr) {
          return MakeError(ErrorCode::kUsage, "no rank holds a tensor that is needed")
              .WithTensor(entry.name)
              .WithExpected(fmt::format("a rank in the place of `{}`", DirectoryOf(entry)))
              .WithFound(fmt::format("{} ranks in other places", ranks_))
              .WithHint("the layout must be that of the run, and each rank's place its own");
        }
        const int lightest = *std::ranges::min_element(*holders, {}, [&](int rank) { return load_[static_cast<std::size_t>(rank)]; });
        owners_[static_cast<std::size_t>(index)].push_back(lightest);
        load_[static_cast<std::size_t>(lightest)] += entry.chunks[chunk].bytes.length;
      }
    }
    return OkStatus();
  }

  [[nodiscard]] int Of(std::int32_t entry, std::int32_t chunk) const {
    const std::vector<int>& of = owners_[static_cast<std::size_t>(entry)];
    return of.empty() ? plan::kAnyRank : of[static_cast<std::size_t>(chunk)];
  }

 private:
  [[nodiscard]] const std::vector<int>* HoldersOf(const LivePart& part, const Entry& entry) const {
    if (const auto state = states_.holders.find(part); state != states_.holders.end()) return &state->second;
    const auto holding = by_directory_.find(DirectoryOf(entry));
    return holding == by_directory_.end() ? nullptr : &holding->second;
  }

  const Catalog& catalog_;
  const std::int32_t border_;
  const RunStates& states_;
  std::vector<std::int64_t> load_;
  const std::size_t ranks_;
  std::map<std::string, std::vector<int>> by_directory_;
  std::vector<std::vector<int>> owners_;  ///< by entry, then chunk; empty: none is needed
};

/// The run as a source of what is written.
Status ReadRun(io::Storage& storage, const ExportOptions& options, const Twins& twins, Source* source) {
  if (!SavesMegatron(options)) {
    CROSSDOCK_ASSIGN_OR_RETURN(source->reference, ReadTemplate(storage, options.reference));
    return ReadSourceHub(RequestOf(OutOfRun(options)), source);
  }
  CROSSDOCK_ASSIGN_OR_RETURN(source->view, dialects::mcore::MakeGlobalView(source->reader->catalog(), {}));
  return SeeStates(source->reader->catalog(), twins, options.distributed_optimizer ? dialects::mcore::OptimizerForm::kDistributed : dialects::mcore::OptimizerForm::kPlain,
                   &*source->view);
}

}  // namespace

bool SavesMegatron(const ExportOptions& options) { return options.to == "megatron"; }

RankHolds HeldHere(const ExportOptions& options) {
  const RankPlace& at = options.place;
  return {dialects::mcore::RankDirName(at.tensor, at.stage, options.layout.pp, at.expert, options.layout.ep), options.states};
}

std::string PackHolds(const RankHolds& holds) {
  std::string text = holds.directory;
  for (const std::string& name : holds.states) text += "\n" + name;
  return text;
}

RankHolds UnpackHolds(const std::string& text) {
  RankHolds out;
  std::size_t end = text.find('\n');
  out.directory = text.substr(0, end);
  while (end != std::string::npos) {
    const std::size_t begin = end + 1;
    end = text.find('\n', begin);
    out.states.push_back(text.substr(begin, end == std::string::npos ? end : end - begin));
  }
  return out;
}

Result<std::unique_ptr<ExportPlan>> MakeExportPlan(io::Storage& storage, const ExportOptions& options, const std::vector<RankHolds>& ranks,
                                                   int rank, const ExportTypes& types) {
  auto out = std::make_unique<ExportPlan>();
  CROSSDOCK_ASSIGN_OR_RETURN(Catalog run, CatalogOfRun(storage, options, types));
  std::vector<std::string> directories;
  std::vector<std::vector<std::string>> names;
  for (const RankHolds& holds : ranks) {
    directories.push_back(holds.directory);
    names.push_back(holds.states);
  }
  const Twins twins(run, options.layout);
  CROSSDOCK_ASSIGN_OR_RETURN(const RunStates states, AddStates(names, directories, twins, &run));
  CROSSDOCK_ASSIGN_OR_RETURN(run, PlaceRun(std::move(run)));
  const auto border = static_cast<std::int32_t>(run.entries.size());
  Source& source = out->source;
  source.label = "the run";
  source.storage = &storage;
  source.found.kind = formats::Kind::kMegatronLegacy;
  source.found.path = kLiveRoot;
  source.reader = std::make_unique<formats::PlacedReader>(std::move(run), "buffers of a running trainer");
  CROSSDOCK_RETURN_IF_ERROR(ReadRun(storage, options, twins, &source));
  CROSSDOCK_ASSIGN_OR_RETURN(out->target, PlaceTarget(source, SavesMegatron(options) ? IntoMegatron(options) : OutOfRun(options)));

  const Catalog& catalog = source.reader->catalog();
  std::set<std::int32_t> used;
  for (const expr::Expr& expr : out->target.exprs) {
    for (const int leaf : expr::LeafOrdinals(expr)) used.insert(leaf);
  }
  Owners owners(catalog, border, states, ranks);
  CROSSDOCK_RETURN_IF_ERROR(owners.Choose(used));
  const plan::OwnerOf owner = [&owners](std::int32_t entry, std::int32_t chunk) { return owners.Of(entry, chunk); };
  plan::PlanOptions planning;
  planning.memory = options.memory;
  planning.threads = out->target.threads;
  planning.contiguous_outputs = out->target.placement.wants_crc32;
  CROSSDOCK_ASSIGN_OR_RETURN(out->share, plan::MakeShareOfSource(catalog, out->target.placement.catalog, out->target.exprs, owner,
                                                                 {rank, static_cast<int>(ranks.size())}, planning));
  const RankHolds& own = ranks[static_cast<std::size_t>(rank)];
  out->holds_states = !states.holders.empty();
  out->mine = states.parts[static_cast<std::size_t>(rank)];
  for (std::int32_t index = 0; index < border; ++index) {
    const Entry& entry = catalog.entries[static_cast<std::size_t>(index)];
    const std::optional<std::string> name = LiveName(entry.name);
    if (name && DirectoryOf(entry) == own.directory) out->mine[*name] = {index, 0};
  }
  for (const auto& [name, part] : out->mine) {
    if (used.contains(part.entry)) out->wanted.insert(part);
  }
  for (const plan::Task& task : out->share.plan.tasks) {
    for (const plan::Read& read : task.reads) {
      if (read.entry < border) out->fed.insert({read.entry, read.chunk});
    }
  }
  // The expressions have led to the tasks.
  source.hub.tensors.clear();
  source.view.reset();
  out->target.exprs.clear();
  return out;
}

}  // namespace crossdock::convert
