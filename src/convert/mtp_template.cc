// SPDX-License-Identifier: Apache-2.0
#include "convert/mtp_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "dialects/hf/config_patch.h"
#include "dialects/hf/fp8_export.h"
#include "dialects/hf/hf_dialect.h"
#include "dialects/hf/mtp.h"
#include "formats/registry.h"

namespace crossdock::convert {
namespace {

/// Two readers as one: the entries of the second follow those of the first. Objects and side files are the first one's.
class TwoReaders : public formats::CheckpointReader {
 public:
  TwoReaders(std::unique_ptr<formats::CheckpointReader> first, std::unique_ptr<formats::CheckpointReader> second, const std::set<std::int32_t>& wanted)
      : first_(std::move(first)), second_(std::move(second)), catalog_(first_->catalog()), border_(static_cast<std::int32_t>(catalog_.entries.size())) {
    namespace fs = std::filesystem;
    const auto files = static_cast<std::int32_t>(catalog_.files.size());
    const fs::path root = fs::weakly_canonical(fs::absolute(second_->catalog().root));
    for (FileRef file : second_->catalog().files) {
      file.path = (root / file.path).lexically_relative(fs::weakly_canonical(fs::absolute(catalog_.root))).generic_string();
      catalog_.files.push_back(std::move(file));
    }
    for (const std::int32_t index : wanted) {
      Entry entry = second_->catalog().entries[static_cast<std::size_t>(index)];
      entry.name.insert(0, kMark);
      for (Chunk& chunk : entry.chunks) chunk.file += files;
      catalog_.entries.push_back(std::move(entry));
      seconds_.push_back(index);
    }
  }

  [[nodiscard]] const Catalog& catalog() const override { return catalog_; }
  [[nodiscard]] Result<ByteRange> Locate(std::int32_t entry, std::int32_t chunk) const override {
    return entry < border_ ? first_->Locate(entry, chunk) : second_->Locate(Second(entry), chunk);
  }
  [[nodiscard]] Result<std::unique_ptr<formats::ElementStream>> OpenEncoded(std::int32_t entry, std::int32_t chunk, const io::ReadFile& file) const override {
    return entry < border_ ? first_->OpenEncoded(entry, chunk, file) : second_->OpenEncoded(Second(entry), chunk, file);
  }
  [[nodiscard]] Result<Value> LoadObject(const ObjectRef& ref) const override { return first_->LoadObject(ref); }

  /// Where an entry of the second reader is among all.
  [[nodiscard]] std::int32_t Place(std::int32_t index) const {
    return border_ + static_cast<std::int32_t>(std::ranges::lower_bound(seconds_, index) - seconds_.begin());
  }

 private:
  static constexpr const char* kMark = "~template/";   ///< sorts behind every name of a model

  [[nodiscard]] std::int32_t Second(std::int32_t entry) const { return seconds_[static_cast<std::size_t>(entry - border_)]; }

  std::unique_ptr<formats::CheckpointReader> first_, second_;
  Catalog catalog_;
  std::int32_t border_;
  std::vector<std::int32_t> seconds_;   ///< entries of the second that are among all, ascending
};

Error NoTemplate(std::string message, std::string path) {
  return MakeError(ErrorCode::kUsage, std::move(message)).WithPath(std::move(path)).WithHint("`--hf-template DIR` names the released model with its weights; `--mtp keep` goes on without");
}

/// Sizes of everything but the number of these layers.
Status CheckSameModel(const family::Model& ours, const family::Model& theirs, const std::string& path) {
  for (const auto& [letter, value] : ours.letters) {
    const auto other = theirs.letters.find(letter);
    if (letter == dialects::hf::kMtpLetter || other == theirs.letters.end() || other->second == value) continue;
    return NoTemplate("the template is a model of other sizes", path).WithExpected(fmt::format("the letter {} to be {}", letter, value)).WithFound(fmt::format("{}", other->second));
  }
  return OkStatus();
}

/// The hub names of a family's model but for these layers.
Result<std::set<std::string>> OtherNames(const family::FamilyFile& family, family::Model model) {
  model.letters[dialects::hf::kMtpLetter] = 0;
  family::BindOptions options;
  options.dialect = "hf";
  CROSSDOCK_ASSIGN_OR_RETURN(const family::Binding rest, family::Bind(family, model, options));
  std::set<std::string> names;
  for (const family::HubTensor& tensor : rest.hub) names.insert(tensor.name);
  return names;
}

}  // namespace

Status TakeMtpOfTemplate(const SourceRequest& request, Source* source) {
  dialects::HubState& hub = source->hub;
  const auto letter = hub.family == nullptr ? family::Letters::iterator() : hub.model.letters.find(dialects::hf::kMtpLetter);
  if (hub.family == nullptr || letter == hub.model.letters.end()) {
    return MakeError(ErrorCode::kUsage, fmt::format("the family {} has no layers of multi-token prediction", hub.family == nullptr ? "of this model" : hub.family->name))
        .WithHint("leave `--mtp template` out");
  }
  if (letter->second > 0) {
    hub.notices.push_back(fmt::format("the source has {} {} of multi-token prediction of its own: nothing is taken from the template", letter->second, letter->second == 1 ? "layer" : "layers"));
    return OkStatus();
  }
  if (!source->reference) return NoTemplate("`--mtp template` takes layers from a template, and none is named", "");
  const std::string& dir = source->reference->dir;
  const auto found = formats::Recognise(*source->storage, dir, std::nullopt, formats::Kind::kHf);
  if (!found) return NoTemplate("the template has no weights to take layers of multi-token prediction from", dir);
  CROSSDOCK_ASSIGN_OR_RETURN(std::unique_ptr<formats::CheckpointReader> reader, formats::Open(*source->storage, *found));
  dialects::hf::ReadOptions options;
  options.family = hub.family;
  options.template_config = source->reference->config;
  options.dequantized = request.dequantized;
  options.keep_dtype = request.keep_dtype;
  CROSSDOCK_ASSIGN_OR_RETURN(dialects::HubState theirs, dialects::hf::ReadHub(reader->catalog(), options));
  CROSSDOCK_RETURN_IF_ERROR(CheckSameModel(hub.model, theirs.model, dir));
  const std::int64_t layers = theirs.model.letters.at(dialects::hf::kMtpLetter);
  if (layers == 0) {
    return MakeError(ErrorCode::kIncomplete, "the template's weights hold no layers of multi-token prediction").WithPath(dir).WithHint("`--mtp keep` goes on without: config.json then says 0");
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const std::set<std::string> others, OtherNames(*hub.family, theirs.model));
  std::erase_if(theirs.tensors, [&](const dialects::HubTensor& tensor) { return others.contains(tensor.name); });
  std::set<std::int32_t> wanted;
  for (const dialects::HubTensor& tensor : theirs.tensors) {
    for (const int leaf : expr::LeafOrdinals(tensor.expr)) wanted.insert(leaf);
  }
  const Catalog& before = reader->catalog();
  std::vector<std::pair<DType, Shape>> forms(before.entries.size());
  for (const std::int32_t index : wanted) forms[static_cast<std::size_t>(index)] = {before.entries[static_cast<std::size_t>(index)].dtype, before.entries[static_cast<std::size_t>(index)].shape};
  hub.layout.Set(dialects::hf::kTemplateEntries, Value(static_cast<std::int64_t>(source->reader->catalog().entries.size())));
  auto both = std::make_unique<TwoReaders>(std::move(source->reader), std::move(reader), wanted);
  for (dialects::HubTensor& tensor : theirs.tensors) {
    CROSSDOCK_ASSIGN_OR_RETURN(tensor.expr, expr::Substitute(tensor.expr, [&](int leaf) -> Result<expr::Expr> {
      const auto& [dtype, shape] = forms[static_cast<std::size_t>(leaf)];
      return expr::Leaf(both->Place(leaf), dtype, shape);
    }));
    hub.order.push_back(tensor.name);
    hub.tensors.push_back(std::move(tensor));
  }
  std::ranges::sort(hub.tensors, [](const auto& a, const auto& b) { return std::tie(a.name, a.slot) < std::tie(b.name, b.slot); });
  for (const dialects::HubCopy& copy : theirs.copies) hub.copies.push_back({copy.name, copy.of, -1, -1});
  source->reader = std::move(both);
  letter->second = layers;
  const auto& paths = hub.family->letters.at(dialects::hf::kMtpLetter).paths;
  if (const auto places = paths.find(hub.config.words); places != paths.end()) {
    const std::string path = hub.config.words == "hf" ? dialects::hf::PathOfLetter(*hub.family, dialects::hf::kMtpLetter, hub.config.values) : places->second.front();
    dialects::hf::SetPath(&hub.config.values, path, Value(layers));
  }
  hub.notices.push_back(fmt::format("{} {} of multi-token prediction, {} tensors, are the template's: the source has none", layers, layers == 1 ? "layer" : "layers", theirs.tensors.size()));
  return OkStatus();
}

}  // namespace crossdock::convert
