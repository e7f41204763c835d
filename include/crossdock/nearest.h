// SPDX-License-Identifier: Apache-2.0
/// \file  "Did you mean": the known word nearest to a misspelt one.
/// Errors: none. Threads: pure.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace crossdock {

/// Typing errors between two words: letters changed, left out, put in, or two neighbours exchanged. Hyphen and
/// underscore are the same letter, and so are a capital and its small one.
[[nodiscard]] std::size_t TypingErrors(std::string_view a, std::string_view b);

/// The first of `known` with the fewest typing errors, or empty when none is near: one error is forgiven in words of up to
/// four letters, two in longer ones, three from twelve letters on; a word that keeps none of its letters is another word.
[[nodiscard]] std::string_view Nearest(std::string_view word, std::span<const std::string_view> known);

/// "did you mean `X`?", or empty when nothing is near.
[[nodiscard]] std::string DidYouMean(std::string_view word, std::span<const std::string_view> known);

}  // namespace crossdock
