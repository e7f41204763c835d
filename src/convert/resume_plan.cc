// SPDX-License-Identifier: Apache-2.0
/// Resume-plan: the decision for the local file system, and as JSON.
#include "crossdock/resume_plan.h"

#include <memory>

#include "convert/resume_decision.h"
#include "convert/summary.h"
#include "tensor/value.h"

namespace crossdock {
namespace {

Value OrNull(const std::optional<std::int64_t>& number) { return number ? Value(*number) : Value(); }
Value OrNull(const std::string& text) { return text.empty() ? Value() : Value(text); }

}  // namespace

std::string_view ResumeActionName(ResumeAction action) {
  switch (action) {
    case ResumeAction::kResume: return "resume";
    case ResumeAction::kLoadFullState: return "load_full_state";
    case ResumeAction::kLoadWeights: return "load_weights";
    case ResumeAction::kStart: break;
  }
  return "start";
}

Result<ResumeDecision> PlanResume(const ResumeOptions& options) {
  const std::unique_ptr<io::Storage> storage = io::MakeLocalStorage();
  return convert::DecideResume(*storage, options);
}

Result<ResumeDecision> DetectResume(const DetectOptions& options) {
  const std::unique_ptr<io::Storage> storage = io::MakeLocalStorage();
  return convert::DetectResumeIn(*storage, options);
}

Result<Report> ResumePlan(const ResumeOptions& options) {
  CROSSDOCK_ASSIGN_OR_RETURN(const ResumeDecision decision, PlanResume(options));
  Value json = Value::MakeDict();
  json.Set("command", "resume-plan");
  json.Set("action", ResumeActionName(decision.action));
  json.Set("reason", decision.reason);
  json.Set("run_dir", options.run_dir);
  json.Set("first_time", decision.action != ResumeAction::kResume);
  json.Set("format", OrNull(decision.format));
  json.Set("path", OrNull(decision.path));
  json.Set("step", OrNull(decision.step));
  json.Set("release", decision.release);
  json.Set("load_optim", decision.load_optim);
  json.Set("load_rng", decision.load_rng);
  json.Set("consumed_train_samples", OrNull(decision.consumed_train_samples));
  json.Set("arguments", convert::StringList(decision.arguments));
  json.Set("unfinished", convert::StringList(decision.unfinished));
  json.Set("notices", convert::StringList(decision.notices));
  Report report;
  report.json = ToJson(json) + "\n";
  report.text = report.json;
  return report;
}

}  // namespace crossdock
