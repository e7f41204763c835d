// SPDX-License-Identifier: Apache-2.0
#include "convert/source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "convert/kinds.h"
#include "convert/lora_merge.h"
#include "convert/mtp_template.h"
#include "crossdock/nearest.h"
#include "dialects/hf/config_check.h"
#include "dialects/hf/hf_dialect.h"
#include "dialects/hf/language_model.h"
#include "dialects/hf/mtp.h"
#include "dialects/maxtext/inventory.h"
#include "dialects/maxtext/maxtext_dialect.h"
#include "dialects/maxtext/model_names.h"
#include "dialects/mcore/mcore_dialect.h"
#include "family/detect.h"
#include "formats/safetensors/safetensors.h"

namespace crossdock::convert {
namespace {

using formats::Kind;

}  // namespace

Result<const family::FamilyFile*> WantedFamily(const SourceRequest& request, Source* source) {
  std::vector<const family::FamilyFile*> families;
  for (const family::FamilyFile& file : family::BuiltinFamilies()) families.push_back(&file);
  if (request.rules) {
    CROSSDOCK_ASSIGN_OR_RETURN(const std::string text, io::ReadSmallFile(*source->storage, *request.rules));
    CROSSDOCK_ASSIGN_OR_RETURN(family::FamilyFile own, family::ParseFamilyFile(text, *request.rules));
    source->own_rules = std::make_unique<family::FamilyFile>(std::move(own));
    if (!request.family || *request.family == source->own_rules->name) return source->own_rules.get();
  }
  if (!request.family) return nullptr;
  if (const family::FamilyFile* found = family::FindFamily(*request.family, families)) return found;
  if (const family::FamilyFile* found = family::FindFamily(dialects::maxtext::FamilyOfModelName(*request.family), families)) return found;
  std::string names;
  std::vector<std::string_view> known;
  for (const family::FamilyFile* file : families) known.emplace_back(file->name);
  std::string meant = DidYouMean(*request.family, known);
  if (const auto related = dialects::maxtext::RelatedModelNames(*request.family); !related.empty() && request.family->find('-') != std::string::npos) {
    const std::string_view nearest = Nearest(*request.family, related);
    meant = fmt::format("MaxText's models of that name: `{}`{}", fmt::join(related, "`, `"), nearest.empty() ? "" : fmt::format("; the nearest is `{}`", nearest));
  }
  for (const family::FamilyFile* file : families) names += fmt::format("{}`{}`", names.empty() ? "" : ", ", file->name);
  return MakeError(ErrorCode::kUsage, fmt::format("there is no family `{}`", Printable(*request.family)))
      .WithExpected("one of " + names)
      .WithHint(meant.empty() ? "`crossdock families` lists them; `--rules FILE` adds one of your own" : meant);
}

namespace {

bool Allowed(const SourceRequest& request, std::string_view what) {
  return std::ranges::find(request.allow, what) != request.allow.end();
}

/// The hub of what is seen, over what is stored.
Result<dialects::HubState> ReadMegatronHub(const Source& source, const dialects::mcore::ReadOptions& options) {
  CROSSDOCK_ASSIGN_OR_RETURN(dialects::HubState hub, dialects::mcore::ReadHub(source.seen(), options));
  for (dialects::HubTensor& tensor : hub.tensors) {
    CROSSDOCK_ASSIGN_OR_RETURN(tensor.expr, source.view->OverSource(tensor.expr));
  }
  for (dialects::HubCopy& copy : hub.copies) {
    copy.entry = source.view->StoredEntry(copy.entry);
    copy.original = source.view->StoredEntry(copy.original);
  }
  hub.left_out.insert(hub.left_out.end(), source.view->left_out.begin(), source.view->left_out.end());
  if (!source.view->optimizer_refusal.empty()) hub.optimizer_refusal = source.view->optimizer_refusal;
  hub.notices.insert(hub.notices.end(), source.view->notices.begin(), source.view->notices.end());
  return hub;
}

/// The hub of MaxText's tree, which a Tunix step is seen as, over what is stored.
Result<dialects::HubState> ReadTunixHub(const Source& source, const dialects::maxtext::ReadOptions& options) {
  const dialects::tunix::View& view = *source.tunix;
  if (view.has_lora) {
    return MakeError(ErrorCode::kUnsupported, view.lora_alone ? "the step holds LoRA's adapters alone: the weights that they belong to are missing"
                                                              : "the step holds LoRA's adapters beside the weights that they belong to; they are not merged")
        .WithExpected("a model's own weights")
        .WithFound("`kernel_lora_a` and `kernel_lora_b`")
        .WithHint(view.lora_alone ? "`--lora-base DIR` merges them into a MaxText or Tunix step; `--to maxtext` carries them as they are"
                                  : "`--lora-base` with the same path merges them; `--to maxtext` carries them as they are");
  }
  CROSSDOCK_ASSIGN_OR_RETURN(dialects::HubState hub, dialects::maxtext::ReadHub(view.catalog, options));
  for (dialects::HubTensor& tensor : hub.tensors) {
    CROSSDOCK_ASSIGN_OR_RETURN(tensor.expr, view.OverSource(tensor.expr));
  }
  hub.left_out.insert(hub.left_out.end(), view.left_out.begin(), view.left_out.end());
  hub.notices.insert(hub.notices.end(), view.notices.begin(), view.notices.end());
  if (!options.no_optim) hub.optimizer_refusal = view.optimizer_refusal;
  hub.trainer_levels = dialects::tunix::ToValue(view.levels);
  hub.layout.Set("levels", Value(dialects::tunix::Describe(view.levels)));
  hub.load_hint = fmt::format("tunix.sft.checkpoint_manager.CheckpointManager(\"{}\").maybe_restore(model, optimizer, step={})", io::ParentPath(view.catalog.root), view.catalog.step.value_or(0));
  return hub;
}

Result<dialects::HubState> ReadHub(const SourceRequest& request, const family::FamilyFile* wanted, const Source& source) {
  const Catalog& catalog = source.reader->catalog();
  std::optional<family::ModelConfig> config;
  if (source.reference) config = source.reference->config;
  const bool unknown = Allowed(request, "unknown-tensors");
  if (source.view) return ReadMegatronHub(source, {wanted, std::move(config), request.no_optim, unknown, request.allow_missing});
  if (formats::IsOrbax(source.found.kind)) {
    dialects::maxtext::ReadOptions maxtext{wanted, std::move(config), {}, request.scan_axis, request.no_optim, unknown, request.allow_missing};
    for (const auto& [key, value] : request.set_args) maxtext.set_args[key] = value;
    return source.tunix ? ReadTunixHub(source, maxtext) : dialects::maxtext::ReadHub(catalog, maxtext);
  }
  const dialects::hf::ReadOptions options{wanted, std::move(config), unknown, request.allow_missing, Allowed(request, "unscaled-fp8"), request.dequantized, request.keep_dtype};
  if (source.found.kind == Kind::kDcp) return dialects::hf::ReadDcp(catalog, options, request.no_optim);
  return source.found.kind == Kind::kFullState ? dialects::hf::ReadFullState(catalog, options)
                                               : dialects::hf::ReadHub(catalog, options);
}

/// The family of the source itself, where `text` is its language model's (`--family qwen3` for a Qwen3-VL model); null elsewhere.
const family::FamilyFile* WholeAround(const family::FamilyFile* text, const std::optional<family::ModelConfig>& config) {
  if (text == nullptr || !config || config->words != "hf") return nullptr;
  std::vector<const family::FamilyFile*> families;
  for (const family::FamilyFile& file : family::BuiltinFamilies()) families.push_back(&file);
  const Result<const family::FamilyFile*> own = family::DetectByConfig(*config, families);
  return own && dialects::hf::IsLanguageModelOf(*text, **own) ? *own : nullptr;
}

/// The configuration that says what the source is: its own, else the one that it carries or that the user names.
std::optional<family::ModelConfig> ConfigOfSource(const Source& source) {
  const auto own = source.reader->catalog().objects.find("config.json");
  if (own != source.reader->catalog().objects.end()) return family::ModelConfig{"hf", own->second};
  return source.reference ? source.reference->config : std::nullopt;
}

/// The template of a whole model, as one of its language model.
void TakeLanguageModelOf(const family::FamilyFile& text, const family::FamilyFile& whole, Template* reference) {
  reference->config = dialects::hf::LanguageModelConfig(text, whole, *reference->config);
  reference->order = dialects::hf::LanguageModelNames(whole, reference->order);
  dialects::hf::LeaveProcessorFiles(&reference->side_files, nullptr);
}

/// Compares one chunk of two stored tensors of one dtype and shape, 1 MiB at a time.
Status CompareChunk(const Source& source, std::pair<std::int32_t, std::int32_t> entries, std::int32_t chunk, std::int64_t memory, const Error& unequal) {
  const auto [a, b] = entries;
  const Catalog& catalog = source.reader->catalog();
  const Entry& x = catalog.entries[static_cast<std::size_t>(a)];
  CROSSDOCK_ASSIGN_OR_RETURN(const ByteRange left, source.reader->Locate(a, chunk));
  CROSSDOCK_ASSIGN_OR_RETURN(const ByteRange right, source.reader->Locate(b, chunk));
  const auto open = [&](std::int32_t entry) {
    const Chunk& part = catalog.entries[static_cast<std::size_t>(entry)].chunks[static_cast<std::size_t>(chunk)];
    const FileRef& file = catalog.files[static_cast<std::size_t>(part.file)];
    return source.storage->OpenRead(io::JoinPath(catalog.root, file.path));
  };
  CROSSDOCK_ASSIGN_OR_RETURN(const std::unique_ptr<io::ReadFile> first, open(a));
  CROSSDOCK_ASSIGN_OR_RETURN(const std::unique_ptr<io::ReadFile> second, open(b));
  const std::int64_t tile = std::clamp<std::int64_t>(memory / 4, 1 << 12, 1 << 20);
  std::vector<std::byte> p(static_cast<std::size_t>(std::min(tile, left.length))), q(p.size());
  for (std::int64_t at = 0; at < left.length; at += tile) {
    const auto n = static_cast<std::size_t>(std::min(tile, left.length - at));
    CROSSDOCK_RETURN_IF_ERROR(first->ReadAt(left.offset + at, std::span(p).first(n)));
    CROSSDOCK_RETURN_IF_ERROR(second->ReadAt(right.offset + at, std::span(q).first(n)));
    const auto [i, j] = std::mismatch(p.begin(), p.begin() + static_cast<std::ptrdiff_t>(n), q.begin());
    if (i == p.begin() + static_cast<std::ptrdiff_t>(n)) continue;
    const std::int64_t byte = at + (i - p.begin());
    return Error(unequal)
        .WithFound(fmt::format("another value at element {}{}", byte * 8 / BitsOf(x.dtype),
                               x.chunks.size() == 1 ? "" : " of the part " + ToString(x.chunks[static_cast<std::size_t>(chunk)].box)));
  }
  return OkStatus();
}

/// Compares two stored tensors, chunk by chunk.
Status CompareStored(const Source& source, std::int32_t a, std::int32_t b, std::string differ, std::string_view hint, std::int64_t memory) {
  const Catalog& catalog = source.reader->catalog();
  const Entry& x = catalog.entries[static_cast<std::size_t>(a)];
  const Entry& y = catalog.entries[static_cast<std::size_t>(b)];
  const Error unequal = MakeError(ErrorCode::kCorrupt, std::move(differ))
                            .WithPath(catalog.root)
                            .WithTensor(y.name)
                            .WithExpected(fmt::format("the same as `{}`", Printable(x.name)))
                            .WithHint(std::string(hint));
  if (x.dtype != y.dtype || x.shape != y.shape) {
    return Error(unequal).WithFound(
        fmt::format("{} {} against {} {}", DTypeName(y.dtype), ToString(y.shape), DTypeName(x.dtype), ToString(x.shape)));
  }
  // Ranks cut one and the same tensor in the same way; sorted boxes then agree one by one.
  const auto same_box = [](const Chunk& p, const Chunk& q) { return p.box == q.box; };
  if (!std::ranges::equal(x.chunks, y.chunks, same_box)) {
    return Error(unequal).WithFound(fmt::format("{} chunks against {}, cut at other places", y.chunks.size(), x.chunks.size()));
  }
  for (std::size_t chunk = 0; chunk < x.chunks.size(); ++chunk) {
    CROSSDOCK_RETURN_IF_ERROR(CompareChunk(source, {a, b}, static_cast<std::int32_t>(chunk), memory, unequal));
  }
  return OkStatus();
}

/// Zeros of a shape: an empty slice of some tensor, padded.
Result<expr::Expr> Zeros(const expr::Expr& any, const Shape& shape) {
  Box nothing = Box::Whole(any->shape);
  for (std::int64_t& size : nothing.sizes) size = 0;
  CROSSDOCK_ASSIGN_OR_RETURN(expr::Expr empty, expr::Slice(any, nothing));
  CROSSDOCK_ASSIGN_OR_RETURN(empty, expr::Cast(std::move(empty), DType::kF32));
  return expr::Pad(std::move(empty), Dims::Filled(shape.size(), 0), shape);
}

/// A layer-wise optimizer saves its state beside the steps under some forms of checkpoint, over and over under the same names: nothing
/// says which step it belongs to. A step's own state is used, and that these lie there is told.
void TellStrayOptimizerFiles(io::Storage& storage, formats::Found* found) {
  if (!IsMegatron(found->kind)) return;
  const std::string root = found->run_root.empty() ? io::ParentPath(found->path) : found->run_root;
  const Result<std::vector<io::DirEntry>> entries = storage.List(root);
  if (!entries) return;
  const auto stray = [](const io::DirEntry& entry) { return entry.name.starts_with("layer_wise_optimizer"); };
  const auto count = std::ranges::count_if(*entries, stray);
  if (count == 0) return;
  found->notices.push_back(fmt::format("{} files `layer_wise_optimizer*` lie beside the step and are not read: nothing says which step they are of", count));
}

}  // namespace

Result<Template> ReadTemplate(io::Storage& storage, const std::string& path) {
  Template out;
  CROSSDOCK_ASSIGN_OR_RETURN(out.dir, formats::safetensors::ResolveHubCache(storage, path));
  CROSSDOCK_ASSIGN_OR_RETURN(const io::FileInfo info, storage.Stat(out.dir));
  std::string config_path = io::JoinPath(out.dir, "config.json");
  if (info.kind == io::FileKind::kFile) {  // --hf-config names the file itself
    config_path = out.dir;
    out.file_alone = true;
    out.dir = io::ParentPath(out.dir);
  }
  if (!io::Exists(storage, config_path)) {
    return MakeError(ErrorCode::kIncomplete, "the template has no config.json")
        .WithPath(config_path)
        .WithHint("`--hf-template` names a Hugging Face model directory");
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string text, io::ReadSmallFile(storage, config_path));
  Result<Value> config = ParseJson(text);
  if (!config) return std::move(config).error().WithPath(config_path);
  CROSSDOCK_RETURN_IF_ERROR(dialects::hf::CheckConfigFields(*config, config_path));
  out.config = family::ModelConfig{"hf", std::move(config).value()};
  CROSSDOCK_ASSIGN_OR_RETURN(out.order, formats::safetensors::ReadTensorOrder(storage, out.dir));
  std::vector<std::string> notices;
  CROSSDOCK_ASSIGN_OR_RETURN(out.side_files, formats::safetensors::ListSideFiles(storage, out.dir, &notices));
  return out;
}

void ReadShapes(io::Storage& storage, Template* reference) {
  const auto found = formats::Recognise(storage, reference->dir, std::nullopt, Kind::kHf);
  if (!found) return;
  const auto reader = formats::Open(storage, *found);
  if (!reader) return;
  for (const Entry& entry : (*reader)->catalog().entries) reference->shapes[entry.name] = entry.shape;
}

Result<Source> OpenSource(io::Storage& storage, const SourceRequest& request) {
  Source source;
  source.label = request.path;
  source.storage = &storage;
  CROSSDOCK_ASSIGN_OR_RETURN(const std::optional<Kind> from, ParseSourceKind(request.from));
  CROSSDOCK_ASSIGN_OR_RETURN(source.found, formats::Recognise(storage, request.path, request.step, from));
  CROSSDOCK_ASSIGN_OR_RETURN(source.reader, formats::Open(storage, source.found));
  CROSSDOCK_RETURN_IF_ERROR(MergeLora(storage, request, &source));
  TellStrayOptimizerFiles(storage, &source.found);
  std::optional<std::string> reference = request.hf_template;
  // Checkpoints of ours carry the model's own config.json and tokenizer: the best template there is.
  const std::string carried = io::JoinPath(source.found.path, "hf");
  const bool carries = IsMegatron(source.found.kind) || formats::IsOrbax(source.found.kind);
  if (!reference && carries && io::Exists(storage, io::JoinPath(carried, "config.json"))) {
    reference = carried;
  }
  if (reference) {
    CROSSDOCK_ASSIGN_OR_RETURN(source.reference, ReadTemplate(storage, *reference));
  }
  return source;
}

Status SeeTunix(bool no_optim, Source* source) {
  if (source->found.kind != Kind::kTunix || source->tunix) return OkStatus();
  CROSSDOCK_ASSIGN_OR_RETURN(source->tunix, dialects::tunix::SeeAsMaxText(source->reader->catalog()));
  const dialects::tunix::View& view = *source->tunix;
  CROSSDOCK_ASSIGN_OR_RETURN(const dialects::maxtext::Inventory inventory, dialects::maxtext::TakeInventory(view.catalog, no_optim));
  dialects::HubState& hub = source->hub;
  hub.counters = inventory.counters;
  if (!no_optim && view.optimizer != dialects::maxtext::OptimizerKind::kNone) hub.optimizer = view.optimizer == dialects::maxtext::OptimizerKind::kMuon ? "muon" : "adam";
  hub.layout.Set("layers", Value(inventory.scanned ? "scanned" : "numbered"));
  hub.layout.Set("levels", Value(dialects::tunix::Describe(view.levels)));
  hub.left_out = inventory.left_out;
  hub.left_out.insert(hub.left_out.end(), view.left_out.begin(), view.left_out.end());
  hub.notices = view.notices;
  return OkStatus();
}

Status ReadSourceHub(const SourceRequest& request, Source* source) {
  const KindSpec& spec = SpecOf(source->found.kind);
  if (!spec.reads) {  // its tensors can be listed, but nobody knows what they mean
    return MakeError(ErrorCode::kUnsupported, fmt::format("this version cannot convert from {} (`{}`)", spec.what, formats::KindName(spec.kind)))
        .WithPath(source->found.path);
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const family::FamilyFile* wanted, WantedFamily(request, source));
  const auto at_root = [&](Error error) {
    if (error.path.empty()) error.path = source->reader->catalog().root;
    return error;
  };
  if (IsMegatron(source->found.kind)) {
    const auto load = [reader = source->reader.get()](const ObjectRef& ref) { return reader->LoadObject(ref); };
    Result<dialects::mcore::GlobalView> view = dialects::mcore::MakeGlobalView(source->reader->catalog(), {request.no_optim, load});
    if (!view) return at_root(std::move(view).error());
    source->view = std::move(view).value();
  }
  if (const Status seen = SeeTunix(request.no_optim, source); !seen) return at_root(seen.error());
  const family::FamilyFile* whole = WholeAround(wanted, ConfigOfSource(*source));
  Result<dialects::HubState> hub = ReadHub(request, whole != nullptr ? whole : wanted, *source);
  if (!hub) return at_root(std::move(hub).error());
  source->hub = std::move(hub).value();
  if (whole != nullptr) CROSSDOCK_RETURN_IF_ERROR(dialects::hf::TakeLanguageModel(*wanted, &source->hub));
  if (source->reference && WholeAround(source->hub.family, source->reference->config) != nullptr) {
    TakeLanguageModelOf(*source->hub.family, *WholeAround(source->hub.family, source->reference->config), &*source->reference);
  }
  if (source->reference && source->hub.family != nullptr && !source->hub.family->spellings.empty() && !source->reference->order.empty()) {
    ReadShapes(*source->storage, &*source->reference);
  }
  if (request.drop_mtp) CROSSDOCK_RETURN_IF_ERROR(dialects::hf::DropMtp(&source->hub));
  if (request.mtp_of_template) CROSSDOCK_RETURN_IF_ERROR(TakeMtpOfTemplate(request, source));
  if (request.no_optim) DropOptimizer(&source->hub);
  return CheckMoments(&source->hub);
}

Result<Source> OpenAndRead(io::Storage& storage, const SourceRequest& request) {
  CROSSDOCK_ASSIGN_OR_RETURN(Source source, OpenSource(storage, request));
  CROSSDOCK_RETURN_IF_ERROR(ReadSourceHub(request, &source));
  return source;
}

Status CheckTiedPair(const Source& source, std::int64_t memory) {
  Status equal = OkStatus();
  if (source.hub.tied) {
    equal = CompareStored(source, source.hub.tied->embedding, source.hub.tied->head, "config.json ties the head to the embedding, but the two differ",
                          "set `tie_word_embeddings` to false in config.json if both are meant", memory);
  }
  for (std::size_t i = 0; equal && source.view && i < source.view->copies.size(); ++i) {
    const dialects::TiedPair& copy = source.view->copies[i];
    equal = CompareStored(source, copy.embedding, copy.head, "the arguments tie the head to the embedding, but the two differ", "the last stage's copy is stale: save the run again", memory);
  }
  for (std::size_t i = 0; equal && source.view && i < source.view->repeated.size(); ++i) {
    const dialects::TiedPair& copy = source.view->repeated[i];
    equal = CompareStored(source, copy.embedding, copy.head, "the embedding beside the vision tower repeats the language model's, but the two differ", "one of them is stale: save the run again", memory);
  }
  for (const dialects::HubCopy& copy : source.hub.copies) {
    if (!equal || copy.entry < 0 || copy.original < 0) continue;
    const bool twice = copy.name == copy.of;  // under two names of the source's own
    equal = CompareStored(source, copy.original, copy.entry,
                          twice ? fmt::format("`{}` is stored twice, but the two differ", copy.of) : fmt::format("`{}` repeats `{}` in this family, but the two differ", copy.name, copy.of),
                          twice ? "save the run again: one of them is stale" : "`--mtp drop` leaves these layers behind", memory);
  }
  return std::move(equal).WithContext("comparing tied tensors");
}

std::int64_t BytesOf(const dialects::HubTensor& tensor) {
  const Result<std::int64_t> bytes = ByteSize(tensor.dtype, tensor.shape);
  return bytes ? *bytes : 0;  // shapes were checked when the catalog was read
}

void DropOptimizer(dialects::HubState* hub) {
  dialects::LeftOut left{"optimizer state", "left behind by --no-optim", 0, 0};
  std::erase_if(hub->tensors, [&](const dialects::HubTensor& t) {
    if (t.slot == Slot::kParam) return false;
    ++left.count;
    left.bytes += BytesOf(t);
    return true;
  });
  hub->optimizer.clear();
  hub->extras.Erase("param_groups");
  hub->counters.adam_count.reset();
  hub->counters.muon_count.reset();
  if (left.count != 0) hub->left_out.push_back(std::move(left));
}

Status FillMissingMoments(dialects::HubState* hub) {
  std::map<std::string_view, const dialects::HubTensor*> bare;
  bool any = false;
  for (const dialects::HubTensor& t : hub->tensors) {
    if (t.slot == Slot::kParam && !t.shape.empty()) bare[t.name] = &t;
  }
  for (const dialects::HubTensor& t : hub->tensors) {
    if (t.slot == Slot::kParam) continue;
    any = true;
    bare.erase(t.name);
  }
  if (!any || bare.empty()) return OkStatus();
  std::vector<dialects::HubTensor> made;
  for (const auto& [name, param] : bare) {
    CROSSDOCK_ASSIGN_OR_RETURN(expr::Expr master, expr::Cast(param->expr, DType::kF32));
    made.push_back({param->name, Slot::kMaster, DType::kF32, param->shape, std::move(master)});
    for (const Slot slot : {Slot::kAdamMu, Slot::kAdamNu}) {
      CROSSDOCK_ASSIGN_OR_RETURN(expr::Expr zeros, Zeros(param->expr, param->shape));
      made.push_back({param->name, slot, DType::kF32, param->shape, std::move(zeros)});
    }
  }
  hub->notices.push_back(fmt::format("{} parameters without optimizer state get moments of zero (--allow missing-optimizer)", bare.size()));
  hub->tensors.insert(hub->tensors.end(), made.begin(), made.end());
  std::ranges::sort(hub->tensors, [](const auto& a, const auto& b) { return std::tie(a.name, a.slot) < std::tie(b.name, b.slot); });
  return OkStatus();
}

namespace {

/// The optimizer that a source names must be the one whose state it holds: what is missing altogether would begin from zero.
Status CheckNamedOptimizer(const dialects::HubState& hub) {
  const auto holds = [&](Slot slot) { return std::ranges::any_of(hub.tensors, [&](const dialects::HubTensor& t) { return t.slot == slot; }); };
  const bool muon = holds(Slot::kMuonMu);
  const bool adam = holds(Slot::kAdamMu) || holds(Slot::kAdamNu);
  const bool names_muon = hub.optimizer.find("muon") != std::string::npos;
  const bool names_adam = hub.optimizer.find("adam") != std::string::npos;
  if ((names_muon == muon || !(names_muon || names_adam)) && (!names_adam || adam)) return OkStatus();
  return MakeError(muon ? ErrorCode::kCorrupt : ErrorCode::kIncomplete, "the checkpoint names an optimizer and holds the state of another")
      .WithExpected(fmt::format("the state of `{}`", Printable(hub.optimizer)))
      .WithFound(muon ? "Muon's momentum" : adam ? "Adam's moments and no momentum of Muon's" : "none")
      .WithHint("`--no-optim` converts the parameters alone");
}

}  // namespace

Status CheckMoments(dialects::HubState* hub) {
  CROSSDOCK_RETURN_IF_ERROR(CheckNamedOptimizer(*hub));
  const auto is_moment = [](const dialects::HubTensor& t) { return t.slot == Slot::kAdamMu || t.slot == Slot::kAdamNu || t.slot == Slot::kMuonMu; };
  if (std::ranges::none_of(hub->tensors, is_moment)) return OkStatus();
  std::map<std::string_view, unsigned> slots;
  for (const dialects::HubTensor& t : hub->tensors) slots[t.name] |= 1U << static_cast<unsigned>(t.slot);
  constexpr unsigned kMu = 1U << static_cast<unsigned>(Slot::kAdamMu);
  constexpr unsigned kNu = 1U << static_cast<unsigned>(Slot::kAdamNu);
  constexpr unsigned kMuon = 1U << static_cast<unsigned>(Slot::kMuonMu);
  std::string without;
  std::int64_t count = 0;
  for (const auto& [name, has] : slots) {
    if ((has & kMuon) != 0 && (has & (kMu | kNu)) != 0) {
      return MakeError(ErrorCode::kCorrupt, "a parameter has the state of Muon and of Adam")
          .WithTensor(std::string(name))
          .WithExpected("`muon_mu`, or `adam_mu` and `adam_nu`")
          .WithFound("both")
          .WithHint("`--no-optim` converts the parameters alone");
    }
    if ((has & kMu) != 0 && (has & kNu) != 0) continue;
    if ((has & (kMu | kNu)) != 0) {
      return MakeError(ErrorCode::kIncomplete, "a parameter has one Adam moment but not the other")
          .WithTensor(std::string(name))
          .WithExpected("`adam_mu` and `adam_nu`")
          .WithFound((has & kMu) != 0 ? "`adam_mu` only" : "`adam_nu` only")
          .WithHint("`--no-optim` converts the parameters alone");
    }
    if ((has & kMuon) != 0) continue;
    if (++count <= 10) without += fmt::format("{}`{}`", without.empty() ? "" : ", ", Printable(name));
  }
  if (count != 0) {
    hub->notices.push_back(fmt::format("{} parameters have no optimizer state: {}{}", count, without, count > 10 ? ", ..." : ""));
  }
  return OkStatus();
}

}  // namespace crossdock::convert
