// SPDX-License-Identifier: Apache-2.0
#include "family/family_toml.h"

#include <algorithm>
#include <array>

#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#include "family/row_syntax.h"
#include "fmt/format.h"
#include "toml++/toml.h"

namespace crossdock::family {
namespace {

constexpr std::array<std::string_view, 2> kDialects = {"mcore", "maxtext"};  // the columns after hub and shape
constexpr std::size_t kMaxBytes = std::size_t{1} << 20U;

int LineOf(const toml::node& node) { return static_cast<int>(node.source().begin.line); }

/// Walks one document; the first error wins.
class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {}

  Result<FamilyDocument> Read(const toml::table& root) {
    FamilyDocument document;
    document.file.path = path_;
    for (const auto& [key, node] : root) CROSSDOCK_RETURN_IF_ERROR(TopLevel(std::string(key.str()), node, document));
    return document;
  }

 private:
  Error At(const toml::node& node, std::string what) const { return FamilyError(path_, LineOf(node), std::move(what)); }

  Status TopLevel(const std::string& key, const toml::node& node, FamilyDocument& document) {
    FamilyFile& file = document.file;
    if (key == "family") return Text(node, key, file.name);
    if (key == "include") return Includes(node, document.includes);
    if (key == "model_type") return Text(node, key, file.model_type);
    if (key == "models") return Text(node, key, file.models);
    if (key == "verified") return Verified(node, file);
    if (key == "when") return Text(node, key, file.when);
    if (key == "architectures") return Texts(node, key, file.architectures);
    if (key == "letters") return Letters(node, file);
    if (key == "conditions") return Conditions(node, "conditions", file.conditions);
    if (key == "layer_kinds") return Conditions(node, "layer_kinds", file.layer_kinds);
    if (key == "mcore") return Flags(node, key, file.mcore_flags);
    if (key == "maxtext") return Flags(node, key, file.maxtext_flags);
    if (key == "arguments") return Arguments(node, file);
    if (key == "window") return Windows(node, file);
    if (key == "buffers") return Texts(node, key, file.buffers);
    if (key == "f32_islands") return Texts(node, key, file.f32_islands);
    if (key == "spellings") return Spellings(node, file);
    if (key == "released") return Text(node, key, file.released);
    if (key == "text_config") return Texts(node, key, file.text_config);
    if (key == "consumers") return Texts(node, key, file.consumers);
    if (key == "consumer_prefixes") return ConsumerPrefixes(node, file);
    if (key == "without") return Texts(node, key, file.without);
    if (key == "group") return Groups(node, file);
    return At(node, fmt::format("\"{}\" is no key of a family file", Printable(key)));
  }

  Status Text(const toml::node& node, std::string_view what, std::string& out) const {
    const auto* text = node.as_string();
    if (text == nullptr) return At(node, fmt::format("{} must be a string", what));
    out = text->get();
    return OkStatus();
  }

  Status Includes(const toml::node& node, std::vector<Include>& out) const {
    const auto* array = node.as_array();
    if (array == nullptr) return Included(node, out.emplace_back());
    for (const toml::node& item : *array) CROSSDOCK_RETURN_IF_ERROR(Included(item, out.emplace_back()));
    return OkStatus();
  }

  /// "qwen2", or { file = "qwen2", mcore = "language_model.", hub = "model.language_model." }.
  Status Included(const toml::node& node, Include& out) const {
    const auto* table = node.as_table();
    if (table == nullptr) return Text(node, "include", out.file);
    for (const auto& [key, value] : *table) {
      if (key.str() == "hub") {
        CROSSDOCK_RETURN_IF_ERROR(value.is_table() ? Prefixes(value, out.hub) : Text(value, "hub of include", out.hub["model."]));
        continue;
      }
      std::string* const place = key.str() == "file" ? &out.file : key.str() == "mcore" ? &out.mcore : nullptr;
      if (place == nullptr) return At(value, fmt::format("\"{}\" is no key of include", Printable(key.str())));
      CROSSDOCK_RETURN_IF_ERROR(Text(value, fmt::format("{} of include", key.str()), *place));
    }
    return out.file.empty() ? Status(At(node, "include names no file")) : OkStatus();
  }

  /// { "model." = "model.language_model." }
  Status Prefixes(const toml::node& node, std::map<std::string, std::string>& out) const {
    const auto* table = node.as_table();
    if (table == nullptr) return At(node, "prefixes are a table");
    for (const auto& [from, to] : *table) CROSSDOCK_RETURN_IF_ERROR(Text(to, "a prefix", out[std::string(from.str())]));
    return OkStatus();
  }

  Status Verified(const toml::node& node, FamilyFile& file) const {
    const auto* table = node.as_table();
    if (table == nullptr) return At(node, "[verified] must be a table");
    constexpr std::array<std::string_view, 5> kJudges = {"hf", "megatron", "megatron-bridge", "loongforge", "maxtext"};
    for (const auto& [name, text] : *table) {
      if (std::find(kJudges.begin(), kJudges.end(), name.str()) == kJudges.end()) return At(text, fmt::format("\"{}\" is nobody whom [verified] can name", Printable(name.str())));
      CROSSDOCK_RETURN_IF_ERROR(Text(text, "what was verified", file.verified[std::string(name.str())]));
    }
    return OkStatus();
  }

  Status ConsumerPrefixes(const toml::node& node, FamilyFile& file) const {
    const auto* table = node.as_table();
    if (table == nullptr) return At(node, "[consumer_prefixes] must be a table");
    for (const auto& [name, prefixes] : *table) CROSSDOCK_RETURN_IF_ERROR(Prefixes(prefixes, file.consumer_prefixes[std::string(name.str())]));
    return OkStatus();
  }

  /// A string or an array of strings.
  Status Texts(const toml::node& node, std::string_view what, std::vector<std::string>& out) const {
    if (const auto* array = node.as_array()) {
      for (const toml::node& item : *array) {
        out.emplace_back();
        CROSSDOCK_RETURN_IF_ERROR(Text(item, what, out.back()));
      }
      return OkStatus();
    }
    out.emplace_back();
    return Text(node, what, out.back());
  }

  Status Letters(const toml::node& node, FamilyFile& file) const {
    const auto* table = node.as_table();
    if (table == nullptr) return At(node, "[letters] must be a table");
    for (const auto& [letter, rule] : *table) {
      const auto* places = rule.as_table();
      if (places == nullptr) return At(rule, "a letter must be a table such as { hf = \"hidden_size\" }");
      LetterRule& out = file.letters[std::string(letter.str())];
      for (const auto& [words, path] : *places) {
        if (words.str() == "default") {
          std::vector<std::string> defaults;
          CROSSDOCK_RETURN_IF_ERROR(Texts(path, "default", defaults));
          if (defaults.empty() || defaults.size() > 2) return At(path, "a letter has one default, or a second one for where the first cannot be computed");
          out.fallback = defaults.front();
          out.last_fallback = defaults.size() == 2 ? defaults.back() : "";
        } else {
          CROSSDOCK_RETURN_IF_ERROR(Texts(path, "the place of a letter", out.paths[std::string(words.str())]));
        }
      }
    }
    return OkStatus();
  }

  Status Conditions(const toml::node& node, std::string_view section, std::map<std::string, std::map<std::string, std::string>>& out) const {
    const auto* table = node.as_table();
    if (table == nullptr) return At(node, fmt::format("[{}] must be a table", section));
    for (const auto& [word, rule] : *table) {
      const auto* places = rule.as_table();
      if (places == nullptr) return At(rule, "a condition must be a table such as { hf = \"!tie_word_embeddings\" }");
      for (const auto& [words, text] : *places) {
        CROSSDOCK_RETURN_IF_ERROR(Text(text, "a condition", out[std::string(word.str())][std::string(words.str())]));
      }
    }
    return OkStatus();
  }

  Status Flags(const toml::node& node, const std::string& section, std::map<std::string, std::string>& flags) const {
    const auto* table = node.as_table();
    if (table == nullptr) return At(node, fmt::format("[{}] must be a table", section));
    for (const auto& [key, flag] : *table) {
      std::string& out = flags[std::string(key.str())];
      if (const auto* truth = flag.as_boolean()) {
        out = truth->get() ? "true" : "false";
      } else if (const auto* number = flag.as_integer()) {
        out = std::to_string(number->get());
      } else {
        CROSSDOCK_RETURN_IF_ERROR(Text(flag, fmt::format("a flag of [{}]", section), out));
      }
    }
    return OkStatus();
  }

  Status Windows(const toml::node& node, FamilyFile& file) const {
    constexpr std::pair<std::string_view, Window> kWindowWords[] = {{"none", Window::kNone}, {"always", Window::kAlways}, {"by_flag", Window::kByFlag}};
    std::string text;
    CROSSDOCK_RETURN_IF_ERROR(Text(node, "window", text));
    for (const auto& [word, window] : kWindowWords) {
      if (text == word) return file.window = window, OkStatus();
    }
    return At(node, fmt::format("window is none, always or by_flag, not \"{}\"", Printable(text)));
  }

  Status Arguments(const toml::node& node, FamilyFile& file) const {
    const auto* table = node.as_table();
    if (table == nullptr) return At(node, "[arguments] must be a table");
    for (const auto& [key, path] : *table) CROSSDOCK_RETURN_IF_ERROR(Text(path, "an argument", file.arguments[std::string(key.str())]));
    return OkStatus();
  }

  Status Spellings(const toml::node& node, FamilyFile& file) const {
    const auto* table = node.as_table();
    if (table == nullptr) return At(node, "[spellings] must be a table");
    for (const auto& [name, form] : *table) {
      Spelling& out = file.spellings[std::string(name.str())];
      if (form.is_table()) {
        CROSSDOCK_RETURN_IF_ERROR(Prefixes(form, out.prefixes));
        continue;
      }
      const auto* rows = form.as_array();
      if (rows == nullptr) return At(form, "a spelling is a table of prefixes or an array of rows");
      for (const toml::node& row : *rows) {
        std::array<std::string, 2> cells;
        CROSSDOCK_RETURN_IF_ERROR(Cells(row, "a row of a spelling has two strings: hub name, target with operations", cells));
        const Result<std::int64_t> sources = GroupCount(cells[0]);
        if (!sources) return At(row, sources.error().message);
        Result<RowTarget> target = ParseTarget(cells[1], *sources);
        if (!target) return At(row, target.error().message);
        out.rows.push_back({cells[0], *std::move(target), LineOf(row)});
      }
    }
    return OkStatus();
  }

  Status Cells(const toml::node& node, std::string_view form, std::array<std::string, 2>& out) const {
    const auto* cells = node.as_array();
    if (cells == nullptr || cells->size() != out.size()) return At(node, std::string(form));
    for (std::size_t i = 0; i < out.size(); ++i) CROSSDOCK_RETURN_IF_ERROR(Text((*cells)[i], form, out[i]));
    return OkStatus();
  }

  Status Copies(const toml::node& node, Group& group) const {
    const auto* copies = node.as_array();
    if (copies == nullptr) return At(node, "copies must be an array of pairs");
    for (const toml::node& item : *copies) {
      std::array<std::string, 2> cells;
      CROSSDOCK_RETURN_IF_ERROR(Cells(item, "a copy has two strings: its name, the name of what it repeats", cells));
      group.copies.push_back({cells[0], cells[1], LineOf(item)});
    }
    return OkStatus();
  }

  Status Groups(const toml::node& node, FamilyFile& file) const {
    const auto* array = node.as_array();
    if (array == nullptr) return At(node, "groups are written as [[group]]");
    for (const toml::node& item : *array) {
      const auto* table = item.as_table();
      if (table == nullptr) return At(item, "a group must be a table");
      file.groups.emplace_back();
      CROSSDOCK_RETURN_IF_ERROR(OneGroup(*table, file.groups.back()));
    }
    return OkStatus();
  }

  Status OneGroup(const toml::table& table, Group& group) const {
    for (const auto& [name, node] : table) {
      const std::string key(name.str());
      if (key == "index") {
        std::string text;
        CROSSDOCK_RETURN_IF_ERROR(Text(node, key, text));
        Result<std::vector<Group::IndexRange>> index = ParseIndex(text);
        if (!index) return At(node, index.error().message);
        group.index = *std::move(index);
      } else if (key == "hub") {
        CROSSDOCK_RETURN_IF_ERROR(Text(node, key, group.hub_prefix));
      } else if (key == "mcore" || key == "maxtext") {
        CROSSDOCK_RETURN_IF_ERROR(Text(node, key, group.prefixes[key]));
      } else if (key == "copies") {
        CROSSDOCK_RETURN_IF_ERROR(Copies(node, group));
      } else if (key == "consumer") {
        CROSSDOCK_RETURN_IF_ERROR(Text(node, key, group.consumer));
      } else if (key == "dialect") {
        CROSSDOCK_RETURN_IF_ERROR(Text(node, key, group.dialect));
        if (group.dialect != "mcore" && group.dialect != "maxtext") return At(node, fmt::format("dialect is mcore or maxtext, not \"{}\"", Printable(group.dialect)));
      } else if (key == "repeats") {
        const auto* truth = node.as_boolean();
        if (truth == nullptr) return At(node, "repeats is true or false");
        group.repeats = truth->get();
      } else if (key == "rules") {
        const auto* rows = node.as_array();
        if (rows == nullptr) return At(node, "rules must be an array of rows");
        for (const toml::node& row : *rows) {
          group.rows.emplace_back();
          CROSSDOCK_RETURN_IF_ERROR(OneRow(row, group.rows.back()));
        }
      } else {
        return At(node, fmt::format("\"{}\" is no key of a group", Printable(key)));
      }
    }
    return OkStatus();
  }

  Status OneRow(const toml::node& node, Row& row) const {
    row.line = LineOf(node);
    const auto* cells = node.as_array();
    if (cells == nullptr || cells->size() != 2 + kDialects.size()) {
      return At(node, "a row has four strings: hub name, hub shape, Megatron-Core target, MaxText target");
    }
    std::array<std::string, 2 + kDialects.size()> texts;
    for (std::size_t i = 0; i < texts.size(); ++i) CROSSDOCK_RETURN_IF_ERROR(Text((*cells)[i], "a cell of a row", texts[i]));
    const std::size_t mark = texts[0].find('?');
    row.hub = Trim(std::string_view(texts[0]).substr(0, mark));
    if (mark != std::string::npos) row.condition = Trim(std::string_view(texts[0]).substr(mark + 1));
    if (row.hub.empty() || (mark != std::string::npos && row.condition.empty())) return At(node, "a row needs a hub name, and a word after \"?\"");
    row.shape = texts[1];
    const Result<std::int64_t> sources = GroupCount(row.hub);
    const Result<std::int64_t> shapes = GroupCount(row.shape);
    for (const Result<std::int64_t>* count : {&sources, &shapes}) {
      if (!*count) return At(node, count->error().message);
    }
    if (*shapes != 1 && *shapes != *sources) return At(node, fmt::format("the shape \"{}\" has not as many alternatives as the row has tensors", Printable(row.shape)));
    for (std::size_t i = 0; i < kDialects.size(); ++i) {
      Result<RowTarget> target = ParseTarget(texts[2 + i], *sources);
      if (!target) {
        Error error = At(node, target.error().message);
        error.expected = target.error().expected;
        return error;
      }
      row.targets[std::string(kDialects[i])] = *std::move(target);
    }
    return OkStatus();
  }

  const std::string& path_;
};

}  // namespace

Error FamilyError(const std::string& path, int line, std::string what) {
  Error error = MakeError(ErrorCode::kUsage, line > 0 ? fmt::format("line {}: {}", line, what) : std::move(what));
  return std::move(std::move(error).WithPath(path).WithHint("the form of family files is described in families/SCHEMA.md"));
}

Result<FamilyDocument> ParseFamilyToml(std::string_view text, const std::string& path) {
  if (text.size() > kMaxBytes) return FamilyError(path, 0, "a family file is larger than 1 MiB");
  const toml::parse_result parsed = toml::parse(text, path);
  if (!parsed) {
    const auto& where = parsed.error().source().begin;
    return FamilyError(path, static_cast<int>(where.line), fmt::format("column {}: {}", where.column, parsed.error().description()));
  }
  Result<FamilyDocument> document = Reader(path).Read(parsed.table());
  if (document) document->file.text = std::string(text);
  return document;
}

}  // namespace crossdock::family
