// SPDX-License-Identifier: Apache-2.0
/// \file  A Megatron checkpoint of any age, seen by torch_dist's global keys: everything after it (inventory, hub, resharding)
/// knows one form only. What is stored otherwise is put together by expressions over the source's entries.
/// Invariants: catalog.entries are sorted and exprs has one expression for each; where an entry is stored as it is seen, it
/// keeps its chunks. A plain torch_dist is seen as it is: `identity`, and nothing is copied.
/// Errors: kCorrupt for parts that do not fit together, kIncomplete for missing ones, kUnsupported for what is no known form.
/// Threads: functions are pure but for `load`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "dialects/dialect.h"

namespace crossdock::dialects::mcore {

/// Reads one of a catalog's objects.
using ObjectLoader = std::function<Result<Value>(const ObjectRef&)>;

struct ViewOptions {
  bool no_optim = false;               ///< the optimizer's state will be left out: it is not put together
  ObjectLoader load;                   ///< for what stands beside flat buckets; without it they are not read
};

struct GlobalView {
  bool identity = true;                ///< the source's own catalog is the view; the members below are empty
  Catalog catalog;
  std::vector<expr::Expr> exprs;       ///< one an entry of `catalog`, over entries of the source
  std::vector<std::string> notices;
  std::vector<LeftOut> left_out;
  std::vector<TiedPair> copies;        ///< stored twice and seen once: entries of the source whose data must be equal
  std::vector<TiedPair> repeated;      ///< seen twice as stored twice, but in parts: entries of the source whose data must be equal
  std::string optimizer_refusal;       ///< why optimizer state that is stored is not seen; see HubState
  bool prove_masters = false;          ///< the order of the optimizer's state was computed: its masters must be compared before it is carried

  /// The catalog that is seen. REQUIRES: `source` is the one the view was made of; it must outlive the result.
  [[nodiscard]] const Catalog& Seen(const Catalog& source) const { return identity ? source : catalog; }
  /// An expression over entries of the seen catalog as one over entries of the source.
  [[nodiscard]] Result<expr::Expr> OverSource(const expr::Expr& seen) const;
  /// The source's entry that is seen as entry `seen`, as it is stored; -1 where it is put together or -1 itself.
  [[nodiscard]] std::int32_t StoredEntry(std::int32_t seen) const;
};
[[nodiscard]] Result<GlobalView> MakeGlobalView(const Catalog& source, const ViewOptions& options);

}  // namespace crossdock::dialects::mcore
