# SPDX-License-Identifier: Apache-2.0
"""A checkpoint manager for Tunix's trainers that writes MaxText's layout, STEP/items.

The interface is that of `tunix.sft.checkpoint_manager.CheckpointManager` (google-tunix 0.1.7); Orbax's CheckpointManager below decides when to
save, what to keep, and writes in the background. What is moved where says `_levels`; what MaxText's tree has no place for, and is small, goes
by value into the step's custom metadata, under `crossdock.tunix_levels`, from where `crossdock convert STEP OUT --to tunix` takes it too.
"""

import contextlib
import logging
import os

from ..errors import UsageError
from . import _levels
from ._nnx import model_parts, nested, optimizer_parts, trained, value_of
from ._record import constants, levels_record, recorded
from ._restore import ITEMS, PARAMS, STATE, restore

log = logging.getLogger("crossdock")

_OLDER = "custom_metadata"
_BYTES = 2 << 30       # of a data file and of a chunk at most, as MaxText writes
_SECONDS = 180         # between two saves, where nothing else is said: Tunix's default
_KEPT = 3


class MaxTextLayoutCheckpointManager:
    """Saves and restores a Tunix trainer's state in the layout of MaxText's own checkpoints.

    root_directory: where the steps are, made if need be; None switches the manager off, as Tunix's. options: orbax.checkpoint's
    CheckpointManagerOptions, or Tunix's own options object; None: at most one save in 180 s, the newest three kept.
    scan_layers: what MaxText shall be told; None: what the model's `config` says, or else the names of its layers.
    skip_checkpointing: nothing is read and nothing written, whatever is at `root_directory`. use_ocdbt, use_zarr3: how arrays are stored;
    None: both, but neither on Pathways, whose proxy can write neither.

    Restores steps of either layout, from whichever trainer: a run that began with Tunix's own manager goes on, and its next save is in MaxText's layout.
    Random streams that are larger than a few numbers are not saved, of the other variables only those that last: no caches, no intermediates.
    Saving is asynchronous where the options say so; arrays are copied before `save` returns. Not safe from several threads. Close it, or use `with`.
    Needs jax, flax and orbax-checkpoint.
    """

    def __init__(self, root_directory=None, options=None, *, scan_layers=None, skip_checkpointing=False, use_ocdbt=None, use_zarr3=None):
        self.root_directory = None if root_directory is None else os.fspath(root_directory)
        self.scan_layers, self.skip_checkpointing = scan_layers, bool(skip_checkpointing)
        self._orbax = None
        if self.root_directory is None or self.skip_checkpointing:
            return
        import orbax.checkpoint as ocp

        pathways = "proxy" in os.getenv("JAX_PLATFORMS", "")
        how = {"use_ocdbt": not pathways if use_ocdbt is None else use_ocdbt, "use_zarr3": not pathways if use_zarr3 is None else use_zarr3}
        local = "://" not in self.root_directory
        self._orbax = ocp.CheckpointManager(
            os.path.abspath(self.root_directory) if local else self.root_directory,
            item_handlers={ITEMS: ocp.PyTreeCheckpointHandler(**how), PARAMS: ocp.PyTreeCheckpointHandler(), STATE: ocp.PyTreeCheckpointHandler(),
                           _OLDER: ocp.JsonCheckpointHandler()},
            options=_options(options, ocp),
        )  # fmt: skip

    # ---- Tunix's interface ----

    def latest_step(self):
        """The newest step at the root, of either layout; None where there is none, or the manager is off."""
        return None if self._orbax is None else self._orbax.latest_step()

    def save(self, step, model, optimizer=None, save_only_lora_params=False, force=False, custom_metadata=None):
        """Saves `model`, an nnx.Module, and the state of `optimizer`, an nnx.Optimizer, as STEP/items.

        save_only_lora_params: of the model the LoRA parameters alone. force: whatever the options say of the interval. custom_metadata: a dict
        of JSON, kept at the level of the step. Returns whether a save was begun. Errors of Orbax pass through; those of the background
        writer come out of the next `save`, `wait` or `close`.
        """
        if self._orbax is None or not (force or self._orbax.should_save(step)):
            return False
        import jax
        import numpy as np
        import orbax.checkpoint as ocp

        model = trained(model)
        parts = model_parts(model, save_only_lora_params)
        state = None if optimizer is None else nested(optimizer_parts(optimizer))
        made = _levels.arrange(nested(parts.params), state, nested(parts.aside), np.int32(step))
        made.items["step"] = made.items["step"].astype(np.int32)   # which flax counts in uint32
        made.dropped.update({".".join((PARAMS, *map(str, path))): value_of(variable) for path, variable in parts.streams.items()})
        if any(name.split(".")[-1] == "mini_step" and int(leaf) for name, leaf in made.dropped.items()):
            log.warning("step %s is saved between two updates of the model: the gradients gathered so far are not kept", step)
        metadata = {**(custom_metadata or {}), **self._said(model, made.items["params"]["params"]), **levels_record(made, constants({name: leaf for name, leaf in made.dropped.items() if ".acc_grads." not in name}))}
        return self._orbax.save(
            step,
            args=ocp.args.Composite(**{ITEMS: ocp.args.PyTreeSave(
                item=made.items, save_args=jax.tree.map(lambda _: ocp.SaveArgs(chunk_byte_size=_BYTES), made.items), ocdbt_target_data_file_size=_BYTES)}),
            custom_metadata=metadata, force=force,
        )  # fmt: skip

    def maybe_restore(self, model, optimizer=None, step=None, restore_only_lora_params=False):
        """Puts the values of a step into `model` and `optimizer`. Returns (step, its custom metadata), (0, {}) where there is no step.

        step: None takes the newest. restore_only_lora_params: of the model the LoRA parameters alone. An optimizer is left as it is when the step
        stores no state of one. Values are cast to the dtypes and laid out in the shardings that are there.
        IncompleteError names parameters or optimizer state that the step lacks, UnsupportedError another shape; nothing is changed then.
        """
        if self._orbax is None:
            return 0, {}
        self._orbax.wait_until_finished()   # the newest step may be on its way
        if step is None:
            step = self._orbax.latest_step()
            if step is None:
                return 0, {}
        metadata = self._orbax.metadata(step)
        said = dict(metadata.custom_metadata or {})
        if _OLDER in metadata.item_metadata:   # where Tunix kept it before it was the step's
            import orbax.checkpoint as ocp

            said = {**self._orbax.restore(step, args=ocp.args.Composite(**{_OLDER: ocp.args.JsonRestore()}))[_OLDER], **said}
        restore(self._orbax, step, metadata.item_metadata, recorded(said), trained(model), optimizer, restore_only_lora_params)
        log.info("restored step %s of %s", step, self.root_directory)
        return step, said

    def close(self):
        """Waits for the save on its way and ends what runs in the background."""
        if self._orbax is not None:
            self._orbax.close()

    # ---- more of Orbax's ----

    def wait(self):
        """Waits until the save on its way is done; raises what went wrong there."""
        if self._orbax is not None:
            self._orbax.wait_until_finished()

    wait_until_finished = wait

    def should_save(self, step):
        """Whether `save` of that step would save without `force`."""
        return self._orbax is not None and self._orbax.should_save(step)

    def all_steps(self):
        """The steps at the root, of either layout, in rising order."""
        return [] if self._orbax is None else sorted(self._orbax.all_steps())

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    # ---- in a trainer ----

    def install(self, trainer):
        """Puts this manager in the place of a trainer's own, which is closed, and resumes the trainer from the newest step at the root.

        trainer: a tunix.sft.peft_trainer.PeftTrainer or one derived from it, as those of RL, DPO and distillation. One that has already gone further than
        the newest step is not set back. Make the trainer with `checkpoint_root_directory=None`: its own manager cannot read MaxText's layout. Where
        what surrounds the trainer reads its state while it is made, as an RLCluster does, use `maxtext_layout` instead.
        Returns the manager.
        """
        old = trainer.checkpoint_manager
        if old is not self:
            old.close()
            # Newer versions of Tunix leave the writer below to the garbage collector.
            writer = getattr(old, "_checkpointer", None)
            if hasattr(writer, "close"):
                writer.close()
            trainer.checkpoint_manager = self
            if self._orbax is not None:
                self._orbax.reload()   # what the other one's writer had still under way
        newest = self.latest_step()
        if newest is None or newest <= trainer.train_steps:
            return self
        steps, said = self.maybe_restore(trainer.model, trainer.optimizer, restore_only_lora_params=getattr(trainer, "_lora_enabled", False))
        trainer._train_steps, trainer._restored_custom_metadata = steps, said
        trainer._iter_steps = steps * (trainer.config.gradient_accumulation_steps or 1)
        return self

    def _said(self, model, params):
        """What MaxText's own saves say of a step."""
        config = getattr(getattr(model, _levels.ADAPTER, model), "config", None)
        scanned = self.scan_layers
        if scanned is None:
            scanned = getattr(config, "scan_layers", None)
        if scanned is None:
            scanned = _levels.scanned(params)
        said = {} if scanned is None else {"scan_layers": bool(scanned)}
        lora = getattr(config, "lora", None)
        if getattr(lora, "lora_rank", 0) and hasattr(lora, "model_dump"):
            said["lora"] = lora.model_dump()
        return said


@contextlib.contextmanager
def maxtext_layout(**given):
    """While it lasts, Tunix's trainers build a MaxTextLayoutCheckpointManager with the arguments `given` where they would build their own.

        with crossdock.post_training.maxtext_layout(scan_layers=True):
            cluster = rl_cluster.RLCluster(...)          # actor and critic, each in its directory

    So they resume from either layout while they are made. Needs Tunix.
    """
    from tunix.sft import checkpoint_manager

    class Configured(MaxTextLayoutCheckpointManager):
        __doc__ = MaxTextLayoutCheckpointManager.__doc__

        def __init__(self, root_directory=None, options=None):
            super().__init__(root_directory, options, **given)

    own, checkpoint_manager.CheckpointManager = checkpoint_manager.CheckpointManager, Configured
    try:
        yield
    finally:
        checkpoint_manager.CheckpointManager = own


def _options(given, ocp):
    """Orbax's options from what a trainer's configuration holds."""
    if isinstance(given, ocp.CheckpointManagerOptions):
        return given
    every = ocp.checkpoint_managers.ContinuousCheckpointingPolicy(minimum_interval_secs=_SECONDS)
    if given is None:
        return ocp.CheckpointManagerOptions(save_decision_policy=every, max_to_keep=_KEPT)
    # Tunix's protocol of options: any object with these.
    if not hasattr(given, "save_decision_policy"):
        raise UsageError(f"`options` are orbax.checkpoint.CheckpointManagerOptions or Tunix's own: {given!r}", message="`options` are of no known kind",
                         expected="orbax.checkpoint.CheckpointManagerOptions", found=type(given).__name__)  # fmt: skip
    kept = getattr(given, "preservation_policy", None)
    named = {"save_decision_policy": getattr(given, "save_decision_policy", None) or every, "step_name_format": getattr(given, "step_name_format", None)}
    named.update({"max_to_keep": _KEPT} if kept is None else {"preservation_policy": kept})
    if getattr(given, "enable_async_checkpointing", None) is not None:
        named["enable_async_checkpointing"] = given.enable_async_checkpointing
    seconds = getattr(getattr(given, "async_options", None), "timeout_secs", None)
    if seconds is not None:
        named["async_options"] = ocp.AsyncOptions(timeout_secs=seconds)
    return ocp.CheckpointManagerOptions(**named)
