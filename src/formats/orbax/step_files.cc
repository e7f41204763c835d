// SPDX-License-Identifier: Apache-2.0
#include "formats/orbax/step_files.h"

#include "formats/orbax/side_json.h"

namespace crossdock::formats::orbax {

std::vector<std::pair<std::string, std::string>> StepFiles(const StepForm& form, const Value& custom_metadata) {
  std::vector<std::pair<std::string, std::string>> out;
  out.emplace_back("_CHECKPOINT_METADATA", StepJson(form.items, form.handler, custom_metadata));
  if (form.commit_marker) out.emplace_back("commit_success.txt", std::string(kCommit));
  return out;
}

Status PutFile(io::Storage& storage, const std::string& path, std::string_view bytes) {
  CROSSDOCK_RETURN_IF_ERROR(io::MakeDirs(storage, io::ParentPath(path)));
  CROSSDOCK_RETURN_IF_ERROR(io::RemoveFileIfPresent(storage, path));
  return io::WriteSmallFile(storage, path, bytes);
}

}  // namespace crossdock::formats::orbax
