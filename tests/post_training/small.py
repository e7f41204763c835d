"""A model of three small parameters with MaxText's names, trained by Tunix's own PeftTrainer; and what of it lies on the disk."""
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax import nnx
from tunix.sft import peft_trainer

SCHEDULE = optax.schedules.linear_schedule(0.1, 0.01, 20)
EVERY = ocp.CheckpointManagerOptions(save_interval_steps=1, max_to_keep=None)


class Kernel(nnx.Module):
    def __init__(self, shape, seed):
        self.kernel = nnx.Param(jax.random.normal(jax.random.key(seed), shape))


class Decoder(nnx.Module):
    def __init__(self, mlp, rngs):
        setattr(self, mlp, Kernel((3, 2, 3), 1))         # two layers, scanned along axis 1
        self.out = Kernel((3, 3), 2)
        self.scale = nnx.Param(jnp.arange(1.0, 4.0))
        self.dropout = nnx.Dropout(0.25, rngs=rngs)
        self.seen = nnx.BatchStat(jnp.zeros((), jnp.int32))
        self._mlp = mlp


class Model(nnx.Module):
    """`mlp` names the module of the layers; `base` is as good a name as any."""

    def __init__(self, mlp="layers", seed=0):
        self.decoder = Decoder(mlp, nnx.Rngs(seed))

    def __call__(self, x):
        d = self.decoder
        kernel = getattr(d, d._mlp).kernel
        for layer in range(2):
            x = d.dropout(jnp.tanh(x @ kernel[:, layer]))
        d.seen[...] += 1
        return (x @ d.out.kernel[...]) * d.scale[...]


class Adapter(nnx.Module):
    def __init__(self, model):
        self.base = model

    def __call__(self, x):
        return self.base(x)


def adamw(rate=SCHEDULE):
    return optax.adamw(rate, b1=0.9, b2=0.95, weight_decay=0.1)


def clipped(optimizer):
    return optax.chain(optax.clip_by_global_norm(0.5), optimizer)


def injected(chain=lambda one: optax.chain(one)):
    return optax.inject_hyperparams(lambda learning_rate, b1: chain(optax.adamw(learning_rate, b1=b1, weight_decay=0.1)))(learning_rate=SCHEDULE, b1=0.8)


# A trainer of each kind: its model, its optimizer, micro-batches of an update.
KINDS = {
    "sft": (Model, adamw, None),
    "sft, clipped": (Model, lambda: clipped(adamw()), None),
    "dpo": (lambda: Adapter(Model()), lambda: clipped(adamw()), None),
    "rl": (lambda: Adapter(Model()), lambda: injected(clipped), None),
    "rl, in steps of two": (lambda: Adapter(Model()), injected, 2),
    "distillation": (Model, lambda: injected(lambda one: one), None),
    "a module named base": (lambda: Adapter(Model("base")), adamw, None),
}


def batch(number):
    return {"x": np.asarray(jax.random.normal(jax.random.key(100 + number), (4, 3)))}


def loss(model, x):
    return jnp.mean((model(x) - 1.0) ** 2)


def trainer(kind, root=None, options=EVERY, cls=peft_trainer.PeftTrainer, **more):
    model, optimizer, gathered = KINDS.get(kind, kind)
    config = peft_trainer.TrainingConfig(eval_every_n_steps=10**6, max_steps=10**6, gradient_accumulation_steps=gathered, checkpoint_root_directory=root and str(root),
                                         checkpointing_options=options, data_sharding_axis=(), pbar_description=None)
    made = cls(model(), optimizer(), config, **more)
    made.with_loss_fn(loss).with_gen_model_input_fn(lambda one: one)
    # Operation by operation: nothing is compiled but each of them once. (`skip_jit` alone hands out a step without its model.)
    made.create_train_step_fn = lambda: functools.partial(made._train_step, made.model, made.optimizer)
    return made


def train(one, steps):
    """Until that many updates of the model have been made, without an end that saves once more."""
    one.is_managed_externally = True
    gathered = one.config.gradient_accumulation_steps or 1
    one.train([batch(number) for number in range(one.iter_steps, steps * gathered)], skip_jit=True)
    assert one.train_steps == steps
    return one




def values(module):
    """name -> array of everything in a model or optimizer; a key's words."""
    made = {}
    for path, variable in nnx.to_flat_state(nnx.state(module)):
        value = variable.get_raw_value()
        if hasattr(value, "shape"):
            value = jax.random.key_data(value) if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key) else value
            made[".".join(map(str, path))] = np.asarray(value)
    return made


def same(a, b):
    """Bit for bit; but optax leaves zeros of either sign where it has gathered gradients, which are not kept."""
    assert sorted(a) == sorted(b)
    for name in a:
        assert a[name].dtype == b[name].dtype and a[name].shape == b[name].shape, name
        if "acc_grads" in name:
            assert not a[name].any() and not b[name].any(), name
        else:
            assert a[name].tobytes() == b[name].tobytes(), name


def stored(item):
    """name -> array of an item, and what `_METADATA` says of every path."""
    with open(item / "_METADATA") as file:
        rows = json.load(file)["tree_metadata"].values()
    kinds = {}
    for row in rows:
        kinds[tuple(key["key"] if key["key_type"] == 2 else int(key["key"]) for key in row["key_metadata"])] = row["value_metadata"]["value_type"]
    tree = ocp.PyTreeCheckpointHandler().restore(item, args=ocp.args.PyTreeRestore(restore_args=jax.tree.map(
        lambda _: ocp.RestoreArgs(restore_type=np.ndarray), ocp.PyTreeCheckpointHandler().metadata(item).tree)))
    arrays = {}
    for path, kind in kinds.items():
        at = tree
        for key in path:
            at = at[key]
        if kind not in ("None", "Dict"):
            arrays[".".join(map(str, path))] = np.asarray(at)
    return arrays, kinds
