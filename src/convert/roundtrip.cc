// SPDX-License-Identifier: Apache-2.0
/// Roundtrip: there, to FORMAT, and back beside each other, then compared; what was made on the way is removed. Weights come
/// back as a Hugging Face directory; with optimizer state, where FORMAT holds it, all slots come back as full-state.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "convert/comparison.h"
#include "convert/convert_source.h"
#include "convert/job.h"
#include "convert/kinds.h"
#include "crossdock/convert.h"
#include "io/storage.h"

namespace crossdock {
namespace {

using namespace convert;  // NOLINT(google-build-using-namespace): this file is the room's front door

/// Removes the working directory whatever happens.
class WorkDir {
 public:
  static Result<WorkDir> Make(io::Storage& storage, const std::string& out) {
    if (!io::Exists(storage, out)) CROSSDOCK_RETURN_IF_ERROR(io::MakeDirs(storage, out));
    WorkDir dir(storage, io::JoinPath(out, fmt::format(".crossdock-roundtrip-{}", getpid())));
    CROSSDOCK_RETURN_IF_ERROR(storage.MakeDir(dir.path_));
    return dir;
  }
  WorkDir(WorkDir&& other) noexcept : storage_(std::exchange(other.storage_, nullptr)), path_(std::move(other.path_)) {}
  WorkDir(const WorkDir&) = delete;
  WorkDir& operator=(const WorkDir&) = delete;
  WorkDir& operator=(WorkDir&&) = delete;
  ~WorkDir() {
    // A destructor has nobody to tell; what stays behind carries our name.
    if (storage_ != nullptr) static_cast<void>(io::RemoveTree(*storage_, path_));
  }
  [[nodiscard]] std::string Path(const char* name) const { return io::JoinPath(path_, name); }

 private:
  WorkDir(io::Storage& storage, std::string path) : storage_(&storage), path_(std::move(path)) {}
  io::Storage* storage_;
  std::string path_;
};

/// What comes back, and so what can be compared.
struct Trip {
  formats::Kind back = formats::Kind::kHf;
  bool masters = true;
  std::string compared;  ///< ", weights only: ..."; empty where the source has nothing but weights
};

/// The type of all weights, where it is one of 16 bits: what a rule scales is stored as F32 on the way, and comes back as it was.
std::optional<std::string> NarrowType(const dialects::HubState& hub) {
  std::set<DType> types;
  for (const dialects::HubTensor& tensor : hub.tensors) {
    if (tensor.slot == Slot::kParam) types.insert(tensor.dtype);
  }
  if (types == std::set{DType::kBF16}) return "bf16";
  return types == std::set{DType::kF16} ? std::optional<std::string>("fp16") : std::nullopt;
}

Result<Trip> PlanTrip(const Source& source, const ConvertOptions& options) {
  CROSSDOCK_ASSIGN_OR_RETURN(const formats::Kind via, ParseTargetKind(options.to));
  Trip trip;
  const auto holds = [&](auto test) { return std::ranges::any_of(source.hub.tensors, test); };
  if (!holds([](const auto& t) { return t.slot != Slot::kParam; })) {
    if (options.no_optim && HoldsOptimizer(source.found.kind)) trip.compared = ", weights only: --no-optim leaves the rest behind";
    return trip;
  }
  if (!HoldsOptimizer(via)) {
    trip.compared = fmt::format(", weights only: `{}` holds no optimizer state", options.to);
    return trip;
  }
  trip.back = formats::Kind::kFullState;  // the one that holds every slot
  trip.masters = HoldsMasters(via);
  const bool without = !trip.masters && holds([](const auto& t) { return t.slot == Slot::kMaster; });
  trip.compared = without ? fmt::format(", every slot but masters, which `{}` does not hold", options.to) : ", every slot";
  return trip;
}

}  // namespace

Result<Report> Roundtrip(const RoundtripOptions& options, const Hooks& hooks) {
  const std::unique_ptr<io::Storage> storage = io::MakeLocalStorage();
  SourceRequest request = RequestOf(options.convert);
  CROSSDOCK_ASSIGN_OR_RETURN(const Source a, OpenAndRead(*storage, request));
  CROSSDOCK_ASSIGN_OR_RETURN(const Trip trip, PlanTrip(a, options.convert));
  CROSSDOCK_ASSIGN_OR_RETURN(const formats::Kind via, ParseTargetKind(options.convert.to));
  const std::string out = options.out.value_or(".");
  CROSSDOCK_ASSIGN_OR_RETURN(const WorkDir work, WorkDir::Make(*storage, out));

  ConvertOptions there = options.convert;
  there.target = work.Path("there");
  there.force = false;
  if (WritesMegatron(via) || via == formats::Kind::kMaxText || via == formats::Kind::kDcp) there.max_shard_bytes = ConvertOptions().max_shard_bytes;  // it is meant for what comes back
  CROSSDOCK_ASSIGN_OR_RETURN(const Report first, Convert(there, hooks));
  ConvertOptions back;
  back.source = there.target;
  back.target = work.Path("back");
  back.to = formats::KindName(trip.back);
  back.hf_template = options.convert.hf_template.value_or(options.convert.source);
  back.rules = options.convert.rules;
  back.family = options.convert.family;
  back.memory = options.convert.memory;
  back.threads = options.convert.threads;
  back.max_shard_bytes = options.convert.max_shard_bytes;
  back.allow = options.convert.allow;
  if (via == formats::Kind::kMaxText && !options.convert.dtype && trip.back == formats::Kind::kHf) back.dtype = NarrowType(a.hub);
  CROSSDOCK_ASSIGN_OR_RETURN(const Report second, Convert(back, hooks));

  request.path = back.target;
  request.from.reset();
  request.step.reset();
  CROSSDOCK_ASSIGN_OR_RETURN(const Source b, OpenAndRead(*storage, request));
  CROSSDOCK_ASSIGN_OR_RETURN(const verify::Comparison comparison,
                             CompareSources(a, b, {verify::Exact::kBit, options.convert.memory, trip.masters}, hooks));
  Report report = ComparisonReport(comparison, b.hub.notices);
  const std::string path = options.report.value_or(io::JoinPath(out, "roundtrip_comparison.json"));
  CROSSDOCK_RETURN_IF_ERROR(WriteReportFile(*storage, path, report.json));
  report.text = fmt::format("round trip {} -> {} -> {}{}: {}report in `{}`\n", formats::KindName(a.found.kind), options.convert.to,
                            formats::KindName(trip.back), trip.compared, report.text, Printable(path, 4096));
  return report;
}

}  // namespace crossdock
