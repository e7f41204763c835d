// SPDX-License-Identifier: Apache-2.0
// Any bytes as a safetensors file: an error, or a header whose ranges cover the data, which is printed and read again as the
// same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "formats/safetensors/header.h"
#include "memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace crossdock;
  using namespace crossdock::formats::safetensors;
  const fuzz::MemoryFile file(std::string_view(reinterpret_cast<const char*>(data), size));
  const auto header = ReadHeader(file, file.size());
  if (!header) return 0;
  std::int64_t end = 0;
  for (const HeaderTensor& tensor : header->tensors) {
    const auto bytes = ByteSize(tensor.dtype, tensor.shape);
    if (!bytes || *bytes != tensor.bytes.length || tensor.bytes.offset != end) std::abort();
    end = tensor.bytes.end();
  }
  if (header->data_start + end != file.size()) std::abort();
  const auto again = ParseHeader(PrintHeader(header->tensors, header->metadata).substr(8), end, "again");
  if (!again || again->metadata != header->metadata || again->tensors.size() != header->tensors.size()) std::abort();
  for (std::size_t i = 0; i < header->tensors.size(); ++i) {
    const HeaderTensor& a = header->tensors[i];
    const HeaderTensor& b = again->tensors[i];
    if (a.name != b.name || a.dtype != b.dtype || a.shape != b.shape || a.bytes != b.bytes) std::abort();
  }
  return 0;
}
