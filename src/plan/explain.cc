// SPDX-License-Identifier: Apache-2.0
#include "plan/explain.h"

#include <algorithm>
#include <array>
#include <iterator>

#include <fmt/format.h>

#include "crossdock/error.h"

namespace crossdock::plan {
namespace {

std::string Human(std::int64_t bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string Plural(std::int64_t n, std::string_view noun) { return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s"); }

std::int64_t SizeOf(const SideFile& f) { return f.bytes ? static_cast<std::int64_t>(f.bytes->size()) : f.size; }

}  // namespace

PlanSummary Summarise(const Plan& plan, const Catalog& source, const Catalog& target,
                      std::span<const FileRef> metadata) {
  PlanSummary out;
  out.files = target.files;
  for (const SideFile& f : target.side_files) out.files.push_back({f.path, {SizeOf(f), 0, 0}});
  out.files.insert(out.files.end(), metadata.begin(), metadata.end());
  for (const FileRef& f : out.files) out.total_bytes += f.identity.size;

  std::array<SlotTotals, kAllSlots.size()> slots;
  for (const Slot s : kAllSlots) slots[static_cast<std::size_t>(s)].slot = s;
  const auto at = [&](Slot s) -> SlotTotals& { return slots[static_cast<std::size_t>(s)]; };
  for (const Entry& e : target.entries) ++at(e.slot).tensors;
  for (const Task& t : plan.tasks) {
    for (const Read& r : t.reads) at(source.entries[static_cast<std::size_t>(r.entry)].slot).bytes_read += r.bytes;
    for (const Output& o : t.outputs) {
      at(target.entries[static_cast<std::size_t>(o.entry)].slot).bytes_written += o.bytes;
    }
    out.reads += static_cast<std::int64_t>(t.reads.size());
    out.largest_task = std::max(out.largest_task, t.buffer_bytes);
  }
  for (const SlotTotals& s : slots) {
    if (s.tensors != 0 || s.bytes_read != 0) out.slots.push_back(s);
  }
  out.tensors = static_cast<std::int64_t>(target.entries.size());
  out.tasks = static_cast<std::int64_t>(plan.tasks.size());
  out.bytes_read = plan.bytes_read;
  out.bytes_written = plan.bytes_written;
  out.peak_memory = plan.peak_memory;
  out.hash = plan.hash;
  return out;
}

std::string ExplainPlan(const PlanSummary& s, std::size_t max_files) {
  std::string out;
  const auto line = std::back_inserter(out);
  fmt::format_to(line, "total     {} ({} bytes) in {}\n", Human(s.total_bytes), s.total_bytes,
                 Plural(static_cast<std::int64_t>(s.files.size()), "file"));
  fmt::format_to(line, "\n{:>16}  file\n", "bytes");
  for (std::size_t i = 0; i < std::min(s.files.size(), max_files); ++i) {
    fmt::format_to(line, "{:>16}  {}\n", s.files[i].identity.size, Printable(s.files[i].path));
  }
  if (s.files.size() > max_files) fmt::format_to(line, "{:>16}  and {} more\n", "", s.files.size() - max_files);
  fmt::format_to(line, "\n{:<10}{:>8}{:>18}{:>18}\n", "slot", "tensors", "bytes read", "bytes written");
  for (const SlotTotals& slot : s.slots) {
    fmt::format_to(line, "{:<10}{:>8}{:>18}{:>18}\n", SlotName(slot.slot), slot.tensors, slot.bytes_read,
                   slot.bytes_written);
  }
  fmt::format_to(line, "{:<10}{:>8}{:>18}{:>18}\n", "all", s.tensors, s.bytes_read, s.bytes_written);
  fmt::format_to(line, "\nwork      {}, {}, the largest task {}\n", Plural(s.tasks, "task"), Plural(s.reads, "read"),
                 Human(s.largest_task));
  fmt::format_to(line, "memory    {} at the peak\n", Human(s.peak_memory));
  return out;
}

std::string ExplainPlan(const Plan& plan, const Catalog& source, const Catalog& target,
                        std::span<const FileRef> metadata) {
  return ExplainPlan(Summarise(plan, source, target, metadata));
}

}  // namespace crossdock::plan
