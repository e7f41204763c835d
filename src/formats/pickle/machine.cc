// SPDX-License-Identifier: Apache-2.0
#include "formats/pickle/machine.h"

#include <charconv>

#include "base/check.h"
#include "formats/pickle/globals.h"
#include "formats/pickle/numbers.h"

namespace crossdock::formats::pickle {
namespace {

constexpr int kNewestProtocol = 5;

Error Corrupt(std::string what) { return MakeError(ErrorCode::kCorrupt, std::move(what)); }

Result<std::int64_t> MemoIndex(const Instruction& in) {
  if (in.op != Op::kGet && in.op != Op::kPut) return in.number;
  std::int64_t index = -1;
  const auto [end, error] = std::from_chars(in.text.data(), in.text.data() + in.text.size(), index);
  if (error != std::errc() || end != in.text.data() + in.text.size() || index < 0) {
    return Corrupt("a pickle has a malformed memo number").WithFound(Printable(in.text, 40));
  }
  return index;
}

bool IsGet(Op op) { return op == Op::kGet || op == Op::kBinGet || op == Op::kLongBinGet; }

}  // namespace

Result<NodeId> Machine::Run(ByteSource& source) {
  stack_.clear();
  marks_.clear();
  memo_.clear();
  memoized_ = 0;
  const std::int64_t start = source.offset();
  CROSSDOCK_RETURN_IF_ERROR(FindUsedMemo(source));
  source.Seek(start);
  InstructionReader reader(source);
  while (true) {
    CROSSDOCK_ASSIGN_OR_RETURN(const Instruction in, reader.Next());
    const Status status = in.op == Op::kStop ? Need(1) : Step(in);
    if (!status) {
      Error error = status.error();
      if (error.path.empty()) error.path = source.path();
      if (!error.offset) error.offset = source.InFile(in.offset);
      return error;
    }
    if (in.op == Op::kStop) return Pop();
    CollectIfUseful();
    CROSSDOCK_RETURN_IF_ERROR(graph_.CheckSize());
  }
}

Status Machine::FindUsedMemo(ByteSource& source) {
  InstructionReader reader(source);
  while (true) {
    CROSSDOCK_ASSIGN_OR_RETURN(const Instruction in, reader.Next());
    if (in.op == Op::kStop) return OkStatus();
    if (!IsGet(in.op)) continue;
    CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t index, MemoIndex(in));
    memo_.try_emplace(index, kNoNode);
  }
}

void Machine::CollectIfUseful() {
  if (!graph_.wants_collection()) return;
  std::vector<NodeId> kept;
  kept.reserve(memo_.size());
  for (const auto& [index, node] : memo_) {
    if (node != kNoNode) kept.push_back(node);
  }
  const std::span<const NodeId> roots[] = {stack_, kept};
  graph_.Collect(roots);
}

Status Machine::Step(const Instruction& in) {
  switch (in.op) {
    case Op::kProto:
      if (in.number <= kNewestProtocol) return OkStatus();
      return MakeError(ErrorCode::kUnsupported, "a pickle is of a newer protocol")
          .WithExpected("at most " + std::to_string(kNewestProtocol)).WithFound(std::to_string(in.number));
    case Op::kFrame: return OkStatus();  // a hint for buffering
    case Op::kMark: marks_.push_back(stack_.size()); return OkStatus();
    case Op::kPop:
      // As in CPython: POP directly above a mark drops the mark.
      if (available() == 0 && !marks_.empty()) {
        marks_.pop_back();
        return OkStatus();
      }
      CROSSDOCK_RETURN_IF_ERROR(Need(1));
      stack_.pop_back();
      return OkStatus();
    case Op::kPopMark: {
      CROSSDOCK_ASSIGN_OR_RETURN(const auto dropped, PopToMark());
      return OkStatus();
    }
    case Op::kDup:
      CROSSDOCK_RETURN_IF_ERROR(Need(1));
      Push(stack_.back());
      return OkStatus();
    case Op::kNone: case Op::kNewTrue: case Op::kNewFalse: case Op::kInt: case Op::kBinInt: case Op::kBinInt1:
    case Op::kBinInt2: case Op::kLong: case Op::kLong1: case Op::kLong4: case Op::kFloat: case Op::kBinFloat:
      return PushScalar(in);
    case Op::kString: case Op::kBinString: case Op::kShortBinString: case Op::kUnicode: case Op::kBinUnicode:
    case Op::kShortBinUnicode: case Op::kBinUnicode8: case Op::kBinBytes: case Op::kShortBinBytes: case Op::kBinBytes8:
    case Op::kByteArray8:
      return PushText(in);
    case Op::kEmptyDict: case Op::kEmptyList: case Op::kEmptyTuple: case Op::kEmptySet: case Op::kDict: case Op::kList:
    case Op::kTuple: case Op::kTuple1: case Op::kTuple2: case Op::kTuple3: case Op::kFrozenSet:
      return MakeContainer(in);
    case Op::kAppend: case Op::kAppends: case Op::kSetItem: case Op::kSetItems: case Op::kAddItems:
      return FillContainer(in);
    case Op::kGet: case Op::kBinGet: case Op::kLongBinGet: case Op::kPut: case Op::kBinPut: case Op::kLongBinPut:
    case Op::kMemoize:
      return UseMemo(in);
    case Op::kGlobal: case Op::kStackGlobal: case Op::kReduce: case Op::kNewObj: case Op::kNewObjEx: case Op::kBuild:
    case Op::kBinPersId:
      return MakeObject(in);
    case Op::kInst: case Op::kObj: case Op::kExt1: case Op::kExt2: case Op::kExt4: case Op::kPersId:
    case Op::kNextBuffer: case Op::kReadOnlyBuffer: case Op::kStop:
      return Refuse(in);
  }
  return Refuse(in);
}

Status Machine::PushScalar(const Instruction& in) {
  switch (in.op) {
    case Op::kNone: Push(Graph::null()); return OkStatus();
    case Op::kNewTrue: Push(Graph::boolean(true)); return OkStatus();
    case Op::kNewFalse: Push(Graph::boolean(false)); return OkStatus();
    case Op::kBinFloat: Push(graph_.AddFloat(in.real)); return OkStatus();
    case Op::kFloat: {
      CROSSDOCK_ASSIGN_OR_RETURN(const double value, ParseFloat(in.text));
      Push(graph_.AddFloat(value));
      return OkStatus();
    }
    default: return PushInteger(in);
  }
}

Status Machine::PushInteger(const Instruction& in) {
  if (in.op == Op::kBinInt || in.op == Op::kBinInt1 || in.op == Op::kBinInt2) {
    Push(graph_.AddInt(NodeKind::kInt, in.number));
    return OkStatus();
  }
  if (in.op == Op::kInt && (in.text == "00" || in.text == "01")) {  // booleans of protocols 0 and 1
    Push(Graph::boolean(in.text == "01"));
    return OkStatus();
  }
  std::string bytes(in.text);
  if (in.op == Op::kInt || in.op == Op::kLong) {
    CROSSDOCK_ASSIGN_OR_RETURN(bytes, DecimalToBytes(in.text));
  }
  std::int64_t value = 0;
  Push(BytesToInt64(bytes, value) ? graph_.AddInt(NodeKind::kInt, value)
                                  : graph_.AddText(NodeKind::kBigInt, std::move(bytes)));
  return OkStatus();
}

Status Machine::PushText(const Instruction& in) {
  const bool bytes = in.op == Op::kBinBytes || in.op == Op::kShortBinBytes || in.op == Op::kBinBytes8;
  if (bytes || in.op == Op::kByteArray8) {
    Push(graph_.AddText(bytes ? NodeKind::kBytes : NodeKind::kByteArray, std::string(in.text)));
    return OkStatus();
  }
  std::string text(in.text);
  if (in.op == Op::kString) {
    CROSSDOCK_ASSIGN_OR_RETURN(text, ParseQuoted(in.text));
  } else if (in.op == Op::kUnicode) {
    CROSSDOCK_ASSIGN_OR_RETURN(text, ParseRawUnicode(in.text));
  }
  const bool valid = IsUtf8(text);
  // Python 2's str held text and bytes alike; its users meant text where it is UTF-8.
  const bool may_be_bytes = in.op == Op::kString || in.op == Op::kBinString || in.op == Op::kShortBinString;
  if (!valid && !may_be_bytes) return Corrupt("a string in a pickle is not UTF-8").WithFound(Printable(text, 60));
  Push(graph_.AddText(valid ? NodeKind::kString : NodeKind::kBytes, std::move(text)));
  return OkStatus();
}

Status Machine::MakeContainer(const Instruction& in) {
  switch (in.op) {
    case Op::kEmptyDict: Push(graph_.AddRefs(NodeKind::kDict, {})); return OkStatus();
    case Op::kEmptyList: Push(graph_.AddRefs(NodeKind::kList, {})); return OkStatus();
    case Op::kEmptyTuple: Push(graph_.AddRefs(NodeKind::kTuple, {})); return OkStatus();
    case Op::kEmptySet: Push(graph_.AddRefs(NodeKind::kSet, {})); return OkStatus();
    case Op::kTuple1: case Op::kTuple2: case Op::kTuple3: {
      const std::size_t count = in.op == Op::kTuple1 ? 1U : in.op == Op::kTuple2 ? 2U : 3U;
      CROSSDOCK_RETURN_IF_ERROR(Need(count));
      std::vector<NodeId> items(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
      stack_.resize(stack_.size() - count);
      Push(graph_.AddRefs(NodeKind::kTuple, std::move(items)));
      return OkStatus();
    }
    default: break;
  }
  CROSSDOCK_ASSIGN_OR_RETURN(std::vector<NodeId> items, PopToMark());
  if (in.op == Op::kDict && items.size() % 2 != 0) return Corrupt("a dict in a pickle has a key without a value");
  const NodeKind kind = in.op == Op::kDict   ? NodeKind::kDict
                        : in.op == Op::kList  ? NodeKind::kList
                        : in.op == Op::kTuple ? NodeKind::kTuple
                                              : NodeKind::kFrozenSet;
  Push(graph_.AddRefs(kind, std::move(items)));
  return OkStatus();
}

Status Machine::FillContainer(const Instruction& in) {
  std::vector<NodeId> items;
  if (in.op == Op::kAppend || in.op == Op::kSetItem) {
    const std::size_t count = in.op == Op::kAppend ? 1U : 2U;
    CROSSDOCK_RETURN_IF_ERROR(Need(count + 1));
    items.assign(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
  } else {
    CROSSDOCK_ASSIGN_OR_RETURN(items, PopToMark());
    CROSSDOCK_RETURN_IF_ERROR(Need(1));
  }
  const NodeId container = stack_.back();
  if (in.op == Op::kSetItem || in.op == Op::kSetItems) return SetItemsOf(container, items);
  if (in.op == Op::kAddItems) {
    if (graph_.kind(container) != NodeKind::kSet) return Corrupt("a pickle adds set items to something else");
    for (NodeId item : items) graph_.Append(container, item);
    return OkStatus();
  }
  return AppendTo(container, items);
}

Status Machine::AppendTo(NodeId container, std::span<const NodeId> items) {
  NodeId list = container;
  if (graph_.kind(container) == NodeKind::kObject) list = graph_.PartContainer(container, kItems);
  if (graph_.kind(list) != NodeKind::kList) return Corrupt("a pickle appends to something that is no list");
  for (NodeId item : items) {
    if (observer_ != nullptr) {
      CROSSDOCK_ASSIGN_OR_RETURN(const bool consumed, observer_->OnAppend(graph_, below_top(), item));
      if (consumed) continue;
    }
    graph_.Append(list, item);
  }
  return OkStatus();
}

Status Machine::SetItemsOf(NodeId container, std::span<const NodeId> items) {
  NodeId dict = container;
  if (items.size() % 2 != 0) return Corrupt("a dict in a pickle has a key without a value");
  if (graph_.kind(container) == NodeKind::kObject) dict = graph_.PartContainer(container, kEntries);
  if (graph_.kind(dict) != NodeKind::kDict) return Corrupt("a pickle sets items of something that is no dict");
  for (std::size_t i = 0; i < items.size(); i += 2) {
    if (observer_ != nullptr) {
      CROSSDOCK_ASSIGN_OR_RETURN(const bool consumed,
                                 observer_->OnSetItem(graph_, below_top(), items[i], items[i + 1]));
      if (consumed) continue;
    }
    graph_.Append(dict, items[i]);
    graph_.Append(dict, items[i + 1]);
  }
  return OkStatus();
}

Status Machine::UseMemo(const Instruction& in) {
  if (in.op == Op::kMemoize) return Put(memoized_++);
  CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t index, MemoIndex(in));
  if (!IsGet(in.op)) return Put(index);
  const auto found = memo_.find(index);
  if (found == memo_.end() || found->second == kNoNode) return Corrupt("a pickle refers to memo entry " + std::to_string(index) + ", which is not there");
  Push(found->second);
  return OkStatus();
}

Status Machine::Put(std::int64_t index) {
  CROSSDOCK_RETURN_IF_ERROR(Need(1));
  if (const auto used = memo_.find(index); used != memo_.end()) used->second = stack_.back();
  return OkStatus();
}

Status Machine::MakeObject(const Instruction& in) {
  switch (in.op) {
    case Op::kGlobal: return PushGlobal(in.module, in.text);
    case Op::kStackGlobal: {
      CROSSDOCK_RETURN_IF_ERROR(Need(2));
      const std::string* name = graph_.as_string(Pop());
      const std::string* module = graph_.as_string(Pop());
      if (name == nullptr || module == nullptr) return Corrupt("a pickle names a class by something that is no string");
      return PushGlobal(*module, *name);
    }
    case Op::kReduce: return Reduce(Opaque::Form::kReduce);
    case Op::kNewObj: return Reduce(Opaque::Form::kNewObj);
    case Op::kNewObjEx: return NewObjEx();
    case Op::kBuild: return Build();
    default: break;
  }
  CROSSDOCK_RETURN_IF_ERROR(Need(1));
  const NodeId id = Pop();
  Push(graph_.AddRefs(NodeKind::kPersistentId, {id}));
  return OkStatus();
}

Status Machine::PushGlobal(std::string_view module, std::string_view name) {
  CROSSDOCK_RETURN_IF_ERROR(CheckNameable(module, name));
  // The text is copied before a node is added: the views may lie in a node.
  Push(graph_.AddText(NodeKind::kGlobal, std::string(ModernModule(module)) + "\n" + std::string(name)));
  return OkStatus();
}

Status Machine::Reduce(Opaque::Form form) {
  CROSSDOCK_RETURN_IF_ERROR(Need(2));
  const NodeId arguments = Pop();
  const NodeId callee = Pop();
  if (graph_.kind(callee) != NodeKind::kGlobal) {
    return MakeError(ErrorCode::kUnsafe, "a pickle calls something that is no class or function by name");
  }
  CROSSDOCK_RETURN_IF_ERROR(CheckCallable(graph_.module(callee), graph_.name(callee)));
  if (graph_.kind(arguments) != NodeKind::kTuple) return Corrupt("a pickle calls with arguments that are no tuple");
  Push(graph_.AddObject(form, callee, arguments));
  return OkStatus();
}

Status Machine::NewObjEx() {
  CROSSDOCK_RETURN_IF_ERROR(Need(3));
  const NodeId keywords = Pop();
  const NodeId arguments = Pop();
  Push(graph_.AddRefs(NodeKind::kTuple, {arguments, keywords}));
  return Reduce(Opaque::Form::kNewObjEx);
}

Status Machine::Build() {
  CROSSDOCK_RETURN_IF_ERROR(Need(2));
  const NodeId state = Pop();
  const NodeId object = stack_.back();
  if (graph_.kind(object) == NodeKind::kGlobal) {
    return MakeError(ErrorCode::kUnsafe, "a pickle sets attributes of `" + Printable(graph_.QualifiedName(object)) + "` itself");
  }
  if (graph_.kind(object) != NodeKind::kObject) return Corrupt("a pickle gives state to something that is no object");
  if (graph_.part(object, kState) != kNoNode) {
    return MakeError(ErrorCode::kUnsupported, "a pickle gives state to an object twice").WithFound(Printable(graph_.QualifiedName(object)));
  }
  if (observer_ != nullptr) {
    CROSSDOCK_ASSIGN_OR_RETURN(const bool consumed, observer_->OnBuild(graph_, object, state));
    if (consumed) return OkStatus();
  }
  graph_.SetPart(object, kState, state);
  return OkStatus();
}

Status Machine::Refuse(const Instruction& in) const {
  if (in.op == Op::kInst) CROSSDOCK_RETURN_IF_ERROR(CheckNameable(in.module, in.text));
  return MakeError(ErrorCode::kUnsupported, "a pickle uses the opcode " + DescribeOp(in.op) + ", which no checkpoint needs");
}

Status Machine::Need(std::size_t count) const {
  if (available() >= count) return OkStatus();
  return Corrupt("a pickle takes more from its stack than it put there");
}

NodeId Machine::Pop() {
  CROSSDOCK_CHECK(available() > 0);
  const NodeId top = stack_.back();
  stack_.pop_back();
  return top;
}

Result<std::vector<NodeId>> Machine::PopToMark() {
  if (marks_.empty()) return Corrupt("a pickle uses a mark that it did not set");
  const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
  std::vector<NodeId> items(first, stack_.end());
  stack_.erase(first, stack_.end());
  marks_.pop_back();
  return items;
}

NodeId Machine::below_top() const { return available() >= 2 ? stack_[stack_.size() - 2] : kNoNode; }

}  // namespace crossdock::formats::pickle
