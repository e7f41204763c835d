// SPDX-License-Identifier: Apache-2.0
#include "convert/tunix_target.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "dialects/maxtext/inventory.h"
#include "dialects/maxtext/maxtext_dialect.h"
#include "dialects/maxtext/step_words.h"
#include "dialects/tunix/carry.h"
#include "dialects/tunix/view.h"
#include "dialects/tunix/write_step.h"

namespace crossdock::convert {
namespace {

using dialects::tunix::Levels;
using formats::Kind;

/// The step of the trainer that is to load the target.
struct TunixTemplate {
  std::unique_ptr<formats::CheckpointReader> reader;
  dialects::tunix::View view;
  bool scanned = true;
};

Result<TunixTemplate> OpenTemplate(io::Storage& storage, const std::string& path) {
  CROSSDOCK_ASSIGN_OR_RETURN(const formats::Found found, formats::Recognise(storage, path, std::nullopt, std::nullopt));
  if (found.kind != Kind::kTunix) {
    return MakeError(ErrorCode::kUsage, "`--tunix-template` names a Tunix checkpoint")
        .WithPath(path)
        .WithFound(fmt::format("a `{}` checkpoint", formats::KindName(found.kind)))
        .WithHint("save one step of the trainer that is to load the target, and name that");
  }
  TunixTemplate out;
  CROSSDOCK_ASSIGN_OR_RETURN(out.reader, formats::Open(storage, found));
  CROSSDOCK_ASSIGN_OR_RETURN(out.view, dialects::tunix::SeeAsMaxText(out.reader->catalog()));
  CROSSDOCK_ASSIGN_OR_RETURN(const dialects::maxtext::Inventory inventory, dialects::maxtext::TakeInventory(out.view.catalog, true));
  out.scanned = inventory.scanned;
  return out;
}

const Value* CustomMetadata(const Catalog& catalog) {
  const auto at = catalog.objects.find("custom_metadata");
  return at == catalog.objects.end() || at->second.as_dict() == nullptr ? nullptr : &at->second;
}

Result<std::optional<Levels>> RecordOf(const Source& source) {
  if (source.tunix) return std::optional(source.tunix->levels);
  if (!source.hub.trainer_levels.is_null()) {
    CROSSDOCK_ASSIGN_OR_RETURN(Levels levels, dialects::tunix::LevelsFrom(source.hub.trainer_levels));
    return std::optional(std::move(levels));
  }
  const Value* metadata = source.found.kind == Kind::kMaxText ? CustomMetadata(source.reader->catalog()) : nullptr;
  if (metadata == nullptr) return std::optional<Levels>();
  return dialects::tunix::LevelsIn(*metadata);
}

Result<dialects::TargetState> AsMaxText(const Source& source, const ConvertOptions& options, const dialects::TargetOptions& target_options, bool carry) {
  if (!carry) return dialects::maxtext::WriteHub(source.hub, target_options);
  if (source.tunix) return dialects::tunix::CarryToMaxText(*source.tunix, target_options, options.no_optim);
  return dialects::tunix::CarryToMaxText(dialects::tunix::SeeItself(source.reader->catalog(), {}), target_options, options.no_optim);
}

std::string TellLevels(const std::optional<TunixTemplate>& reference, const std::optional<Levels>& record) {
  if (reference) return fmt::format("levels of the template's trainer: {}; settings and random streams are the template's", dialects::tunix::Describe(reference->view.levels));
  if (record) return fmt::format("levels as recorded: {}", dialects::tunix::Describe(*record));
  return "no levels are known: written as supervised fine-tuning saves a bare model; a trainer that wraps the model or its optimizer, or keeps random streams that are not "
         "there, needs --tunix-template DIR, a step of its own";
}

}  // namespace

Result<dialects::TargetState> ArrangeTunix(const Source& source, const ConvertOptions& options, dialects::TargetOptions target_options, bool carry) {
  std::optional<TunixTemplate> reference;
  if (options.tunix_template) {
    CROSSDOCK_ASSIGN_OR_RETURN(reference, OpenTemplate(*source.storage, *options.tunix_template));
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const std::optional<Levels> record, RecordOf(source));
  if (reference && !options.scan_layers && !formats::IsOrbax(source.found.kind)) target_options.scan_layers = reference->scanned;
  const bool pax = reference && reference->view.optimizer == dialects::maxtext::OptimizerKind::kAdamPax;
  if (pax && !options.opt_type && source.hub.optimizer == "adam") target_options.set_args["opt_type"] = "adam_pax";
  CROSSDOCK_ASSIGN_OR_RETURN(dialects::TargetState made, AsMaxText(source, options, target_options, carry));
  dialects::tunix::StepRequest request;
  request.levels = reference ? reference->view.levels : record.value_or(Levels());
  request.custom_metadata = dialects::maxtext::WithoutLevels(made.catalog.objects["custom_metadata"]);
  if (reference) {
    const Value& about = reference->reader->catalog().objects.at("orbax");
    request.ocdbt = about.GetBool("ocdbt").value_or(true);
    request.zarr3 = about.GetBool("zarr3").value_or(true);
    request.counters_follow = true;
  }
  CROSSDOCK_ASSIGN_OR_RETURN(dialects::TargetState step, dialects::tunix::ToStep(std::move(made), request));
  if (reference) CROSSDOCK_RETURN_IF_ERROR(dialects::tunix::CheckFits(step.catalog, reference->reader->catalog()));
  step.notices.push_back(TellLevels(reference, record));
  return step;
}

}  // namespace crossdock::convert
