// SPDX-License-Identifier: Apache-2.0
/// \file  A family file: one TOML file that says how the dialects of one architecture relate (families/SCHEMA.md).
/// The files of `families/` are built into the binary; `--rules FILE` adds one of the user's.
/// Errors: kCorrupt with file, line and column; kUsage for a user's file. Threads: immutable once parsed.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "crossdock/result.h"

namespace crossdock::family {

/// A letter (h, q, k, d, ...): where its value stands in each dialect's configuration, and what else.
struct LetterRule {
  /// Words -> alternatives, first present wins; "path ? condition" counts only where the condition holds.
  std::map<std::string, std::vector<std::string>> paths;
  std::string fallback;                                   ///< an expression over other letters, or empty
  std::string last_fallback;                              ///< where the first one needs a letter that nothing tells either

  /// Megatron's argument that says it (the first of several, without its condition); empty when none does.
  [[nodiscard]] std::string McoreArgument() const;
};

/// Whether the layers of a family see a sliding window.
enum class Window : std::uint8_t {
  kUnsaid,   ///< config.json's sliding_window counts; Megatron's window_size has no way back
  kNone,     ///< never, whatever config.json says
  kAlways,   ///< where config.json names one
  kByFlag,   ///< where use_sliding_window is set as well
};

/// One dialect's side of a row: a name pattern and the operations that make it from the hub tensors.
struct RowTarget {
  std::string name;                                ///< "self_attention.linear_qkv.weight", "-" = has none
  std::vector<std::vector<std::string>> ops;       ///< a list of ops a target ({x|y|z} expanded); "heads:nope+v"
};

struct Row {
  std::string hub;                                 ///< pattern with {a,b} groups
  std::string condition;                           ///< after '?': "untied", "!pairs", "moe && shared", or empty
  std::string shape;                               ///< "{q,k,k}*d,h"
  std::map<std::string, RowTarget> targets;        ///< dialect -> its side
  int line = 0;
};

/// A tensor of the hub that repeats another one: compared when it is read, not carried, and made again for a hub target.
struct CopyRule {
  std::string hub;                                 ///< pattern below the group's prefix
  std::string of;                                  ///< the whole name of what it repeats
  int line = 0;
};

/// A row of a spelling: tensors of the hub, and what stands for them in this spelling.
struct SpellingRow {
  std::string hub;                                 ///< the pattern of a row, its group's prefix included
  RowTarget target;
  int line = 0;
};

/// Another form of the same hub tensors: other prefixes, or other tensors made of them (never both).
struct Spelling {
  std::map<std::string, std::string> prefixes;     ///< released -> spelled; the longest that fits counts
  std::vector<SpellingRow> rows;
};

struct Group {
  struct IndexRange {
    std::string letter, first, last;               ///< "l in 0..layers": expressions over letters
    std::string kind;                              ///< "l in 0..layers if moe": only layers of this kind; "!moe": of no such kind
  };
  std::vector<IndexRange> index;
  std::string hub_prefix;
  std::map<std::string, std::string> prefixes;     ///< dialect -> prefix
  std::vector<Row> rows;
  std::vector<CopyRule> copies;                    ///< with the group's index
  std::string consumer;                            ///< rows only for this one of FamilyFile::consumers; empty: for all
  std::string dialect;                             ///< "maxtext": rows for it alone; "mcore": for all but it; empty: for all
  bool repeats = false;                            ///< the rows' hub tensors are those of other rows, stored once more
};

/// A language model as a part of a larger one (`include` with prefixes): its family, and what stands for the start of its hub names.
struct LanguageModel {
  std::string family;
  std::map<std::string, std::string> hub;          ///< "model." -> "model.language_model."; the longest that fits counts

  /// A hub name of the part within the larger model, and back as far as prefixes tell: nothing for what none of them gives.
  [[nodiscard]] std::string Within(const std::string& name) const;
  [[nodiscard]] std::optional<std::string> Alone(const std::string& name) const;
};

struct FamilyFile {
  std::string name;
  std::string path;                                ///< for messages; "builtin:qwen3.toml"
  std::string models;                              ///< what people call them, for `families` and the documentation's table
  /// Dialect or consumer -> which version of it was the judge, and of what. Not inherited by files that include this one.
  std::map<std::string, std::string> verified;
  std::vector<std::string> architectures;
  std::string model_type;                          ///< of config.json, what a rebuilt one says
  std::string when;                                ///< expression over the configuration, or empty
  std::map<std::string, LetterRule> letters;
  /// Word -> words of a configuration ("hf", "mcore") -> expression over that configuration.
  std::map<std::string, std::map<std::string, std::string>> conditions;
  /// Word -> words of a configuration -> expression over it and the layer's number `l`.
  std::map<std::string, std::map<std::string, std::string>> layer_kinds;
  Window window = Window::kUnsaid;
  std::map<std::string, std::string> mcore_flags;  ///< family facts for Megatron's arguments, e.g. qk_layernorm = true
  std::map<std::string, std::string> maxtext_flags;  ///< how MaxText scans (dialects/maxtext/layers.h): cycle and alone (formulas), remainder (true), names
  /// Megatron's argument -> dotted path of config.json that says the same in the same units, both ways; "!path": the opposite, true where absent.
  std::map<std::string, std::string> arguments;
  std::vector<std::string> buffers;                ///< patterns (fnmatch) of hub names without gradient: no moments, no masters
  std::vector<std::string> f32_islands;            ///< patterns of hub names that stay F32 when parameters are cast
  std::map<std::string, Spelling> spellings;       ///< by name; a hub tensor that a spelling does not name is as the rows have it
  std::string released;                            ///< the spelling with rows that is the released one; empty: the rows' own
  /// Where config.json keeps what the text model's letters and conditions read, the first that is there; empty = at the top
  /// (family/text_config.h).
  std::vector<std::string> text_config;
  std::optional<LanguageModel> language_model;     ///< of a family that includes one as a part
  /// Whose names the mcore column gives, the first by default; empty = Megatron-LM's own.
  std::vector<std::string> consumers;
  /// Consumer -> prefixes of the mcore column -> its own; the longest that fits counts.
  std::map<std::string, std::map<std::string, std::string>> consumer_prefixes;
  std::vector<std::string> without;                ///< dialects that have no such model, whatever the rows say
  std::vector<Group> groups;
  std::string text;                                ///< the file as it stands, for `families NAME`
  std::vector<std::string> included;               ///< built-in files that it starts from, and those that these start from

  /// True when [mcore] says this of the family.
  [[nodiscard]] bool States(const std::string& flag, std::string_view value = "true") const;
};

/// True when a hub name fits one of the patterns.
[[nodiscard]] bool FitsAny(const std::vector<std::string>& patterns, const std::string& name);

[[nodiscard]] Result<FamilyFile> ParseFamilyFile(std::string_view text, const std::string& path);
/// The families built into the binary, sorted by name.
[[nodiscard]] const std::vector<FamilyFile>& BuiltinFamilies();

}  // namespace crossdock::family
