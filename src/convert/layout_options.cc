// SPDX-License-Identifier: Apache-2.0
#include "convert/layout_options.h"

namespace crossdock::convert {

layout::ParallelLayout LayoutOf(const LayoutOptions& options) {
  layout::ParallelLayout layout;
  layout.tp = options.tp;
  layout.pp = options.pp;
  layout.ep = options.ep;
  layout.etp = options.etp == options.tp ? 0 : options.etp;
  layout.encoder_tp = options.encoder_tp == options.tp ? 0 : options.encoder_tp;
  layout.pipeline_layers = options.pipeline_layers;
  layout.first_stage_layers = options.first_stage_layers;
  layout.last_stage_layers = options.last_stage_layers;
  layout.vpp = options.vpp;
  layout.layers_per_virtual_stage = options.layers_per_virtual_stage;
  layout.pipeline_layout = options.pipeline_layout;
  layout.account_for_embedding = options.account_for_embedding;
  layout.account_for_loss = options.account_for_loss;
  return layout;
}

bool AsksForLayout(const LayoutOptions& options) { return options.given && LayoutOf(options) != layout::ParallelLayout(); }

}  // namespace crossdock::convert
