// SPDX-License-Identifier: Apache-2.0
// The Orbax reader and writer with the engine between them, as a program, so that tests in Python can put the real Orbax at
// either end:
//   orbax_tool dump SOURCE FILE.safetensors [--memory BYTES]
//   orbax_tool copy SOURCE TARGET [--memory BYTES] [--rows N] [--flat] [--directories] [--zarr2] [--zstd LEVEL] [--numpy] [--handler PATH]
//   orbax_tool tree . TARGET --rows KEYS --memory NODE_BYTES: an OCDBT database of that many keys in nodes of about that size
// `dump` prints what the catalog says beside its tensors, as JSON. `copy` cuts chunks of N rows; --numpy calls every leaf np.ndarray.
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "execute/executor.h"
#include "formats/ocdbt/tree_writer.h"
#include "formats/orbax/orbax.h"
#include "formats/safetensors/safetensors.h"
#include "plan/planner.h"

namespace crossdock {
namespace {

struct Words {
  std::string verb, source, target, handler;
  std::int64_t memory = std::int64_t{64} << 20U;
  std::int64_t rows = 0, zstd = 0;
  bool flat = false, directories = false, zarr2 = false, numpy = false;
};

Words Parse(const std::vector<std::string>& all) {
  Words out;
  std::vector<std::string> places;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto value = [&] { return i + 1 < all.size() ? all[++i] : std::string(); };
    const auto number = [&](std::int64_t& into) {
      const std::string text = value();
      std::from_chars(text.data(), text.data() + text.size(), into);
    };
    if (all[i] == "--memory") {
      number(out.memory);
    } else if (all[i] == "--rows") {
      number(out.rows);
    } else if (all[i] == "--zstd") {
      number(out.zstd);
    } else if (all[i] == "--handler") {
      out.handler = value();
    } else if (all[i].starts_with("--")) {
      out.flat = out.flat || all[i] == "--flat";
      out.directories = out.directories || all[i] == "--directories";
      out.zarr2 = out.zarr2 || all[i] == "--zarr2";
      out.numpy = out.numpy || all[i] == "--numpy";
    } else {
      places.push_back(all[i]);
    }
  }
  if (places.size() != 3) {
    std::fputs("usage: orbax_tool dump|copy SOURCE TARGET, orbax_tool tree . TARGET\n", stderr);
    std::exit(2);
  }
  out.verb = places[0];
  out.source = places[1];
  out.target = places[2];
  return out;
}

std::vector<Chunk> ChunksOf(const Shape& shape, std::int64_t rows) {
  std::vector<Chunk> chunks;
  const std::int64_t all = shape.empty() ? 1 : shape[0];
  const std::int64_t step = rows > 0 && !shape.empty() ? std::min(rows, all) : all;
  for (std::int64_t at = 0; at < all; at += step) {
    Chunk chunk;
    chunk.box = Box::Whole(shape);
    if (!shape.empty()) {
      chunk.box.offsets[0] = at;
      chunk.box.sizes[0] = std::min(step, all - at);
    }
    chunks.push_back(chunk);
  }
  return chunks;
}

void SayHow(const Words& words, Catalog& target) {
  Value about = target.objects["orbax"];
  if (words.flat) about.Set("item", "");
  if (!words.flat && about.GetString("item").value_or("").empty()) about.Set("item", "items");
  about.Set("ocdbt", !words.directories);
  about.Set("zarr3", !words.zarr2);
  about.Set("zstd_level", words.zstd);
  if (!words.handler.empty()) about.Set("handler", words.handler);
  target.objects["orbax"] = about;
  if (!words.numpy) return;
  for (Value& row : *target.objects["tree"].mutable_sequence()) {
    if (row.GetString("value_type") == "jax.Array") row.Set("value_type", "np.ndarray");
  }
}

/// Keys key/0 ... with their own names as values, every third one in a data file.
Status WriteTree(io::Storage& storage, const Words& words) {
  namespace ocdbt = formats::ocdbt;
  std::set<std::string> keys;
  for (std::int64_t i = 0; i < words.rows; ++i) keys.insert("key." + std::to_string(i % 7) + "/" + std::to_string(i));
  const std::vector<std::string> files = {"d/values"};
  std::string nodes, values;
  ocdbt::TreeOptions options;
  options.node_file = "d/nodes";
  options.node_bytes = words.memory;
  ocdbt::TreeWriter tree(files, options, [&](std::string_view record) {
    nodes += record;
    return OkStatus();
  });
  int number = 0;
  for (const std::string& key : keys) {
    if (number++ % 3 != 0) {
      CROSSDOCK_RETURN_IF_ERROR(tree.AddInline(key, key));
      continue;
    }
    CROSSDOCK_RETURN_IF_ERROR(tree.Add(key, {0, static_cast<std::int64_t>(values.size()), static_cast<std::int64_t>(key.size())}));
    values += key;
  }
  CROSSDOCK_ASSIGN_OR_RETURN(ocdbt::Root root, tree.Finish());
  std::printf("{\"height\": %d}\n", root.height);
  ocdbt::Manifest manifest;
  manifest.newest = std::move(root);
  CROSSDOCK_RETURN_IF_ERROR(io::MakeDirs(storage, words.target + "/d"));
  CROSSDOCK_RETURN_IF_ERROR(io::WriteSmallFile(storage, words.target + "/d/nodes", nodes));
  CROSSDOCK_RETURN_IF_ERROR(io::WriteSmallFile(storage, words.target + "/d/values", values));
  return io::WriteSmallFile(storage, words.target + "/manifest.ocdbt", ocdbt::WriteManifest(manifest));
}

Status Run(const Words& words) {
  const auto storage = io::MakeLocalStorage();
  if (words.verb == "tree") return WriteTree(*storage, words);
  CROSSDOCK_ASSIGN_OR_RETURN(const auto reader, formats::orbax::OpenOrbax(*storage, words.source));
  const Catalog& source = reader->catalog();
  const bool dump = words.verb == "dump";
  Catalog target;
  target.objects = source.objects;
  std::vector<expr::Expr> exprs;
  for (std::size_t i = 0; i < source.entries.size(); ++i) {
    const Entry& entry = source.entries[i];
    target.entries.push_back({entry.name, entry.slot, entry.dtype, entry.shape, ChunksOf(entry.shape, dump ? 0 : words.rows)});
    exprs.push_back(expr::Leaf(static_cast<int>(i), entry.dtype, entry.shape));
  }
  if (!dump) SayHow(words, target);
  if (dump) target.objects.clear();
  const std::string dir = dump ? io::ParentPath(words.target) : words.target;
  formats::safetensors::WriterOptions file;
  file.stem = io::BaseName(words.target);
  if (file.stem.ends_with(".safetensors")) file.stem.resize(file.stem.size() - 12);
  const auto writer = dump ? formats::safetensors::MakeSafetensorsWriter(file) : formats::orbax::MakeOrbaxWriter();
  CROSSDOCK_ASSIGN_OR_RETURN(formats::Placement placement, writer->LayOut(std::move(target)));
  plan::PlanOptions plan_options;
  plan_options.memory = words.memory;
  plan_options.threads = 2;
  plan_options.contiguous_outputs = placement.wants_crc32;
  CROSSDOCK_ASSIGN_OR_RETURN(const plan::Plan plan, plan::MakePlan(source, placement.catalog, exprs, plan_options));
  CROSSDOCK_RETURN_IF_ERROR(io::MakeDirs(*storage, dir));
  execute::ExecuteOptions options;
  options.memory = words.memory;
  options.threads = 2;
  CROSSDOCK_ASSIGN_OR_RETURN(const execute::ExecuteReport report, execute::Execute(plan, *storage, *reader, *storage, dir, placement, placement.frames, *writer, options));
  execute::TakePlaces(report, &placement.catalog);
  CROSSDOCK_RETURN_IF_ERROR(writer->WriteMetadata(placement.catalog, *storage, dir));
  CROSSDOCK_RETURN_IF_ERROR(io::RemoveFileIfPresent(*storage, io::JoinPath(dir, ".crossdock-journal")));
  Value out = Value::MakeDict();
  for (const auto& [name, value] : source.objects) out.Set(name, value);
  out.Set("step", source.step ? Value(*source.step) : Value());
  out.Set("peak_buffer_bytes", report.peak_buffer_bytes);
  std::int64_t encoded = 0;
  for (const Entry& entry : source.entries) {
    for (const Chunk& chunk : entry.chunks) encoded += chunk.encoding == ChunkEncoding::kEncoded ? 1 : 0;
  }
  out.Set("encoded_chunks", encoded);
  ValueList notices;
  for (const std::string& notice : source.notices) notices.emplace_back(notice);
  out.Set("notices", Value::MakeList(std::move(notices)));
  std::puts(ToJson(out, 0).c_str());
  return OkStatus();
}

}  // namespace
}  // namespace crossdock

int main(int argc, char** argv) {
  const auto done = crossdock::Run(crossdock::Parse({argv + 1, argv + argc}));
  if (done) return 0;
  std::fprintf(stderr, "error: %s\n", done.error().ToString().c_str());
  return crossdock::ExitStatus(done.error().code);
}
