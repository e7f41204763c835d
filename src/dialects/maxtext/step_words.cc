// SPDX-License-Identifier: Apache-2.0
#include "dialects/maxtext/step_words.h"

#include <fmt/format.h>

#include <utility>

namespace crossdock::dialects::maxtext {
namespace {

constexpr std::string_view kScanLayers = "scan_layers";

}  // namespace

Value StepMetadata(const Value& step, bool scanned, Value carried) {
  Value out = WordsOfStep(step);
  out.Set(kScanLayers, Value(scanned));
  if (!carried.as_dict()->items.empty()) out.Set(kOwnWords, std::move(carried));
  return out;
}

Value WordsOfStep(const Value& custom_metadata) {
  Value out = custom_metadata.as_dict() == nullptr ? Value::MakeDict() : custom_metadata;
  out.Erase(kScanLayers);
  out.Erase(kOwnWords);
  return out;
}

Value OwnWords(const Value& custom_metadata) {
  const Value* own = custom_metadata.Find(kOwnWords);
  return own == nullptr || own->as_dict() == nullptr ? Value::MakeDict() : *own;
}

Value WithoutLevels(Value custom_metadata) {
  Value words = OwnWords(custom_metadata);
  if (words.as_dict()->items.empty()) return custom_metadata;
  words.Erase(kLevelsWord);
  custom_metadata.Erase(kOwnWords);
  if (!words.as_dict()->items.empty()) custom_metadata.Set(kOwnWords, std::move(words));
  return custom_metadata;
}

Value OrbaxForm(const Consumer& consumer, int zstd_level) {
  Value out = Value::MakeDict();
  out.Set("item", Value("items"));
  out.Set("handler", Value(consumer.handler()));
  out.Set("ocdbt", Value(true));
  out.Set("zarr3", Value(true));
  out.Set("zstd_level", Value(zstd_level));
  return out;
}

std::vector<std::string> LoadLine(bool full_state, bool scanned) {
  return {fmt::format("python3 -m maxtext.trainers.pre_train.train CONFIG.yml {}=TARGET/items scan_layers={}", full_state ? "load_full_state_path" : "load_parameters_path", scanned)};
}

}  // namespace crossdock::dialects::maxtext
