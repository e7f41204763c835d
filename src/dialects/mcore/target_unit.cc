// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/target_unit.h"

#include "fmt/format.h"

namespace crossdock::dialects::mcore {

Result<TargetUnit> ChooseUnit(const TargetOptions& options, std::optional<std::int64_t> step) {
  if (options.release && options.iteration) return MakeError(ErrorCode::kUsage, "--release and --iteration exclude each other");
  if (options.iteration && *options.iteration < 0) {
    return MakeError(ErrorCode::kUsage, "--iteration must not be negative").WithFound(fmt::format("{}", *options.iteration));
  }
  const std::optional<std::int64_t> iteration = options.iteration ? options.iteration : step;
  if (!options.release && !iteration && options.consumer == kBridgeConsumer) return TargetUnit{"iter_0000000", 0, false};  // as its own imports
  if (options.release || !iteration) return TargetUnit{"release", 0, true};
  if (*iteration < 0) return MakeError(ErrorCode::kCorrupt, "the source's step is negative").WithFound(fmt::format("{}", *iteration));
  return TargetUnit{fmt::format("iter_{:07}", *iteration), *iteration, false};
}

bool IsRelease(const Catalog& source) { return source.root == "release" || source.root.ends_with("/release"); }

SideFile Tracker(const TargetUnit& unit) {
  SideFile tracker;
  tracker.path = "latest_checkpointed_iteration.txt";
  tracker.role = SideFile::Role::kMarker;
  tracker.bytes = unit.release ? std::string("release") : fmt::format("{}", unit.iteration);
  tracker.size = static_cast<std::int64_t>(tracker.bytes->size());
  return tracker;
}

Value BackendMetadata() {
  Value metadata = Value::MakeDict();
  metadata.Set("sharded_backend", Value("torch_dist"));
  metadata.Set("sharded_backend_version", Value(1));
  return metadata;
}

}  // namespace crossdock::dialects::mcore
