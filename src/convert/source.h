// SPDX-License-Identifier: Apache-2.0
/// \file  A source that is open and understood: recognised, its catalog read, its tensors as hub tensors.
/// Errors: those of formats/registry.h and of the dialects; kUsage for an unknown --family. Tensor data is read only by
/// CheckTiedPair.
/// Ownership: a Source owns its reader and the user's rule file; its HubState points into both. It is not copied.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "crossdock/options.h"
#include "crossdock/result.h"
#include "dialects/dialect.h"
#include "dialects/mcore/global_view.h"
#include "dialects/tunix/view.h"
#include "formats/format.h"
#include "formats/registry.h"
#include "io/storage.h"

namespace crossdock::convert {

/// What --hf-template names: configuration, order of tensors and side files; weights need not be there.
struct Template {
  std::string dir;
  bool file_alone = false;                               ///< config.json was named, and the directory is where it happens to lie
  std::optional<family::ModelConfig> config;
  std::vector<std::string> order;
  std::map<std::string, Shape> shapes;                   ///< of the weights, where ReadShapes was asked for them
  std::vector<SideFile> side_files;
};

struct SourceRequest {
  std::string path;
  std::optional<std::string> from;
  std::optional<StepChoice> step;
  std::optional<std::string> family, rules, hf_template;
  std::vector<std::pair<std::string, std::string>> set_args;  ///< --set: of a MaxText source, what it does not store
  std::optional<int> scan_axis;                          ///< --scan-axis, of a MaxText source
  std::optional<std::string> lora_base;                  ///< --lora-base: what the source's adapters are merged into
  bool no_optim = false;
  bool drop_mtp = false;
  bool mtp_of_template = false;
  std::optional<DType> dequantized;                      ///< --dtype: what quantized weights are read as, at once
  std::vector<std::string> keep_dtype;                   ///< but for these
  std::vector<std::string> allow;
  bool allow_missing = false;                            ///< the second side of a comparison
};

/// What Muon's momentum is on both sides (momentum.h): "ema", "sum", "" unknown.
struct Momentum {
  std::string source, target;
  bool said_of_source = false, said_of_target = false;   ///< by --muon-momentum
  std::optional<double> beta = {};
  double factor = 1;                                     ///< what the momentum is multiplied by
  bool exact = true;
  std::int64_t scaled = 0;                               ///< tensors
};

struct Source {
  std::string label;                                     ///< the path as the user gave it
  io::Storage* storage = nullptr;
  formats::Found found;
  std::string also_read;                                 ///< another checkpoint that takes part: LoRA's adapters, whose base `found` is then
  std::unique_ptr<formats::CheckpointReader> reader;
  std::unique_ptr<family::FamilyFile> own_rules;         ///< --rules
  std::optional<Template> reference;                     ///< --hf-template
  std::optional<dialects::mcore::GlobalView> view;       ///< of a Megatron source; made by ReadSourceHub before the hub
  std::optional<dialects::tunix::View> tunix;            ///< of a Tunix source likewise
  dialects::HubState hub;
  std::optional<Momentum> momentum;                      ///< once it is settled; of sources with Muon's state

  /// The catalog by its meaning: the reader's own, or what a Megatron or Tunix source is seen as.
  [[nodiscard]] const Catalog& seen() const { return tunix ? tunix->catalog : view ? view->Seen(reader->catalog()) : reader->catalog(); }
};

[[nodiscard]] Result<Template> ReadTemplate(io::Storage& storage, const std::string& path);

/// The family that --family or --rules names, or null; a file of the user's goes to `source`, which owns it.
[[nodiscard]] Result<const family::FamilyFile*> WantedFamily(const SourceRequest& request, Source* source);

/// Fills `shapes` from the headers of the template's weights; leaves it empty where they are not there or cannot be read: what only
/// they can tell is then refused where it matters.
void ReadShapes(io::Storage& storage, Template* reference);

/// Recognises and opens; the hub is not read yet.
[[nodiscard]] Result<Source> OpenSource(io::Storage& storage, const SourceRequest& request);
/// Of a Tunix source: takes the trainer's levels off, and says in the hub what can be said without a family. Does nothing for others and
/// for those that were seen already.
[[nodiscard]] Status SeeTunix(bool no_optim, Source* source);
/// Fills `source->hub`. Apart from OpenSource, as `inspect` and resharding can do without.
[[nodiscard]] Status ReadSourceHub(const SourceRequest& request, Source* source);
/// Both.
[[nodiscard]] Result<Source> OpenAndRead(io::Storage& storage, const SourceRequest& request);

/// Where config.json says that head and embedding are tied and the file holds both, they must be equal, for only
/// one of them will be carried. So must the copies that a family declares. Reads both in tiles. kCorrupt names the first element that differs.
[[nodiscard]] Status CheckTiedPair(const Source& source, std::int64_t memory);

/// Removes everything but parameters from the hub and says so in left_out.
void DropOptimizer(dialects::HubState* hub);

/// A parameter without optimizer state (it was frozen) is a notice; one with one moment but not the other is refused.
[[nodiscard]] Status CheckMoments(dialects::HubState* hub);

/// --allow missing-optimizer: parameters without optimizer state get a master copy of themselves and moments of zero, as
/// a trainer would begin with. Says so in the notices. Does nothing when the hub has no optimizer state at all.
[[nodiscard]] Status FillMissingMoments(dialects::HubState* hub);

[[nodiscard]] std::int64_t BytesOf(const dialects::HubTensor& tensor);

}  // namespace crossdock::convert
