// SPDX-License-Identifier: Apache-2.0
#include "convert/export_common.h"

#include <fmt/format.h>

#include <algorithm>

#include "dialects/mcore/common_state.h"
#include "formats/torch_zip/torch_file.h"

namespace crossdock::convert {
namespace {

constexpr const char* kCommonFile = "common.pt";

/// Megatron takes the number that is in the file, and not that of the directory.
Value WithStep(Value common, std::int64_t step) {
  common.Set("iteration", Value(step));
  const Value* args = common.Find("args");
  if (args == nullptr || args->as_opaque() == nullptr || args->as_opaque()->state == nullptr) return common;
  Value taken = *args->as_opaque()->state;
  taken.Set("iteration", Value(step));
  common.Set("args", dialects::mcore::MakeNamespace(std::move(taken)));
  return common;
}

/// Of one optimizer, of one within what holds its masters, or of each in a chain of them.
bool HasGroups(const Value& optimizer) {
  if (const Value* groups = optimizer.Find("param_groups")) return groups->as_sequence() != nullptr && !groups->as_sequence()->empty();
  if (const Value* inner = optimizer.Find("optimizer")) return HasGroups(*inner);
  const auto* chain = optimizer.as_dict();
  return chain != nullptr && !chain->items.empty() && std::ranges::all_of(chain->items, [](const auto& item) { return HasGroups(item.second); });
}

}  // namespace

Status WriteCommon(io::Storage& storage, const std::string& dir, const Catalog& placed, const std::string& given, std::int64_t step) {
  std::string bytes = given;
  if (given.empty()) {
    const auto made = placed.objects.find("common");
    CROSSDOCK_ASSIGN_OR_RETURN(bytes, formats::torch_zip::WriteTorchFile(WithStep(made == placed.objects.end() ? Value::MakeDict() : made->second, step), "common"));
  }
  const std::string path = io::JoinPath(dir, kCommonFile);
  CROSSDOCK_RETURN_IF_ERROR(io::RemoveFileIfPresent(storage, path));
  return io::WriteSmallFile(storage, path, bytes);
}

Status CheckCommon(const Catalog& read, std::int64_t step, bool states) {
  const auto common = read.objects.find("common");
  const std::optional<std::int64_t> found = common == read.objects.end() ? std::nullopt : common->second.GetInt("iteration");
  if (found == step && states) {
    const Value* optimizer = common->second.Find("optimizer");
    if (optimizer != nullptr && HasGroups(*optimizer)) return OkStatus();
    return MakeError(ErrorCode::kUsage, "the common state that was handed over has no parameter groups of the optimizer whose state is saved")
        .WithExpected("`optimizer` with `param_groups`").WithFound(optimizer == nullptr ? "no `optimizer`" : "an `optimizer` without them")
        .WithHint("hand over the bytes of common.pt with the optimizer's parameter groups");
  }
  if (found == step) return OkStatus();
  return MakeError(ErrorCode::kUsage, "the common state that was handed over is not that of this step").WithExpected(fmt::format("`iteration` {}", step))
      .WithFound(found ? fmt::format("{}", *found) : "none").WithHint("hand over the bytes of common.pt, as torch.save writes a dict with `iteration`");
}

}  // namespace crossdock::convert
