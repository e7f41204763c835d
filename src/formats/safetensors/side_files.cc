// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "formats/safetensors/directory.h"
#include "formats/safetensors/safetensors.h"

namespace crossdock::formats::safetensors {
namespace {

constexpr int kMaxDepth = 4;                  // `1_Pooling/config.json` is 1 deep; a whole home directory is a mistake
constexpr std::size_t kMaxFiles = 10'000;

/// Folders that hold the same model in another form, or a trainer's own state.
bool IsSkippedDir(std::string_view name) {
  return name.starts_with('.') || name == "original" || name == "onnx" || name == "openvino" || name == "runs" ||
         name == "metal" || name.starts_with("checkpoint-") || name.starts_with("global_step") ||
         name == "__pycache__" || name.starts_with("iter_");
}

/// What the target gets anew: config.json is patched, the rest would contradict the new files.
bool IsMadeAnew(std::string_view path) {
  return path == "config.json" || path == "crossdock_receipt.json";
}

class Lister {
 public:
  Lister(io::Storage& storage, const std::string& root, std::vector<std::string>* notices)
      : storage_(storage), root_(root), notices_(notices) {}

  Status Walk(const std::string& prefix, int depth) {
    const std::string dir = prefix.empty() ? root_ : io::JoinPath(root_, prefix);
    CROSSDOCK_ASSIGN_OR_RETURN(const auto entries, storage_.List(dir));
    for (const io::DirEntry& entry : entries) {
      const std::string path = prefix.empty() ? entry.name : prefix + "/" + entry.name;
      if (entry.kind == io::FileKind::kDirectory) {
        CROSSDOCK_RETURN_IF_ERROR(WalkBelow(entry, path, depth));
        continue;
      }
      if (entry.name.starts_with('.') || IsWeightFile(entry.name) || IsMadeAnew(path)) continue;
      const std::string full = io::JoinPath(root_, path);
      CROSSDOCK_RETURN_IF_ERROR(CheckLink(storage_, full));
      if (entry.kind != io::FileKind::kFile) continue;  // sockets, devices
      CROSSDOCK_ASSIGN_OR_RETURN(const io::FileInfo info, storage_.Stat(full));
      if (files.size() == kMaxFiles) {
        return MakeError(ErrorCode::kUnsupported, "too many files beside the weights")
            .WithPath(root_)
            .WithExpected(fmt::format("at most {}", kMaxFiles));
      }
      SideFile file;
      file.path = path;
      file.copy_from = full;
      file.size = info.size;
      files.push_back(std::move(file));
    }
    return OkStatus();
  }

  std::vector<SideFile> files;

 private:
  Status WalkBelow(const io::DirEntry& entry, const std::string& path, int depth) {
    if (IsSkippedDir(entry.name)) {
      if (!entry.name.starts_with('.')) notices_->push_back(fmt::format("directory `{}` is not copied", Printable(path)));
      return OkStatus();
    }
    if (entry.is_symlink || depth == kMaxDepth) {  // a link to a directory may lead anywhere, even back
      notices_->push_back(fmt::format("directory `{}` is not copied: {}", Printable(path),
                                      entry.is_symlink ? "it is a link" : "it lies too deep"));
      return OkStatus();
    }
    return Walk(path, depth + 1);
  }

  io::Storage& storage_;
  const std::string& root_;
  std::vector<std::string>* notices_;
};

}  // namespace

Result<std::vector<SideFile>> ListSideFiles(io::Storage& storage, const std::string& dir,
                                            std::vector<std::string>* notices) {
  Lister lister(storage, dir, notices);
  CROSSDOCK_RETURN_IF_ERROR(lister.Walk("", 0));
  std::sort(lister.files.begin(), lister.files.end(), [](const SideFile& a, const SideFile& b) { return a.path < b.path; });
  return std::move(lister.files);
}

}  // namespace crossdock::formats::safetensors
