// SPDX-License-Identifier: Apache-2.0
#include "formats/pickle/reader.h"

#include "formats/pickle/expand.h"
#include "formats/pickle/machine.h"

namespace crossdock::formats::pickle {

Result<Value> ReadPickle(ByteSource& source, const Limits& limits) {
  Graph graph(limits.max_graph_bytes);
  Machine machine(graph);
  CROSSDOCK_ASSIGN_OR_RETURN(const NodeId root, machine.Run(source));
  Result<Value> value = Expand(graph, root, limits);
  if (!value && !source.path().empty()) return Error(value.error()).WithPath(source.path());
  return value;
}

Result<Value> ReadPickle(std::string_view bytes, const Limits& limits) {
  ByteSource source(bytes);
  return ReadPickle(source, limits);
}

}  // namespace crossdock::formats::pickle
