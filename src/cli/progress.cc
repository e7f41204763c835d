// SPDX-License-Identifier: Apache-2.0
#include "cli/progress.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "cli/json_text.h"

namespace crossdock::cli {
namespace {

using std::chrono::milliseconds;

std::string HumanTime(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::ceil(seconds));
  if (whole < 100) return fmt::format("{} s", whole);
  if (whole < 6000) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

double Seconds(ProgressPrinter::Clock::duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace

std::string HumanBytes(double bytes) {
  constexpr std::array kNames = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) return fmt::format("{} bytes", static_cast<std::int64_t>(bytes));
  std::size_t unit = 0;
  bytes /= 1024;
  while (bytes >= 1024 && unit + 1 < kNames.size()) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", bytes, kNames[unit]);
}

std::string ProgressText(const ProgressEvent& event, double seconds, std::int64_t start_bytes) {
  if (event.bytes_total <= 0) return event.phase;
  const double done = static_cast<double>(event.bytes_done);
  const double total = static_cast<double>(event.bytes_total);
  std::string out = fmt::format("{} {} of {} ({:.0f} %)", event.phase, HumanBytes(done), HumanBytes(total),
                                std::floor(100 * done / total));
  const double moved = done - static_cast<double>(start_bytes);
  if (seconds < 0.2 || moved <= 0) return out;  // too early for a rate that means something
  const double rate = moved / seconds;
  out += fmt::format(", {}/s", HumanBytes(rate));
  if (event.bytes_done < event.bytes_total) out += fmt::format(", {} left", HumanTime((total - done) / rate));
  return out;
}

Result<ProgressMode> ProgressPrinter::ModeFromName(const std::string& name, bool terminal) {
  if (name == "auto") return terminal ? ProgressMode::kLine : ProgressMode::kOff;
  if (name == "plain") return ProgressMode::kPlain;
  if (name == "json") return ProgressMode::kJson;
  if (name == "off" || name == "none") return ProgressMode::kOff;
  return MakeError(ErrorCode::kUsage, "`--progress` takes auto, plain, json or off")
      .WithFound(fmt::format("`{}`", Printable(name)));
}

void ProgressPrinter::Event(const ProgressEvent& event) {
  const std::scoped_lock lock(mutex_);
  const Clock::time_point now = Clock::now();
  const bool new_phase = event.phase != last_.phase;
  if (new_phase) {
    phase_start_ = now;
    phase_start_bytes_ = event.bytes_done;
  }
  last_ = event;
  const bool finished = event.bytes_total > 0 && event.bytes_done >= event.bytes_total;
  const auto pause = mode_ == ProgressMode::kPlain ? milliseconds(1000) : milliseconds(mode_ == ProgressMode::kJson ? 500 : 100);
  if (mode_ != ProgressMode::kOff && (new_phase || finished || now - last_print_ >= pause)) Print(now, mode_);
}

void ProgressPrinter::PrintNow() {
  const std::scoped_lock lock(mutex_);
  Print(Clock::now(), mode_ == ProgressMode::kJson ? ProgressMode::kJson : ProgressMode::kPlain);
}

void ProgressPrinter::Print(Clock::time_point now, ProgressMode as) {
  last_print_ = now;
  const double seconds = Seconds(now - phase_start_);
  if (as == ProgressMode::kJson) {
    fmt::print(out_, "{{\"phase\": {}, \"bytes_done\": {}, \"bytes_total\": {}, \"seconds\": {:.3f}, \"current\": {}}}\n",
               JsonText(last_.phase), last_.bytes_done, last_.bytes_total, seconds, JsonText(last_.current));
  } else {
    std::string text = ProgressText(last_, seconds, phase_start_bytes_);
    if (verbose_ && !last_.current.empty()) text += ", " + Printable(last_.current, 80);
    // \r and "erase to the end of the line": the only terminal control that is used.
    if (as == ProgressMode::kLine) {
      fmt::print(out_, "\r\x1b[K{}", text);
      line_open_ = true;
    } else {
      if (line_open_) fmt::print(out_, "\r\x1b[K");
      line_open_ = false;
      fmt::print(out_, "{}\n", text);
    }
  }
  std::fflush(out_);
}

void ProgressPrinter::Notice(const std::string& text) {
  const std::scoped_lock lock(mutex_);
  if (line_open_) fmt::print(out_, "\r\x1b[K");
  line_open_ = false;
  fmt::print(out_, "note: {}\n", text);
  std::fflush(out_);
}

void ProgressPrinter::Finish() {
  const std::scoped_lock lock(mutex_);
  if (line_open_) fmt::print(out_, "\r\x1b[K");
  line_open_ = false;
  std::fflush(out_);
}

}  // namespace crossdock::cli
