// SPDX-License-Identifier: Apache-2.0
#include "family/formula.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "base/checked_math.h"
#include "base/digits.h"
#include "fmt/format.h"

namespace crossdock::family {
namespace {

constexpr int kMaxDepth = 64;

Error BadFormula(std::string_view text, std::string what) {
  return MakeError(ErrorCode::kUsage, fmt::format("the formula \"{}\" {}", Printable(text), what));
}

bool IsNameStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<Formula> Whole() {
    CROSSDOCK_ASSIGN_OR_RETURN(Formula formula, Level(0, 0));
    SkipSpace();
    if (at_ != text_.size()) return BadFormula(text_, fmt::format("has something unexpected at character {}", at_ + 1));
    return formula;
  }

 private:
  void SkipSpace() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }

  std::optional<std::string> TakeOperator(int level) {
    static constexpr std::array<std::array<std::string_view, 7>, 5> kLevels = {
        {{"||"}, {"&&"}, {"==", "!=", "<=", ">=", "<", ">", "in"}, {"+", "-"}, {"*", "/", "%"}}};
    SkipSpace();
    for (std::string_view op : kLevels[static_cast<std::size_t>(level)]) {
      if (op.empty() || !text_.substr(at_).starts_with(op) || !EndsWord(op)) continue;
      at_ += op.size();
      return std::string(op);
    }
    return std::nullopt;
  }

  /// `in` is an operator only where no name begins with it.
  bool EndsWord(std::string_view op) const {
    const std::size_t after = at_ + op.size();
    return op != "in" || after >= text_.size() || !(IsNameStart(text_[after]) || IsDigit(text_[after]));
  }

  Result<Formula> Level(int level, int depth) {
    if (depth > kMaxDepth) return BadFormula(text_, "is nested too deeply");
    if (level == 5) return Unary(depth);
    CROSSDOCK_ASSIGN_OR_RETURN(Formula left, Level(level + 1, depth + 1));
    for (int count = 0; std::optional<std::string> op = TakeOperator(level); ++count) {
      if (count > kMaxDepth) return BadFormula(text_, "is too long");
      CROSSDOCK_ASSIGN_OR_RETURN(Formula right, Level(level + 1, depth + 1));
      Formula both{Formula::Kind::kBinary, *op, {}};
      both.inputs.push_back(std::move(left));
      both.inputs.push_back(std::move(right));
      left = std::move(both);
    }
    return left;
  }

  Result<Formula> Unary(int depth) {
    SkipSpace();
    if (at_ < text_.size() && (text_[at_] == '!' || text_[at_] == '-')) {
      Formula formula{Formula::Kind::kUnary, std::string(1, text_[at_++]), {}};
      if (depth > kMaxDepth) return BadFormula(text_, "is nested too deeply");
      CROSSDOCK_ASSIGN_OR_RETURN(Formula input, Unary(depth + 1));
      formula.inputs.push_back(std::move(input));
      return formula;
    }
    return Primary(depth);
  }

  Result<Formula> Primary(int depth) {
    if (at_ >= text_.size()) return BadFormula(text_, "ends too early");
    if (text_[at_] == '(') {
      ++at_;
      return Closed(Level(0, depth + 1));
    }
    if (text_[at_] == '\'') {
      const std::size_t end = text_.find('\'', at_ + 1);
      if (end == std::string_view::npos) return BadFormula(text_, "has a string without its end");
      Formula formula{Formula::Kind::kString, std::string(text_.substr(at_ + 1, end - at_ - 1)), {}};
      at_ = end + 1;
      return formula;
    }
    const std::size_t start = at_;
    if (IsDigit(text_[at_])) {
      while (at_ < text_.size() && (IsDigit(text_[at_]) || text_[at_] == '.')) ++at_;
      return Formula{Formula::Kind::kNumber, std::string(text_.substr(start, at_ - start)), {}};
    }
    if (!IsNameStart(text_[at_])) return BadFormula(text_, fmt::format("has something unexpected at character {}", at_ + 1));
    while (at_ < text_.size() && (IsNameStart(text_[at_]) || IsDigit(text_[at_]) || text_[at_] == '.')) ++at_;
    Formula formula{Formula::Kind::kName, std::string(text_.substr(start, at_ - start)), {}};
    if (at_ < text_.size() && text_[at_] == '(') {
      if (formula.text != "sqrt" && formula.text != "bf16") return BadFormula(text_, fmt::format("calls {}, which is unknown", formula.text));
      ++at_;
      CROSSDOCK_ASSIGN_OR_RETURN(Formula input, Closed(Level(0, depth + 1)));
      formula.kind = Formula::Kind::kCall;
      formula.inputs.push_back(std::move(input));
    } else if (at_ < text_.size() && text_[at_] == '[') {
      ++at_;
      CROSSDOCK_ASSIGN_OR_RETURN(Formula input, Closed(Level(0, depth + 1), ']'));
      formula.kind = Formula::Kind::kIndex;
      formula.inputs.push_back(std::move(input));
    }
    return formula;
  }

  Result<Formula> Closed(Result<Formula> inner, char end = ')') {
    if (!inner) return inner;
    SkipSpace();
    if (at_ >= text_.size() || text_[at_] != end) return BadFormula(text_, end == ')' ? "lacks a closing parenthesis" : "lacks a closing bracket");
    ++at_;
    return inner;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

void CollectNames(const Formula& formula, std::vector<std::string>& names) {
  if (formula.kind == Formula::Kind::kName || formula.kind == Formula::Kind::kIndex) names.push_back(formula.text);
  for (const Formula& input : formula.inputs) CollectNames(input, names);
}

using LetterMap = std::map<std::string, std::int64_t>;

Result<std::int64_t> Combine(const std::string& op, std::int64_t a, std::int64_t b, std::string_view whole) {
  std::int64_t r = 0;
  if (op == "+" && !__builtin_add_overflow(a, b, &r)) return r;
  if (op == "-" && !__builtin_sub_overflow(a, b, &r)) return r;
  if (op == "*" && !__builtin_mul_overflow(a, b, &r)) return r;
  if (op == "/") {
    if (b == 0 || (a == std::numeric_limits<std::int64_t>::min() && b == -1) || a % b != 0) {
      return BadFormula(whole, fmt::format("divides {} by {}, which is not whole", a, b));
    }
    return a / b;
  }
  return BadFormula(whole, "is no number or too large");
}

Result<std::int64_t> Integer(const Formula& f, const LetterMap& letters, std::string_view whole) {
  switch (f.kind) {
    case Formula::Kind::kNumber: {
      std::int64_t value = 0;
      const auto [end, error] = std::from_chars(f.text.data(), f.text.data() + f.text.size(), value);
      if (error != std::errc{} || end != f.text.data() + f.text.size()) return BadFormula(whole, "has a number that is not whole");
      return value;
    }
    case Formula::Kind::kName: {
      const auto letter = letters.find(f.text);
      if (letter == letters.end()) return BadFormula(whole, fmt::format("names {}, which is no letter of the family", f.text));
      return letter->second;
    }
    case Formula::Kind::kBinary: {
      CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t a, Integer(f.inputs[0], letters, whole));
      CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t b, Integer(f.inputs[1], letters, whole));
      return Combine(f.text, a, b, whole);
    }
    case Formula::Kind::kUnary: {
      CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t a, Integer(f.inputs[0], letters, whole));
      return Combine(f.text, 0, a, whole);  // "!" is refused there
    }
    default:
      return BadFormula(whole, "is no whole number");
  }
}

/// The nearest number with 8 significant bits, ties to even: what a factor becomes that some code keeps in bfloat16.
double RoundToBf16(double value) {
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);  // 0.5 <= |fraction| < 1
  return std::ldexp(std::nearbyint(std::ldexp(fraction, 8)), exponent - 8);
}

Result<double> Real(const Formula& f, const LetterMap& letters, std::string_view whole) {
  if (f.kind == Formula::Kind::kNumber) {
    double value = 0;
    const auto [end, error] = std::from_chars(f.text.data(), f.text.data() + f.text.size(), value);
    if (error != std::errc{} || end != f.text.data() + f.text.size()) return BadFormula(whole, "has a number that cannot be read");
    return value;
  }
  if (f.kind == Formula::Kind::kName || f.kind == Formula::Kind::kString) {
    CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t value, Integer(f, letters, whole));
    return static_cast<double>(value);
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const double a, Real(f.inputs[0], letters, whole));
  if (f.kind == Formula::Kind::kCall) return f.text == "bf16" ? RoundToBf16(a) : std::sqrt(a);
  if (f.kind == Formula::Kind::kUnary && f.text == "-") return -a;
  if (f.kind == Formula::Kind::kBinary) {
    CROSSDOCK_ASSIGN_OR_RETURN(const double b, Real(f.inputs[1], letters, whole));
    if (f.text == "+") return a + b;
    if (f.text == "-") return a - b;
    if (f.text == "*") return a * b;
    if (f.text == "/") return a / b;
  }
  return BadFormula(whole, "is no number");
}

std::optional<double> NumberOf(const Value& value) {
  if (const double* real = value.as_float()) return *real;
  if (const std::int64_t* whole = value.as_int()) return static_cast<double>(*whole);
  return std::nullopt;
}

bool Same(const Value& a, const Value& b) {
  if (a.is_null() || b.is_null()) return false;
  const std::optional<double> x = NumberOf(a);
  const std::optional<double> y = NumberOf(b);
  return x && y ? *x == *y : a.Equals(b);
}

bool Truth(const Value& value) {
  if (const bool* flag = value.as_bool()) return *flag;
  if (const std::optional<double> number = NumberOf(value)) return *number != 0;
  if (const std::string* text = value.as_string()) return !text->empty();
  return !value.is_null();
}

/// What a formula over a configuration comes to; null where something is absent.
class ConfigEvaluator {
 public:
  ConfigEvaluator(const Value& config, const LetterMap& locals, std::string_view whole) : config_(config), locals_(locals), whole_(whole) {}

  Result<Value> Run(const Formula& f) const {
    switch (f.kind) {
      case Formula::Kind::kString: return Value(f.text);
      case Formula::Kind::kName: return Named(f.text);
      case Formula::Kind::kNumber: {
        double number = 0;
        std::from_chars(f.text.data(), f.text.data() + f.text.size(), number);
        return Value(number);
      }
      case Formula::Kind::kIndex: {
        CROSSDOCK_ASSIGN_OR_RETURN(const Value at, Run(f.inputs[0]));
        return Element(Named(f.text), at);
      }
      case Formula::Kind::kUnary: {
        CROSSDOCK_ASSIGN_OR_RETURN(const Value input, Run(f.inputs[0]));
        if (f.text == "!") return Value(!Truth(input));
        const std::optional<double> number = NumberOf(input);
        return number ? Value(-*number) : Value();
      }
      case Formula::Kind::kBinary: return Binary(f);
      case Formula::Kind::kCall: break;
    }
    return BadFormula(whole_, "is no condition");
  }

 private:
  Value Named(const std::string& name) const {
    if (name == "true" || name == "false") return Value(name == "true");
    if (const auto local = locals_.find(name); local != locals_.end()) return Value(local->second);
    const Value* found = config_.FindPath(name);
    return found != nullptr ? *found : Value();
  }

  static Value Element(const Value& list, const Value& at) {
    const ValueList* items = list.as_sequence();
    const std::optional<double> index = NumberOf(at);
    if (items == nullptr || !index || *index < 0 || *index >= static_cast<double>(items->size())) return {};
    return (*items)[static_cast<std::size_t>(*index)];
  }

  static bool Contains(const Value& list, const Value& item) {
    const ValueList* items = list.as_sequence();
    return items != nullptr && std::any_of(items->begin(), items->end(), [&](const Value& one) { return Same(one, item); });
  }

  Result<Value> Binary(const Formula& f) const {
    CROSSDOCK_ASSIGN_OR_RETURN(const Value a, Run(f.inputs[0]));
    CROSSDOCK_ASSIGN_OR_RETURN(const Value b, Run(f.inputs[1]));
    if (f.text == "||") return Value(Truth(a) || Truth(b));
    if (f.text == "&&") return Value(Truth(a) && Truth(b));
    if (f.text == "==") return Value(Same(a, b));
    if (f.text == "!=") return Value(!Same(a, b));
    if (f.text == "in") return Value(Contains(b, a));
    const std::optional<double> x = NumberOf(a);
    const std::optional<double> y = NumberOf(b);
    const bool known = x && y;
    if (f.text == "<") return Value(known && *x < *y);
    if (f.text == ">") return Value(known && *x > *y);
    if (f.text == "<=") return Value(known && *x <= *y);
    if (f.text == ">=") return Value(known && *x >= *y);
    if (!known) return Value();
    if (f.text == "+") return Value(*x + *y);
    if (f.text == "-") return Value(*x - *y);
    if (f.text == "*") return Value(*x * *y);
    if (*y == 0) return Value();
    return Value(f.text == "%" ? std::fmod(*x, *y) : *x / *y);
  }

  const Value& config_;
  const LetterMap& locals_;
  std::string_view whole_;
};

}  // namespace

Result<Formula> ParseFormula(std::string_view text) { return Parser(text).Whole(); }

std::vector<std::string> NamesOf(const Formula& formula) {
  std::vector<std::string> names;
  CollectNames(formula, names);
  return names;
}

Result<std::int64_t> EvaluateInteger(std::string_view text, const LetterMap& letters) {
  CROSSDOCK_ASSIGN_OR_RETURN(const Formula formula, ParseFormula(text));
  return Integer(formula, letters, text);
}

Result<double> EvaluateReal(std::string_view text, const LetterMap& letters) {
  CROSSDOCK_ASSIGN_OR_RETURN(const Formula formula, ParseFormula(text));
  CROSSDOCK_ASSIGN_OR_RETURN(const double value, Real(formula, letters, text));
  if (!std::isfinite(value)) return BadFormula(text, "has no finite value");
  return value;
}

Result<bool> EvaluateCondition(std::string_view text, const Value& config, const LetterMap& locals) {
  CROSSDOCK_ASSIGN_OR_RETURN(const Formula formula, ParseFormula(text));
  CROSSDOCK_ASSIGN_OR_RETURN(const Value value, ConfigEvaluator(config, locals, text).Run(formula));
  return Truth(value);
}

}  // namespace crossdock::family
