// SPDX-License-Identifier: Apache-2.0
#include "family/family_file.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/check.h"
#include "family/builtin_files.h"
#include "family/family_toml.h"
#include "family/formula.h"
#include "family/row_syntax.h"
#include "family/rule_ops.h"
#include "fmt/format.h"

namespace crossdock::family {
namespace {

constexpr int kMaxIncludes = 4;
constexpr std::array<std::string_view, 4> kWords = {"hf", "mcore", "maxtext", "tunix"};

bool SameIndex(const Group& a, const Group& b) {
  if (a.index.size() != b.index.size() || a.hub_prefix != b.hub_prefix || a.prefixes != b.prefixes || a.consumer != b.consumer || a.dialect != b.dialect || a.repeats != b.repeats) return false;
  for (std::size_t i = 0; i < a.index.size(); ++i) {
    if (a.index[i].letter != b.index[i].letter || a.index[i].first != b.index[i].first || a.index[i].last != b.index[i].last || a.index[i].kind != b.index[i].kind) return false;
  }
  return true;
}

/// Rows of `own` whose hub name the included group has replace it in its place; the others follow.
void MergeRows(Group& base, const Group& own) {
  std::set<std::string> replaced;
  std::vector<Row> merged;
  for (Row& row : base.rows) {
    const auto same = [&](const Row& candidate) { return candidate.hub == row.hub; };
    if (std::none_of(own.rows.begin(), own.rows.end(), same)) {
      merged.push_back(std::move(row));
    } else if (replaced.insert(row.hub).second) {
      std::copy_if(own.rows.begin(), own.rows.end(), std::back_inserter(merged), same);
    }
  }
  for (const Row& row : own.rows) {
    if (!replaced.contains(row.hub)) merged.push_back(row);
  }
  base.rows = std::move(merged);
  base.copies.insert(base.copies.end(), own.copies.begin(), own.copies.end());
}

FamilyFile Merge(FamilyFile base, FamilyFile own) {
  own.letters.merge(base.letters);        // keys that both have stay as the including file says
  own.conditions.merge(base.conditions);
  own.layer_kinds.merge(base.layer_kinds);
  if (own.window == Window::kUnsaid) own.window = base.window;
  own.mcore_flags.merge(base.mcore_flags);
  own.maxtext_flags.merge(base.maxtext_flags);
  own.arguments.merge(base.arguments);
  own.spellings.merge(base.spellings);
  if (own.released.empty()) own.released = std::move(base.released);
  own.buffers.insert(own.buffers.end(), base.buffers.begin(), base.buffers.end());
  own.f32_islands.insert(own.f32_islands.end(), base.f32_islands.begin(), base.f32_islands.end());
  own.without.insert(own.without.end(), base.without.begin(), base.without.end());
  if (own.consumers.empty()) {
    own.consumers = std::move(base.consumers);
  } else {  // those of the including file: what is for others falls away
    const auto other = [&](const std::string& consumer) { return !consumer.empty() && std::find(own.consumers.begin(), own.consumers.end(), consumer) == own.consumers.end(); };
    std::erase_if(base.groups, [&](const Group& group) { return other(group.consumer); });
    std::erase_if(base.consumer_prefixes, [&](const auto& prefixes) { return other(prefixes.first); });
  }
  own.consumer_prefixes.merge(base.consumer_prefixes);
  if (own.text_config.empty()) own.text_config = std::move(base.text_config);
  if (!own.language_model) own.language_model = std::move(base.language_model);
  std::vector<Group> groups = std::move(base.groups);
  for (Group& group : own.groups) {
    const auto place = std::find_if(groups.begin(), groups.end(), [&](const Group& g) { return SameIndex(g, group); });
    if (place == groups.end()) {
      groups.push_back(std::move(group));
    } else {
      MergeRows(*place, group);
    }
  }
  own.groups = std::move(groups);
  return own;
}

/// `name` with the longest of the prefixes that it starts with replaced; as it is where none fits.
std::string Respelled(const std::map<std::string, std::string>& prefixes, const std::string& name) {
  const std::pair<const std::string, std::string>* best = nullptr;
  for (const auto& prefix : prefixes) {
    if (name.starts_with(prefix.first) && (best == nullptr || prefix.first.size() > best->first.size())) best = &prefix;
  }
  return best == nullptr ? name : best->second + name.substr(best->first.size());
}

/// `base` as a part of a larger model. A group without an index has no prefix of its own: its rows carry whole names.
void Prefix(const Include& include, FamilyFile* base) {
  const auto respell = [&](std::string& name) { name = Respelled(include.hub, name); };
  for (Group& group : base->groups) {
    if (group.hub_prefix.empty()) {
      for (Row& row : group.rows) respell(row.hub);
    } else {
      respell(group.hub_prefix);
    }
    for (CopyRule& copy : group.copies) respell(copy.of);
    if (!include.mcore.empty()) group.prefixes["mcore"].insert(0, include.mcore);
  }
  for (std::string& pattern : base->buffers) respell(pattern);
  for (std::string& pattern : base->f32_islands) respell(pattern);
  for (auto& [name, spelling] : base->spellings) {
    for (SpellingRow& row : spelling.rows) respell(row.hub), respell(row.target.name);
    std::map<std::string, std::string> prefixes;
    for (const auto& [released, spelled] : spelling.prefixes) prefixes[Respelled(include.hub, released)] = Respelled(include.hub, spelled);
    spelling.prefixes = std::move(prefixes);
  }
  base->language_model = LanguageModel{base->name, include.hub};
}

/// The built-in files that were parsed so far: most are included by several others.
using Documents = std::map<std::string_view, FamilyDocument>;

Result<const FamilyDocument*> ParseBuiltinFile(const BuiltinFile& file, Documents* parsed) {
  const auto known = parsed->find(file.name);
  if (known != parsed->end()) return &known->second;
  CROSSDOCK_ASSIGN_OR_RETURN(FamilyDocument document, ParseFamilyToml(file.text, "builtin:" + std::string(file.name)));
  return &parsed->emplace(file.name, std::move(document)).first->second;
}

Result<FamilyFile> ReadWithIncludes(const FamilyDocument& document, const std::string& path, int depth, Documents* parsed) {
  FamilyFile file = document.file;
  if (!document.includes.empty() && depth >= kMaxIncludes) return FamilyError(path, 0, "family files include each other too deeply");
  for (auto include = document.includes.rbegin(); include != document.includes.rend(); ++include) {
    const auto found = std::ranges::find(BuiltinFiles(), include->file + ".toml", &BuiltinFile::name);
    if (found == BuiltinFiles().end()) return FamilyError(path, 0, fmt::format("include names \"{}\", which is no built-in family file", Printable(include->file)));
    CROSSDOCK_ASSIGN_OR_RETURN(const FamilyDocument* included_document, ParseBuiltinFile(*found, parsed));
    CROSSDOCK_ASSIGN_OR_RETURN(FamilyFile base, ReadWithIncludes(*included_document, "builtin:" + std::string(found->name), depth + 1, parsed));
    if (include->IsPart()) Prefix(*include, &base);
    std::vector<std::string> included = {std::string(found->name)};
    included.insert(included.end(), base.included.begin(), base.included.end());
    file.included.insert(file.included.begin(), included.begin(), included.end());
    file = Merge(std::move(base), std::move(file));
  }
  return file;
}

class Checker {
 public:
  explicit Checker(const FamilyFile& file) : file_(file) {}

  Status Check() {
    if (file_.name.empty()) return Bad(0, "the file does not name its family (family = \"...\")");
    if (file_.groups.empty()) return Bad(0, "the file has no [[group]]");
    for (const auto& [letter, rule] : file_.letters) {
      CROSSDOCK_RETURN_IF_ERROR(Words(rule.paths));
      for (const auto& [words, paths] : rule.paths) {
        for (const std::string& path : paths) CROSSDOCK_RETURN_IF_ERROR(Path(path));
      }
      if (!rule.fallback.empty()) CROSSDOCK_RETURN_IF_ERROR(Letters(rule.fallback, 0, {}));
      if (!rule.last_fallback.empty()) CROSSDOCK_RETURN_IF_ERROR(Letters(rule.last_fallback, 0, {}));
    }
    for (const auto* section : {&file_.conditions, &file_.layer_kinds}) {
      for (const auto& [word, rules] : *section) {
        CROSSDOCK_RETURN_IF_ERROR(Words(rules));
        for (const auto& [words, text] : rules) CROSSDOCK_RETURN_IF_ERROR(Readable(text, 0));
      }
    }
    for (const auto& [word, rules] : file_.layer_kinds) {
      if (file_.conditions.contains(word)) return Bad(0, fmt::format("\"{}\" is both a condition and a kind of layers", Printable(word)));
    }
    for (const std::string& dialect : file_.without) {
      if (dialect != "mcore" && dialect != "maxtext") return Bad(0, fmt::format("without names \"{}\", which is no dialect", Printable(dialect)));
    }
    if (!file_.when.empty()) CROSSDOCK_RETURN_IF_ERROR(Readable(file_.when, 0));
    const auto known = [&](const std::string& name) { return std::find(file_.consumers.begin(), file_.consumers.end(), name) != file_.consumers.end(); };
    for (const auto& [name, prefixes] : file_.consumer_prefixes) {
      if (!known(name)) return Bad(0, fmt::format("\"{}\" has prefixes and is none of the consumers", Printable(name)));
    }
    for (const Group& group : file_.groups) {
      if (!group.consumer.empty() && !known(group.consumer)) return Bad(0, fmt::format("a group is for \"{}\", which is none of the consumers", Printable(group.consumer)));
    }
    if (!file_.released.empty() && !file_.spellings.contains(file_.released)) return Bad(0, fmt::format("released names \"{}\", which is no spelling", Printable(file_.released)));
    for (const Group& group : file_.groups) CROSSDOCK_RETURN_IF_ERROR(OneGroup(group));
    for (const auto& [name, spelling] : file_.spellings) {
      for (const SpellingRow& row : spelling.rows) CROSSDOCK_RETURN_IF_ERROR(OneSpelling(name, row));
    }
    return OkStatus();
  }

 private:
  Error Bad(int line, std::string what) const { return FamilyError(file_.path, line, std::move(what)); }

  template <typename Map>
  Status Words(const Map& by_words) const {
    for (const auto& [words, rule] : by_words) {
      if (std::find(kWords.begin(), kWords.end(), words) == kWords.end()) {
        return Bad(0, fmt::format("\"{}\" is no configuration that a letter or condition can be read from", Printable(words)));
      }
    }
    return OkStatus();
  }

  Status Readable(std::string_view formula, int line) const {
    const Result<Formula> parsed = ParseFormula(formula);
    return parsed ? OkStatus() : Status(Bad(line, parsed.error().message));
  }

  Status Path(std::string_view path) const {
    const std::size_t mark = path.find('?');
    if (Trim(path.substr(0, mark)).empty() || path.find("len()") != std::string_view::npos || path.find("first()") != std::string_view::npos) return Bad(0, "a letter names an empty place");
    return mark == std::string_view::npos ? OkStatus() : Readable(path.substr(mark + 1), 0);
  }

  Status Letters(std::string_view formula, int line, const std::set<std::string>& indices) const {
    const Result<Formula> parsed = ParseFormula(formula);
    if (!parsed) return Bad(line, parsed.error().message);
    for (const std::string& name : NamesOf(*parsed)) {
      if (!file_.letters.contains(name) && !indices.contains(name)) return Bad(line, fmt::format("\"{}\" is no letter of the family", Printable(name)));
    }
    return OkStatus();
  }

  Status OneGroup(const Group& group) const {
    std::set<std::string> indices;
    for (const Group::IndexRange& range : group.index) {
      CROSSDOCK_RETURN_IF_ERROR(Letters(range.first, 0, {}));
      CROSSDOCK_RETURN_IF_ERROR(Letters(range.last, 0, {}));
      const std::string kind = range.kind.starts_with('!') ? range.kind.substr(1) : range.kind;
      if (!kind.empty() && !file_.layer_kinds.contains(kind)) return Bad(0, fmt::format("\"{}\" is no kind of layers of the family", Printable(kind)));
      if (!kind.empty() && range.letter != "l") return Bad(0, "only the index l can be of a kind");
      if (!indices.insert(range.letter).second) return Bad(0, fmt::format("the index \"{}\" is given twice", Printable(range.letter)));
    }
    for (const Row& row : group.rows) CROSSDOCK_RETURN_IF_ERROR(OneRow(group, row, indices));
    for (const CopyRule& copy : group.copies) {
      for (const std::string& pattern : {group.hub_prefix + copy.hub, copy.of}) CROSSDOCK_RETURN_IF_ERROR(Names(pattern, copy.line, indices));
    }
    return OkStatus();
  }

  /// The placeholders of a pattern are indices or letters.
  Status Names(const std::string& pattern, int line, const std::set<std::string>& indices) const {
    const Result<std::int64_t> count = GroupCount(pattern);
    if (!count) return Bad(line, count.error().message);
    for (const std::string& letter : IndicesOf(pattern)) {
      if (!indices.contains(letter) && !file_.letters.contains(letter)) return Bad(line, fmt::format("{{{}}} is no index of the group", Printable(letter)));
    }
    return OkStatus();
  }

  /// A spelling's row names a row of a group; what it makes is stacked over the experts at most, so it names all other indices.
  Status OneSpelling(const std::string& name, const SpellingRow& row) const {
    for (const Group& group : file_.groups) {
      const auto same = [&](const Row& candidate) { return group.hub_prefix + candidate.hub == row.hub; };
      if (std::none_of(group.rows.begin(), group.rows.end(), same)) continue;
      std::set<std::string> indices;
      for (const Group::IndexRange& range : group.index) indices.insert(range.letter);
      CROSSDOCK_RETURN_IF_ERROR(Names(row.target.name, row.line, indices));
      const std::vector<std::string> named = IndicesOf(row.target.name);
      for (const std::string& index : indices) {
        if (index != "e" && std::find(named.begin(), named.end(), index) == named.end()) {
          return Bad(row.line, fmt::format("the spelling \"{}\" must keep the index {} in its names", Printable(name), Printable(index)));
        }
      }
      return row.target.name == "-" ? Status(Bad(row.line, "a spelling has every tensor of the hub")) : OkStatus();
    }
    return Bad(row.line, fmt::format("the spelling \"{}\" names no row of the family: \"{}\"", Printable(name), Printable(row.hub)));
  }

  Status OneRow(const Group& group, const Row& row, const std::set<std::string>& indices) const {
    const std::string hub = group.hub_prefix + row.hub;
    std::set<std::string> named;
    for (const std::string& letter : IndicesOf(hub)) {
      if (indices.contains(letter)) named.insert(letter);
      if (!indices.contains(letter) && !file_.letters.contains(letter)) return Bad(row.line, fmt::format("{{{}}} is no index of the group", Printable(letter)));
    }
    for (const std::string& index : indices) {  // what comes before the layers of multi-token prediction is there once
      if (named.contains(index) || (index != "l" && index != "e")) continue;
      return Bad(row.line, fmt::format("the hub name \"{}\" must name every index of its group", Printable(hub)));
    }
    if (!row.condition.empty()) {
      const Result<Formula> condition = ParseFormula(row.condition);
      if (!condition) return Bad(row.line, condition.error().message);
      for (const std::string& word : NamesOf(*condition)) {
        if (file_.conditions.contains(word) || (file_.layer_kinds.contains(word) && indices.contains("l"))) continue;
        return Bad(row.line, fmt::format("\"{}\" is no condition of the family", Printable(word)));
      }
    }
    const Result<std::int64_t> sources = GroupCount(row.hub);
    for (std::int64_t i = 0; i < *sources; ++i) {
      for (const std::string& axis : SplitOutside(ExpandGroups(row.shape, i), ',')) CROSSDOCK_RETURN_IF_ERROR(Letters(axis, row.line, {}));
    }
    for (const auto& [dialect, target] : row.targets) {
      const auto prefix = group.prefixes.find(dialect);
      for (const std::string& letter : IndicesOf((prefix == group.prefixes.end() ? "" : prefix->second) + target.name)) {
        if (!indices.contains(letter) && !file_.letters.contains(letter)) return Bad(row.line, fmt::format("{{{}}} is no index of the group", Printable(letter)));
      }
      for (const std::vector<std::string>& ops : target.ops) {
        for (const std::string& op : ops) {
          const std::size_t colon = op.find(':');
          if (colon != std::string::npos) CROSSDOCK_RETURN_IF_ERROR(Letters(std::string_view(op).substr(colon + 1), row.line, {}));
        }
      }
    }
    return OkStatus();
  }

  const FamilyFile& file_;
};

std::vector<FamilyFile> ParseBuiltin() {
  std::vector<FamilyFile> families;
  Documents parsed;
  for (const BuiltinFile& file : BuiltinFiles()) {
    const Result<const FamilyDocument*> document = ParseBuiltinFile(file, &parsed);
    CROSSDOCK_CHECK(document.has_value());
    if ((*document)->file.name.empty()) continue;  // a base for others
    Result<FamilyFile> family = ReadWithIncludes(**document, "builtin:" + std::string(file.name), 0, &parsed);
    CROSSDOCK_CHECK(family.has_value());
    CROSSDOCK_CHECK(Checker(*family).Check().has_value());
    families.push_back(*std::move(family));
  }
  std::sort(families.begin(), families.end(), [](const FamilyFile& a, const FamilyFile& b) { return a.name < b.name; });
  return families;
}

}  // namespace

std::string LanguageModel::Within(const std::string& name) const { return Respelled(hub, name); }

std::optional<std::string> LanguageModel::Alone(const std::string& name) const {
  std::optional<std::string> alone;
  std::size_t length = 0;
  for (const auto& [own, within] : hub) {
    if (!name.starts_with(within) || (alone && within.size() <= length)) continue;
    alone = own + name.substr(within.size());
    length = within.size();
  }
  if (alone) return Within(*alone) == name ? alone : std::nullopt;
  return Within(name) == name ? std::optional<std::string>(name) : std::nullopt;
}

std::string LetterRule::McoreArgument() const {
  const auto places = paths.find("mcore");
  return places == paths.end() || places->second.empty() ? std::string() : places->second.front().substr(0, places->second.front().find(' '));
}

bool FamilyFile::States(const std::string& flag, std::string_view value) const {
  const auto found = mcore_flags.find(flag);
  return found != mcore_flags.end() && found->second == value;
}

bool FitsAny(const std::vector<std::string>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) { return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0; });
}

Result<FamilyFile> ParseFamilyFile(std::string_view text, const std::string& path) {
  CROSSDOCK_ASSIGN_OR_RETURN(const FamilyDocument document, ParseFamilyToml(text, path));
  Documents parsed;
  CROSSDOCK_ASSIGN_OR_RETURN(FamilyFile file, ReadWithIncludes(document, path, 0, &parsed));
  CROSSDOCK_RETURN_IF_ERROR(Checker(file).Check());
  return file;
}

const std::vector<FamilyFile>& BuiltinFamilies() {
  static const std::vector<FamilyFile> families = ParseBuiltin();
  return families;
}

}  // namespace crossdock::family
