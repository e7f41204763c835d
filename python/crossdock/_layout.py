# SPDX-License-Identifier: Apache-2.0
"""How a model is divided among ranks, in Megatron-Core's words."""

import collections

from . import _core

RankPlace = collections.namedtuple("RankPlace", "tensor stage expert expert_tensor", defaults=(0, 0, 0, 0))
RankPlace.__doc__ = """Where a rank stands, counted from 0: tensor-parallel rank, pipeline stage, expert-parallel rank, tensor rank within an expert."""


class Layout:
    """The sizes of a parallel layout; the words and their meaning are those of `crossdock convert --tp ...`.

    tp, pp, ep: ranks of tensor, pipeline and expert parallelism. etp: tensor ranks of an expert, tp where None. encoder_tp: of a vision
    tower, tp where None. vpp: model chunks of a stage (virtual pipeline stages), or layers_per_virtual_stage. How layers go to stages:
    evenly, or pipeline_layers (a list, one number a stage), or first_stage_layers and last_stage_layers, or pipeline_layout (Megatron's
    string, "Et*3|t*2L"); account_for_embedding and account_for_loss count them as layers.
    cp: ranks of context parallelism; world_size: all ranks of the run, 0 for the fewest on which the layout is whole. They only tell
    where a rank stands.
    """

    __slots__ = (
        "tp", "pp", "ep", "etp", "encoder_tp", "vpp", "layers_per_virtual_stage", "pipeline_layers", "first_stage_layers",
        "last_stage_layers", "pipeline_layout", "account_for_embedding", "account_for_loss", "cp", "world_size",
    )  # fmt: skip

    def __init__(
        self, tp=1, pp=1, ep=1, etp=None, *, encoder_tp=None, vpp=1, layers_per_virtual_stage=None, pipeline_layers=None,
        first_stage_layers=None, last_stage_layers=None, pipeline_layout=None, account_for_embedding=False, account_for_loss=False,
        cp=1, world_size=0,
    ):  # fmt: skip
        self.tp, self.pp, self.ep, self.etp, self.encoder_tp, self.vpp = tp, pp, ep, etp, encoder_tp, vpp
        self.layers_per_virtual_stage = layers_per_virtual_stage
        self.pipeline_layers = pipeline_layers
        self.first_stage_layers, self.last_stage_layers = first_stage_layers, last_stage_layers
        self.pipeline_layout = pipeline_layout
        self.account_for_embedding, self.account_for_loss = account_for_embedding, account_for_loss
        self.cp, self.world_size = cp, world_size

    def __repr__(self):
        default = Layout()
        given = (f"{name}={getattr(self, name)!r}" for name in self.__slots__ if getattr(self, name) != getattr(default, name))
        return f"Layout({', '.join(given)})"

    def place(self, rank):
        """The RankPlace of a global rank, an int, in Megatron-Core's default order tp-cp-ep-dp-pp: tensor ranks count fastest, stages
        slowest; experts count their tensor ranks, then expert ranks. UsageError for a rank outside the world, and for a world that the
        layout does not divide."""
        return RankPlace(*_core.place_of_rank(self._options(), rank, self.world_size, self.cp))

    def _options(self):
        options = _core.LayoutOptions()
        for name in self.__slots__[:-2]:
            value = getattr(self, name)
            if value is not None:
                setattr(options, name, list(value) if name == "pipeline_layers" else value)
        options.given = True
        return options
