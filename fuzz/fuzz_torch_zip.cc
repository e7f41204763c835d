// SPDX-License-Identifier: Apache-2.0
// Any bytes as a torch file, zip or old form: an error, or a value whose tensors can all be loaded.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "formats/torch_zip/blob.h"
#include "formats/torch_zip/torch_file.h"
#include "memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace crossdock;
  const formats::pickle::Limits limits{.max_graph_bytes = 32 << 20, .max_values = 20'000, .max_text_bytes = 1 << 20, .max_depth = 200};
  const fuzz::MemoryFile file(std::string_view(reinterpret_cast<const char*>(data), size));
  auto torch = formats::torch_zip::ReadTorchFile(file, {0, file.size()}, limits);
  if (!torch) return 0;
  if (const TensorValue* tensor = torch->value.as_tensor()) {
    const auto place = formats::torch_zip::LocateBlobData(file, {0, file.size()}, tensor->dtype, tensor->shape);
    if (place && (place->offset < 0 || place->end() > file.size())) std::abort();
  }
  const Status loaded = formats::torch_zip::LoadAllTensors(file, *torch, 1 << 20);
  if (!loaded && loaded.error().code != ErrorCode::kUnsupported) std::abort();  // the reader promised that they lie in the file
  return 0;
}
