"""Models with experts as legacy trees hold them: the three forms that experts have in a module, on the ranks that are given."""
import contextlib
import fcntl
import functools

import torch

import mcore_env as env
import mcore_experts

FORMS = ("grouped", "sequential", "local")                       # TransformerEngine's layers with experts together or one by one; Megatron's own layers


class GroupedLinear(torch.nn.Module):
    """TransformerEngine's GroupedLinear as a checkpoint sees it: a weight an expert, one extra state; no forward."""
    axis = None

    def __init__(self, num_gemms, input_size, output_size, *, config, pg_collection, bias=False, **ignored):
        super().__init__()
        assert not bias
        self.num_gemms, self.groups = num_gemms, pg_collection
        rows, columns = output_size, input_size
        if self.axis == 0:
            rows //= pg_collection.expt_tp.size()
        else:
            columns //= pg_collection.expt_tp.size()
        for index in range(num_gemms):
            weight = torch.nn.Parameter(torch.empty(rows, columns, dtype=config.params_dtype))
            weight.allreduce = pg_collection.ep.size() == 1      # Megatron sorts optimizers by it
            self.register_parameter(f"weight{index}", weight)

    def get_extra_state(self):
        return torch.empty(0, dtype=torch.uint8)

    def set_extra_state(self, state):
        pass

    def sharded_state_dict(self, prefix="", sharded_offsets=(), metadata=None):
        made, ranks = {}, self.groups.ep
        for index in range(self.num_gemms):
            offsets = (*sharded_offsets, (len(sharded_offsets), ranks.rank() * self.num_gemms + index, ranks.size() * self.num_gemms))
            one = env.make_sharded_tensors_for_checkpoint({"weight": getattr(self, f"weight{index}")}, prefix, {"weight": self.axis}, offsets,
                                                          tp_group=self.groups.expt_tp, dp_cp_group=metadata["dp_cp_group"])
            made[f"{prefix}weight{index}"] = one[prefix + "weight"]
        return made


class ColumnGrouped(GroupedLinear):
    axis = 0


class RowGrouped(GroupedLinear):
    axis = 1


def use(form):
    """In a rank, before it builds a model."""
    from megatron.core.transformer.moe.experts import GroupedMLPSubmodules, TEGroupedMLP
    # TransformerEngine's attention has an extra state, which torch_dist does not store and a legacy file does.
    env.TEDotProductAttention.get_extra_state = lambda self: torch.empty(0, dtype=torch.uint8)
    env.TEDotProductAttention.set_extra_state = lambda self, state: None
    # Megatron's own norms want no sequence parallelism, which changes nothing on disk.
    fields = mcore_experts.fields
    mcore_experts.fields = lambda config, layout: fields(config, layout) | ({"sequence_parallel": False} if form == "local" else {"moe_grouped_gemm": form == "grouped"})
    if form != "grouped":
        return

    def modules(self, moe_use_grouped_gemm):
        assert moe_use_grouped_gemm
        return functools.partial(TEGroupedMLP, submodules=GroupedMLPSubmodules(linear_fc1=ColumnGrouped, linear_fc2=RowGrouped))

    env.TESpecProvider.grouped_mlp_modules = modules


def build(config, layout, dtype, form, chunk=None):
    use(form)
    local = form == "local"
    return env.build_model(config, layout, dtype, local=local, chunk=chunk)


@contextlib.contextmanager
def one_at_a_time(lock):
    """Lets one rank write at a time: those that share a file would else mix their bytes in it, as chance has it."""
    save = torch.save

    def alone(*arguments, **named):
        with open(lock, "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            return save(*arguments, **named)

    torch.save = alone
    try:
        yield
    finally:
        torch.save = save


def save_rank(rank, root, config, parameters, layout, form):
    from mcore_write import ITERATION, fill_model
    env.initialize(layout)
    model = build(config, layout, torch.bfloat16, form)
    fill_model(model, config, parameters, layout)
    args = env.training_args(config, layout, root, torch.bfloat16, ITERATION, False, ckpt_format="torch", use_dist_ckpt=False,
                             use_distributed_optimizer=False, transformer_impl="local" if form == "local" else "transformer_engine")
    env.use_args(args)
    with one_at_a_time(root.parent / f"{root.name}.lock"):
        env.training_checkpointing.save_checkpoint(ITERATION, [model], None, None, 123456789)


def save(root, config, parameters, layout, form):
    root.mkdir(parents=True, exist_ok=True)
    env.run_ranks(layout.world, save_rank, root, config, parameters, layout, form)
    return root / "iter_0000020"


def load_rank(rank, root, config, parameters, layout, form):
    import mcore_load
    import legacy_load
    from megatron.core.num_microbatches_calculator import init_num_microbatches_calculator
    env.initialize(layout)
    args = env.training_args(config, layout, root, optimizer=False, ckpt_format="torch", use_distributed_optimizer=False,
                             transformer_impl="local" if form == "local" else "transformer_engine")
    env.use_args(args)
    init_num_microbatches_calculator(rank, None, 4 * layout.dp, 4, layout.dp)
    model = build(config, layout, torch.bfloat16, form)
    content = legacy_load.read(env.training_checkpointing.get_checkpoint_name(str(root), 20))["model"]
    wanted, problems = list(model.state_dict()), []
    if list(content) != wanted:
        first = next((pair for pair in zip(content, wanted) if pair[0] != pair[1]), None)
        problems.append(f"names or their order: first {first}, {len(content)} instead of {len(wanted)}; {sorted(set(content) ^ set(wanted))[:8]}")
    iteration, _ = env.training_checkpointing.load_checkpoint([model], None, None)
    if iteration != 20:
        problems.append(f"iteration {iteration}")
    more, count = mcore_load.compare_rank(model, None, config, parameters, None, layout)
    return problems + more, count


def check(root, config, parameters, layout, form):
    total = 0
    for rank, (problems, count) in enumerate(env.run_ranks(layout.world, load_rank, root, config, parameters, layout, form)):
        assert not problems, f"{layout}, {form}, rank {rank}: " + "; ".join(problems[:6])
        assert count, f"{layout}, {form}, rank {rank}: nothing was compared"
        total += count
    return total
