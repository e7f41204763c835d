// SPDX-License-Identifier: Apache-2.0
#include "formats/pickle/globals.h"

#include "result_matchers.h"

namespace crossdock::formats::pickle {
namespace {

using ::testing::HasSubstr;

struct Case {
  std::string_view module;
  std::string_view name;
  bool nameable;
  bool callable;
};
class Globals : public ::testing::TestWithParam<Case> {};

TEST_P(Globals, AreJudged) {
  const Case& c = GetParam();
  EXPECT_EQ(CheckNameable(c.module, c.name).has_value(), c.nameable) << c.module << "." << c.name;
  EXPECT_EQ(CheckCallable(c.module, c.name).has_value(), c.callable) << c.module << "." << c.name;
}

INSTANTIATE_TEST_SUITE_P(
    Table, Globals,
    ::testing::Values(
        Case{"collections", "OrderedDict", true, true}, Case{"argparse", "Namespace", true, true},
        Case{"torch._utils", "_rebuild_tensor_v2", true, true}, Case{"torch", "Size", true, true},
        Case{"megatron.core.transformer.enums", "AttnBackend", true, true}, Case{"a.b", "_Private", true, true},
        Case{"a.b", "Outer.Inner", true, true}, Case{"torch.nn.functional", "gelu", true, false},
        Case{"__builtin__", "max", true, false}, Case{"builtins", "set", true, true}, Case{"_codecs", "encode", true, true},
        Case{"_codecs", "decode", false, false}, Case{"builtins", "eval", false, false}, Case{"__builtin__", "getattr", false, false},
        Case{"os", "system", false, false}, Case{"os.path", "join", false, false}, Case{"posix", "system", false, false},
        Case{"nt", "system", false, false}, Case{"subprocess", "Popen", false, false}, Case{"sys", "exit", false, false},
        Case{"shutil", "rmtree", false, false}, Case{"importlib", "import_module", false, false},
        Case{"runpy", "_run_code", false, false}, Case{"pty", "spawn", false, false}, Case{"socket", "socket", false, false},
        Case{"ctypes", "CDLL", false, false}, Case{"operator", "attrgetter", false, false}, Case{"codecs", "encode", false, false},
        Case{"torch", "os.system", false, false}, Case{"torch", "load.__globals__", false, false},
        Case{"torch.hub", "Anything", false, false}, Case{"numpy.testing._private.utils", "runstring", false, false},
        Case{"types", "CodeType", false, false}, Case{"io", "FileIO", false, false}, Case{"io", "BytesIO", true, true},
        Case{"torch", "load", true, false}, Case{"a b", "C", false, false}, Case{"a", "", false, false}));

TEST(GlobalsMessage, ShowsTheFullNameEscaped) {
  EXPECT_THAT(CheckCallable("os", "system"), IsError(ErrorCode::kUnsafe, HasSubstr("`os.system`")));
  EXPECT_THAT(CheckNameable("os\x1b[2J", "system"), IsError(ErrorCode::kUnsafe, HasSubstr("\\x1b")));
}

}  // namespace
}  // namespace crossdock::formats::pickle
