// SPDX-License-Identifier: Apache-2.0
#include "convert/export_types.h"

#include <fmt/format.h>

#include <map>

#include "convert/agree.h"

namespace crossdock::convert {
namespace {

Error TwinsDiffer(std::size_t a, const ExportTypes& of_a, std::size_t b, const ExportTypes& of_b) {
  const auto type = [](const ExportTypes& of, const std::string& name) -> std::string {
    const auto at = of.find(name);
    return at == of.end() ? "the type of before" : fmt::format("`{}`", DTypeName(at->second));
  };
  std::string tensor;
  for (const ExportTypes* of : {&of_a, &of_b}) {
    for (const auto& [name, dtype] : *of) {
      if (tensor.empty() && type(of_a, name) != type(of_b, name)) tensor = name;
    }
  }
  return MakeError(ErrorCode::kUsage, fmt::format("ranks {} and {} hold the same tensor with different types", a, b)).WithTensor(tensor)
      .WithExpected(fmt::format("{} as on rank {}", type(of_a, tensor), a)).WithFound(type(of_b, tensor))
      .WithHint("replicas must hold equal types; check each rank's place in the layout");
}

}  // namespace

Result<ExportTypes> ShareTypes(Comm& comm, const Result<std::string>& target, const Result<ExportTypes>& mine, const std::vector<std::string>& directories) {
  Result<std::string> message = !target ? Result<std::string>(target.error()) : !mine ? Result<std::string>(mine.error()) : Result<std::string>(*target + "\n");
  if (message && mine) {
    for (const auto& [name, dtype] : *mine) *message += fmt::format("{} {}\n", DTypeName(dtype), name);
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const std::vector<std::string> all, Agree(comm, "taking the tensors", message));
  std::vector<ExportTypes> told(all.size());
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const std::string& text = all[rank];
    std::size_t at = text.find('\n');
    const std::string theirs = text.substr(0, at);
    if (theirs != all[0].substr(0, all[0].find('\n'))) {
      return MakeError(ErrorCode::kUsage, fmt::format("ranks 0 and {} save to different targets", rank)).WithExpected(Printable(all[0].substr(0, all[0].find('\n')))).WithFound(Printable(theirs));
    }
    while (at + 1 < text.size()) {
      const std::size_t space = text.find(' ', at);
      const std::size_t end = text.find('\n', at + 1);
      const std::optional<DType> dtype = DTypeFromName(text.substr(at + 1, space - at - 1));
      if (dtype) told[rank][text.substr(space + 1, end - space - 1)] = *dtype;
      at = end;
    }
  }
  ExportTypes news;
  std::map<std::string, std::size_t> first;  // rank of each directory
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const std::size_t twin = first.emplace(directories[rank], rank).first->second;
    if (told[rank] != told[twin]) return TwinsDiffer(twin, told[twin], rank, told[rank]);
    news.insert(told[rank].begin(), told[rank].end());
  }
  return news;
}

}  // namespace crossdock::convert
