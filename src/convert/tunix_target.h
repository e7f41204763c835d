// SPDX-License-Identifier: Apache-2.0
/// \file  A Tunix target: whose levels, settings and random streams it is written with.
///   --tunix-template DIR     a step (or run) of the trainer that is to load it: its levels, its arrays' form, its settings and random streams;
///                            counters are the source's. What is written must have exactly the leaves that the template has
///   the record               of a source that is a Tunix step, or a MaxText step that was converted from one
///   otherwise                the bare model and MaxText's optimizer, as supervised fine-tuning without clipping saves them; a notice says so
/// Errors: kUsage for a template that is no Tunix checkpoint; kUnsupported where it does not fit; those of maxtext's WriteHub.
#pragma once

#include "convert/source.h"
#include "crossdock/options.h"
#include "crossdock/result.h"
#include "dialects/dialect.h"

namespace crossdock::convert {

/// `target_options` as for a MaxText target. `carry`: array by array, without a family (target.h, CanReshard): the source is a step of MaxText's or Tunix's.
/// Layers stay as the source has them, or where it has neither form as the template; `--scan-layers` and `--no-scan-layers` say otherwise.
[[nodiscard]] Result<dialects::TargetState> ArrangeTunix(const Source& source, const ConvertOptions& options, dialects::TargetOptions target_options, bool carry);

}  // namespace crossdock::convert
