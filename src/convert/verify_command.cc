// SPDX-License-Identifier: Apache-2.0
/// Verify: two checkpoints of any formats, by hub names.
#include "convert/comparison.h"
#include "convert/job.h"
#include "crossdock/convert.h"

namespace crossdock {
namespace {

using namespace convert;  // NOLINT(google-build-using-namespace): this file is the room's front door

SourceRequest SideOf(const VerifyOptions& options, const std::string& path, const std::optional<std::string>& from) {
  SourceRequest request;
  request.path = path;
  request.from = from;
  request.step = options.step;
  request.family = options.family;
  request.rules = options.rules;
  request.hf_template = options.hf_template;
  request.allow = options.allow;
  return request;
}

/// `--step` picks one of a run root. A side that has no steps at all takes no part in that, if the other one does.
SourceRequest WithoutStep(io::Storage& storage, SourceRequest side, const SourceRequest& other) {
  if (!side.step) return side;
  const auto has_steps = [&](const SourceRequest& request) {
    const Result<formats::Found> found = formats::Recognise(storage, request.path, std::nullopt, std::nullopt);
    return !found || found->step.has_value() || !found->run_root.empty();
  };
  if (!has_steps(side) && has_steps(other)) side.step.reset();
  return side;
}

}  // namespace

Result<Report> Verify(const VerifyOptions& options, const Hooks& hooks) {
  if (hooks.on_progress) hooks.on_progress({"reading metadata", 0, 0, ""});
  const std::unique_ptr<io::Storage> storage = io::MakeLocalStorage();
  const SourceRequest left = SideOf(options, options.a, options.from_a);
  const SourceRequest right = SideOf(options, options.b, options.from_b);
  CROSSDOCK_ASSIGN_OR_RETURN(const Source a, OpenAndRead(*storage, WithoutStep(*storage, left, right)));
  SourceRequest second = WithoutStep(*storage, right, left);
  // Megatron files name no architecture: the family of A is the better guess for B than key shapes are.
  if (!second.family && !second.rules && a.hub.family != nullptr) {
    const Result<Source> guess = OpenAndRead(*storage, second);
    if (!guess || guess->hub.family == nullptr || guess->hub.family->name != a.hub.family->name) second.family = a.hub.family->name;
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const Source b, OpenAndRead(*storage, second));
  if (options.report) {
    CROSSDOCK_RETURN_IF_ERROR(CheckReportApart(a, *options.report));
    CROSSDOCK_RETURN_IF_ERROR(CheckReportApart(b, *options.report));
    CROSSDOCK_RETURN_IF_ERROR(CheckReportPath(*storage, *options.report));  // before the work, not after it
  }
  CompareOptions how;
  how.exact = options.exact == "close" ? verify::Exact::kClose : verify::Exact::kBit;
  how.memory = options.memory;
  CROSSDOCK_ASSIGN_OR_RETURN(const verify::Comparison comparison, CompareSources(a, b, how, hooks));
  std::vector<std::string> notices = a.hub.notices;
  notices.insert(notices.end(), b.hub.notices.begin(), b.hub.notices.end());
  if (options.threads > 1) notices.emplace_back("the comparison works in one thread");
  Report report = ComparisonReport(comparison, notices);
  if (options.report) CROSSDOCK_RETURN_IF_ERROR(WriteReportFile(*storage, *options.report, report.json));
  return report;
}

}  // namespace crossdock
