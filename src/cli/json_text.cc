// SPDX-License-Identifier: Apache-2.0
#include "cli/json_text.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace crossdock::cli {
namespace {

std::string Dump(const nlohmann::ordered_json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

std::string JsonText(std::string_view text) { return Dump(nlohmann::ordered_json(std::string(text)), -1); }

std::string ErrorJson(const Error& error) {
  nlohmann::ordered_json body;
  body["code"] = std::string(ErrorCodeName(error.code));
  body["exit_status"] = ExitStatus(error.code);
  body["message"] = error.message;
  body["path"] = error.path;
  body["tensor"] = error.tensor;
  if (error.offset) body["offset"] = *error.offset;
  body["expected"] = error.expected;
  body["found"] = error.found;
  body["hint"] = std::string(error.NextStep());
  body["context"] = error.context;
  nlohmann::ordered_json whole;
  whole["error"] = body;
  return Dump(whole, 2) + "\n";
}

}  // namespace crossdock::cli
