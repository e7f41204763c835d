// SPDX-License-Identifier: Apache-2.0
/// \file  --mtp template: layers of multi-token prediction that the source lacks are those of the template, which trainers that drop
/// them cannot give back. The template's files are then read beside the source's own.
/// Errors: kUsage without a template, for a family without such layers, and where the template is of other sizes; kIncomplete where it
/// has none of them. Threads: as the source.
#pragma once

#include "convert/source.h"

namespace crossdock::convert {

/// Adds the template's layers to the hub, the template's files to the catalog of the reader. Nothing but a notice where the source has
/// such layers itself. REQUIRES: the hub is read.
[[nodiscard]] Status TakeMtpOfTemplate(const SourceRequest& request, Source* source);

}  // namespace crossdock::convert
