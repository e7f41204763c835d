// SPDX-License-Identifier: Apache-2.0
/// \file  Machine: runs the opcodes of one pickle over a Graph; builds data and never calls anything.
/// On disk: FORMAT.md, 1 and 2. The input is read twice: first to learn which memo entries are ever used (Python's
/// pickler memoizes every object, and keeping them all would keep everything alive), then to build.
/// Invariant: the stack never falls below its innermost mark.
/// Errors: kCorrupt (truncated, stack underflow, unknown memo entry), kUnsafe (refused names and calls, too much
/// memory), kUnsupported (newer protocols, INST, OBJ, EXT, text PERSID, out-of-band buffers). All with path and offset.
/// Threads: one machine, one thread.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "formats/pickle/graph.h"
#include "formats/pickle/opcode.h"

namespace crossdock::formats::pickle {

/// Watches a pickle being read and takes parts out of it, so that they need no memory: see formats/dcp/metadata.h.
/// Node numbers are valid during the call only.
class Observer {
 public:
  virtual ~Observer() = default;
  /// `object` is about to get `state`. True: the state is not kept, the observer has collapsed the object.
  [[nodiscard]] virtual Result<bool> OnBuild(Graph& graph, NodeId object, NodeId state) = 0;
  /// A dict, which lies on the stack above `below` (the key it will be stored under; kNoNode when there is none), gets
  /// an item. True: consumed, not kept.
  [[nodiscard]] virtual Result<bool> OnSetItem(Graph& graph, NodeId below, NodeId key, NodeId value) = 0;
  /// As OnSetItem, for a list.
  [[nodiscard]] virtual Result<bool> OnAppend(Graph& graph, NodeId below, NodeId item) = 0;
};

class Machine {
 public:
  explicit Machine(Graph& graph, Observer* observer = nullptr) : graph_(graph), observer_(observer) {}

  /// Reads one pickle from the source's place; the source is left after its STOP.
  [[nodiscard]] Result<NodeId> Run(ByteSource& source);

 private:
  [[nodiscard]] Status FindUsedMemo(ByteSource& source);
  [[nodiscard]] Status Step(const Instruction& in);
  [[nodiscard]] Status PushScalar(const Instruction& in);
  [[nodiscard]] Status PushInteger(const Instruction& in);
  [[nodiscard]] Status PushText(const Instruction& in);
  [[nodiscard]] Status MakeContainer(const Instruction& in);
  [[nodiscard]] Status FillContainer(const Instruction& in);
  [[nodiscard]] Status UseMemo(const Instruction& in);
  [[nodiscard]] Status MakeObject(const Instruction& in);
  [[nodiscard]] Status Refuse(const Instruction& in) const;

  [[nodiscard]] Status PushGlobal(std::string_view module, std::string_view name);
  [[nodiscard]] Status Reduce(Opaque::Form form);
  [[nodiscard]] Status NewObjEx();
  [[nodiscard]] Status Build();
  [[nodiscard]] Status AppendTo(NodeId container, std::span<const NodeId> items);
  [[nodiscard]] Status SetItemsOf(NodeId container, std::span<const NodeId> items);
  [[nodiscard]] Status Put(std::int64_t index);
  void CollectIfUseful();

  void Push(NodeId node) { stack_.push_back(node); }
  [[nodiscard]] std::size_t available() const { return stack_.size() - (marks_.empty() ? 0 : marks_.back()); }
  [[nodiscard]] Status Need(std::size_t count) const;
  [[nodiscard]] NodeId Pop();                       ///< REQUIRES: available() > 0
  [[nodiscard]] Result<std::vector<NodeId>> PopToMark();
  [[nodiscard]] NodeId below_top() const;           ///< the node under the top one, kNoNode when there is none

  Graph& graph_;
  Observer* observer_;
  std::vector<NodeId> stack_;
  std::vector<std::size_t> marks_;                  // sizes of stack_ at each MARK
  std::unordered_map<std::int64_t, NodeId> memo_;   // used entries only; kNoNode until they are made
  std::int64_t memoized_ = 0;                       // by MEMOIZE, which numbers by counting
};

}  // namespace crossdock::formats::pickle
