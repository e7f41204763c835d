// SPDX-License-Identifier: Apache-2.0
/// \file  What a pickle may name and what it may claim to call. Nothing is ever imported or called here; the refusals
/// keep a file that would act elsewhere from being taken for data, or carried on to the next reader.
/// Rules (FORMAT.md, 2):
///  - names in modules that reach the system or the interpreter (os, subprocess, sys, importlib, ...) are refused at sight;
///  - of builtins only plain types and harmless functions may be named, only plain types called;
///  - a call needs a function of the short list (tensor rebuilding, numpy arrays, collections) or a class: a name whose
///    last part starts with a capital after underscores. Classes are kept as inert Opaques.
/// Errors: kUnsafe with the full `module.name`.
#pragma once

#include <string_view>

#include "crossdock/result.h"

namespace crossdock::formats::pickle {

/// May `module.name` stand in a file as a reference?
[[nodiscard]] Status CheckNameable(std::string_view module, std::string_view name);
/// May it stand as the callee of REDUCE or NEWOBJ? Implies CheckNameable.
[[nodiscard]] Status CheckCallable(std::string_view module, std::string_view name);

/// Python 2's spelling of a module as Python 3's: `__builtin__` is builtins, `copy_reg` is copyreg.
[[nodiscard]] std::string_view ModernModule(std::string_view module);

}  // namespace crossdock::formats::pickle
