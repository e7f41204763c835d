# SPDX-License-Identifier: Apache-2.0
"""Online save of the run itself: every rank writes its own part of a torch_dist iteration of Megatron-Core's."""

import os

from ._exporter import Saver, _one_of, _usage, options_of_run


class Checkpointer(Saver):
    """Saves the run itself, to be resumed by Megatron-Core: iterations of torch_dist with weights and Adam's state, each rank its own part of the final
    files. The tensor files and `.metadata` are, byte for byte, what `crossdock convert RUN OUT --to megatron --no-rng` makes of the run's
    checkpoint in the legacy form, in the run's layout. Nothing is gathered: neither on one rank, nor among the data-parallel ranks of a distributed optimizer.

    root: the directory of the run, in which `iter_%07d` and, when that is in place, latest_checkpointed_iteration.txt are made.
    reference: the model's Hugging Face directory, whose weights may be absent. layout: a Layout, and rank: the global rank, an int, or a RankPlace.
    optimizer: None, weights alone; "plain", state as Megatron's Float16Optimizer and FP32Optimizer read it; "distributed", as its distributed optimizer does
    (fully_reshardable). states: the names of the optimizer's tensors that this rank hands over, float32: `optimizer.param.<name>` (the master copy of
    the parameter that `tensors` calls <name>; where the parameter is float32 itself the plain form has none), `optimizer.exp_avg.<name>`
    and `optimizer.exp_avg_sq.<name>`; where data-parallel ranks divide them `[begin:end]` stands behind, elements of the row-major tensor.
    mtp: "none", the run has no layers of multi-token prediction; "keep", it has those of the reference: UnsupportedError where there are any.
    comm, mode, memory, threads, on_error, run_args: as of crossdock.Exporter. family, rules, local_layers, grouped_experts, vocab_divisor, padded_vocab,
    set, allow: as of crossdock.load_plan.
    """

    def __init__(
        self, root, reference, layout=None, rank=0, *, optimizer=None, states=(), mtp="keep", comm=None, mode="sync", memory="512MiB", threads=0,
        on_error="raise", family=None, rules=None, local_layers=False, grouped_experts=True, vocab_divisor=None, padded_vocab=None, set=None,
        run_args=None, allow=(),
    ):  # fmt: skip
        _one_of("optimizer", optimizer, (None, "plain", "distributed"))
        options = options_of_run(
            reference, layout, rank, mode=mode, on_error=on_error, memory=memory, threads=threads, family=family, rules=rules, local_layers=local_layers,
            grouped_experts=grouped_experts, vocab_divisor=vocab_divisor, padded_vocab=padded_vocab, set=set, run_args=run_args, mtp=mtp, allow=allow,
        )  # fmt: skip
        options.to, options.dst = "megatron", os.fsdecode(root)
        options.states, options.distributed_optimizer = list(states), optimizer == "distributed"
        if optimizer is None and options.states:
            raise _usage("states of an optimizer mean nothing without `optimizer`")
        super().__init__(options, comm, on_error)

    def save(self, iteration, tensors, *, common=b"", final=False, progress=None):
        """Saves; returns a Job. Collective.

        iteration: int, not negative. tensors: as of crossdock.Exporter.save, with those that `states` names. common: of rank 0, the bytes of common.pt as
        `torch.save` writes it: a dict with at least `iteration` and, with `optimizer`, the optimizer's parameter groups; needed then, else made
        from the reference. final, progress: as of crossdock.Exporter.save.
        """
        return self._save(iteration, tensors, final, progress, common)
