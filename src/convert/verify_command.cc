// SPDX-License-Identifier: Apache-2.0
/// Verify: two checkpoints of any formats, by hub names.
#include <optional>

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

struct Sides {
  Source a, b;
};

/// config.json names an architecture; of Megatron's arguments the family is a guess.
bool NamesItsFamily(const Source& source) { return source.hub.config.words == "hf"; }

std::string FamilyOf(const Source& source) { return source.hub.family == nullptr ? "" : source.hub.family->name; }

/// `request` once more with a family; nothing when that does not fit.
std::optional<Source> Reread(io::Storage& storage, SourceRequest request, const std::string& family) {
  if (request.family || request.rules || family.empty()) return std::nullopt;
  request.family = family;
  Result<Source> read = OpenAndRead(storage, request);
  if (!read) return std::nullopt;
  return std::move(read).value();
}

/// Each side is what it says itself. A guess gives way to the other side's family, and a side that its own words do not
/// describe is read by them too: the comparison then tells what differs. What B lacks is a difference, not a refusal.
Result<Sides> OpenSides(io::Storage& storage, const SourceRequest& left, SourceRequest right) {
  right.allow_missing = true;
  CROSSDOCK_ASSIGN_OR_RETURN(Source a, OpenAndRead(storage, left));
  Result<Source> b = OpenAndRead(storage, right);
  if (!b || (FamilyOf(*b) != FamilyOf(a) && !NamesItsFamily(*b))) {
    std::optional<Source> again = Reread(storage, right, FamilyOf(a));
    if (again) return Sides{std::move(a), std::move(*again)};
    if (!b) return b.error();
  }
  if (FamilyOf(*b) != FamilyOf(a) && !NamesItsFamily(a)) {
    if (std::optional<Source> again = Reread(storage, left, FamilyOf(*b))) return Sides{std::move(*again), std::move(b).value()};
  }
  return Sides{std::move(a), std::move(b).value()};
}

}  // namespace

Result<Report> Verify(const VerifyOptions& options, const Hooks& hooks) {
  if (hooks.on_progress) hooks.on_progress({"reading metadata", 0, 0, ""});
  const std::unique_ptr<io::Storage> storage = io::MakeLocalStorage();
  const SourceRequest left = SideOf(options, options.a, options.from_a);
  const SourceRequest right = SideOf(options, options.b, options.from_b);
  CROSSDOCK_ASSIGN_OR_RETURN(Sides sides, OpenSides(*storage, WithoutStep(*storage, left, right), WithoutStep(*storage, right, left)));
  const Source& a = sides.a;
  const Source& b = sides.b;
  if (options.report) {
    CROSSDOCK_RETURN_IF_ERROR(CheckReportApart(a, *options.report));
    CROSSDOCK_RETURN_IF_ERROR(CheckReportApart(b, *options.report));
    CROSSDOCK_RETURN_IF_ERROR(CheckReportPath(*storage, *options.report));  // before the work, not after it
  }
  CompareOptions how;
  how.exact = options.exact == "close" ? verify::Exact::kClose : verify::Exact::kBit;
  how.memory = options.memory;
  CROSSDOCK_ASSIGN_OR_RETURN(const verify::Comparison comparison, CompareSources(a, b, how, hooks));
  std::vector<std::string> notices;
  if (FamilyOf(a) != FamilyOf(b)) notices.push_back("A is " + FamilyOf(a) + ", B is " + FamilyOf(b));
  notices.insert(notices.end(), a.hub.notices.begin(), a.hub.notices.end());
  notices.insert(notices.end(), b.hub.notices.begin(), b.hub.notices.end());
  Report report = ComparisonReport(comparison, notices);
  if (options.report) CROSSDOCK_RETURN_IF_ERROR(WriteReportFile(*storage, *options.report, report.json));
  return report;
}

}  // namespace crossdock
