// SPDX-License-Identifier: Apache-2.0
#include "plan/io_order.h"

#include <algorithm>
#include <utility>

#include "plan/task_builder.h"

namespace crossdock::plan {
namespace {

struct Key {
  std::int32_t file = -1;
  std::int64_t offset = 0;
  std::int32_t entry = 0, chunk = 0;
  Dims at;
  std::size_t task = 0;
  auto operator<=>(const Key&) const = default;
};

Key KeyOf(const Task& task, const Catalog& source, std::size_t index) {
  Key key;
  if (!task.reads.empty()) {
    const Read& r = task.reads[0];
    const Entry& entry = source.entries[static_cast<std::size_t>(r.entry)];
    key.file = entry.chunks[static_cast<std::size_t>(r.chunk)].file;
    key.offset = FileOffset(source, r);
  }
  const Output& o = task.outputs[0];
  key.entry = o.entry;
  key.chunk = o.chunk;
  key.at = o.box.offsets;
  key.task = index;
  return key;
}

/// `part` appended to `whole`; indices and places move along.
void Join(Task& whole, Task part) {
  const auto reads = static_cast<std::int32_t>(whole.reads.size());
  const auto outputs = static_cast<std::int32_t>(whole.outputs.size());
  const std::int64_t base = whole.buffer_bytes;  // a multiple of 64, as every task's is
  for (Read& r : part.reads) {
    r.buffer_offset += base;
    whole.reads.push_back(std::move(r));
  }
  for (Output& o : part.outputs) {
    o.buffer_offset += base;
    whole.outputs.push_back(std::move(o));
  }
  const auto dequantized = static_cast<std::int32_t>(whole.dequantize.size());
  for (Dequantize& d : part.dequantize) {
    d.values += reads;
    d.scales += reads;
    d.buffer_offset += base;
    whole.dequantize.push_back(d);
  }
  for (Move& m : part.moves) {
    if (m.read >= 0) m.read += m.dequantized ? dequantized : reads;
    m.output += outputs;
    whole.moves.push_back(std::move(m));
  }
  whole.buffer_bytes += part.buffer_bytes;
}

}  // namespace

std::vector<Task> InSourceOrder(std::vector<Task> tasks, const Catalog& source) {
  std::vector<Key> keys;
  keys.reserve(tasks.size());
  for (std::size_t i = 0; i < tasks.size(); ++i) keys.push_back(KeyOf(tasks[i], source, i));
  std::sort(keys.begin(), keys.end());
  std::vector<Task> out;
  out.reserve(tasks.size());
  for (const Key& key : keys) out.push_back(std::move(tasks[key.task]));
  return out;
}

std::vector<Task> JoinSmall(std::vector<Task> tasks, std::int64_t limit) {
  std::vector<Task> out;
  for (Task& task : tasks) {
    const bool joins =
        !out.empty() && !task.quantize && !out.back().quantize && out.back().buffer_bytes + task.buffer_bytes <= limit;
    if (joins) {
      Join(out.back(), std::move(task));
    } else {
      out.push_back(std::move(task));
    }
  }
  for (Task& task : out) {  // a plan may hold a million tasks
    task.reads.shrink_to_fit();
    task.outputs.shrink_to_fit();
    task.moves.shrink_to_fit();
    task.dequantize.shrink_to_fit();
  }
  out.shrink_to_fit();
  return out;
}

}  // namespace crossdock::plan
