// SPDX-License-Identifier: Apache-2.0
#include "formats/pickle/globals.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

namespace crossdock::formats::pickle {
namespace {

// Modules (with all below them) that no data needs and that known exploits use. Sorted for binary search.
constexpr auto kDeniedModules = std::to_array<std::string_view>({
    "_ctypes", "_operator", "_pickle", "_posixsubprocess", "_thread", "aiohttp", "ast", "asyncio", "bdb", "cProfile",
    "cffi", "cloudpickle", "code", "codecs", "codeop", "commands", "concurrent", "ctypes", "dill", "dis", "distutils",
    "doctest", "fileinput", "ftplib", "gc", "glob", "http", "httplib", "imp", "importlib", "inspect", "joblib",
    "linecache", "logging", "marshal", "mmap", "multiprocessing", "new", "nt", "ntpath", "nturl2path", "operator", "os",
    "pdb", "pickle", "pip", "pkg_resources", "pkgutil", "platform", "popen2", "posix", "posixpath", "profile", "pty",
    "pydoc", "requests", "resource", "rlcompleter", "runpy", "select", "setuptools", "shelve", "shlex", "shutil", "site",
    "smtplib", "socket", "socketserver", "sqlite3", "ssl", "subprocess", "sys", "sysconfig", "tarfile", "telnetlib",
    "tempfile", "test", "threading", "timeit", "trace", "traceback", "unittest", "urllib", "urllib2", "venv", "weakref",
    "webbrowser", "xmlrpc", "zipfile", "zipimport",
});

constexpr auto kDeniedInnerModules = std::to_array<std::string_view>({
    "numpy.distutils", "numpy.f2py", "numpy.testing", "torch._dynamo", "torch._inductor", "torch.hub", "torch.jit",
    "torch.multiprocessing", "torch.package", "torch.utils.cpp_extension", "torch.utils.collect_env",
});

constexpr auto kBuiltinTypes = std::to_array<std::string_view>({
    "bool", "bytearray", "bytes", "complex", "dict", "float", "frozenset", "int", "list", "long", "object", "range",
    "set", "slice", "str", "tuple", "unicode", "xrange",
});

/// Functions that somebody may keep as a setting (an activation, a reduction) and that do no harm anywhere.
constexpr auto kBuiltinFunctions = std::to_array<std::string_view>({
    "Ellipsis", "NotImplemented", "abs", "all", "any", "divmod", "enumerate", "filter", "hash", "len", "map", "max",
    "min", "pow", "repr", "reversed", "round", "sorted", "sum", "type", "zip",
});

constexpr auto kCallableFunctions = std::to_array<std::string_view>({
    "_codecs.encode", "collections.defaultdict", "collections.deque", "copyreg._reconstructor", "datetime.date",
    "datetime.datetime", "datetime.time", "datetime.timedelta", "datetime.timezone", "functools.partial",
    "numpy._core.multiarray._reconstruct", "numpy._core.multiarray.scalar", "numpy._core.numeric._frombuffer",
    "numpy.core.multiarray._reconstruct", "numpy.core.multiarray.scalar", "numpy.core.numeric._frombuffer",
    "numpy.dtype", "numpy.ndarray", "numpy.random._pickle.__bit_generator_ctor",
    "numpy.random._pickle.__generator_ctor", "numpy.random._pickle.__randomstate_ctor", "torch._tensor._rebuild_from_type_v2",
    "torch.device", "torch.serialization._get_layout",
});

static_assert(std::is_sorted(kDeniedModules.begin(), kDeniedModules.end()));
static_assert(std::is_sorted(kBuiltinTypes.begin(), kBuiltinTypes.end()));
static_assert(std::is_sorted(kBuiltinFunctions.begin(), kBuiltinFunctions.end()));
static_assert(std::is_sorted(kCallableFunctions.begin(), kCallableFunctions.end()));

template <std::size_t N>
bool Contains(const std::array<std::string_view, N>& sorted, std::string_view text) {
  return std::binary_search(sorted.begin(), sorted.end(), text);
}

bool IsIdentifierPath(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    const auto u = static_cast<unsigned char>(c);
    return std::isalnum(u) != 0 || c == '_' || c == '.' || u >= 0x80;
  });
}

std::string_view LastPart(std::string_view dotted) {
  const std::size_t dot = dotted.rfind('.');
  return dot == std::string_view::npos ? dotted : dotted.substr(dot + 1);
}

bool LooksLikeClass(std::string_view name) {
  std::string_view last = LastPart(name);
  while (!last.empty() && last.front() == '_') last.remove_prefix(1);
  return !last.empty() && last.front() >= 'A' && last.front() <= 'Z';
}

/// `a.b.c` names something inside `a`: each step must be harmless, or `torch` + `os.system` would get through.
bool HasDeniedPart(std::string_view name) {
  while (!name.empty()) {
    const std::size_t dot = name.find('.');
    const std::string_view part = name.substr(0, dot);
    const bool dunder = part.size() > 4 && part.substr(0, 2) == "__" && part.substr(part.size() - 2) == "__";
    if (dunder || (dot != std::string_view::npos && Contains(kDeniedModules, part))) return true;
    if (dot == std::string_view::npos) return false;
    name.remove_prefix(dot + 1);
  }
  return true;  // an empty part
}

bool IsDeniedModule(std::string_view module) {
  if (Contains(kDeniedModules, module.substr(0, module.find('.')))) return true;
  return std::any_of(kDeniedInnerModules.begin(), kDeniedInnerModules.end(), [&](std::string_view denied) {
    return module.substr(0, denied.size()) == denied && (module.size() == denied.size() || module[denied.size()] == '.');
  });
}

bool IsNameable(std::string_view module, std::string_view name) {
  if (!IsIdentifierPath(module) || !IsIdentifierPath(name)) return false;
  if (IsDeniedModule(module) || HasDeniedPart(name)) return false;
  if (module == "builtins") {
    return Contains(kBuiltinTypes, name) || Contains(kBuiltinFunctions, name) || LooksLikeClass(name);
  }
  if (module == "_codecs") return name == "encode";
  if (module == "io" || module == "_io") return name == "BytesIO" || name == "StringIO";
  if (module == "types") return name == "SimpleNamespace" || name == "MappingProxyType" || name == "NoneType";
  if (module == "copyreg") return name == "_reconstructor";
  return true;
}

bool IsCallable(std::string_view module, std::string_view name) {
  if (module == "builtins") return Contains(kBuiltinTypes, name) || LooksLikeClass(name);
  if (module == "torch._utils" && name.substr(0, 9) == "_rebuild_") return true;
  if (LooksLikeClass(name)) return true;
  return Contains(kCallableFunctions, std::string(module) + "." + std::string(name));
}

Error Refused(std::string_view verb, std::string_view module, std::string_view name) {
  return MakeError(ErrorCode::kUnsafe, "a pickle " + std::string(verb) + " `" +
                                           Printable(std::string(module) + "." + std::string(name)) + "`")
      .WithExpected("plain data, tensors and classes")
      .WithHint("do not load this file anywhere; if you trust its maker, have it saved again as plain data");
}

}  // namespace

std::string_view ModernModule(std::string_view module) {
  if (module == "__builtin__") return "builtins";
  if (module == "copy_reg") return "copyreg";
  return module;
}

Status CheckNameable(std::string_view module, std::string_view name) {
  if (IsNameable(ModernModule(module), name)) return OkStatus();
  return Refused("names", module, name);
}

Status CheckCallable(std::string_view module, std::string_view name) {
  CROSSDOCK_RETURN_IF_ERROR(CheckNameable(module, name));
  if (IsCallable(ModernModule(module), name)) return OkStatus();
  return Refused("calls", module, name);
}

}  // namespace crossdock::formats::pickle
