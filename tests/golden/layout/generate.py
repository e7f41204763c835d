"""Golden pipeline divisions by the real Megatron-Core: what its own functions build for each (stage, model chunk).

Asked are TransformerConfig (which refuses), get_num_layers_to_build, get_transformer_layer_offset and
PipelineParallelLayerLayout. One rule stands in arguments.validate_args and is said again here: model chunks need more
than one stage, and a single chunk is none. A division counts only when the chunks hold every layer exactly once, in
order; otherwise it is as good as refused.

even.txt, uneven.txt: a line `grid: ...` names what was asked; a case that has no line is refused. Lines are
`layers pp vpp first last embedding loss = layers of each chunk`, chunk v of stage p at place v * pp + p; `-` is not given.
strings.txt: `layers pp string => layers of each chunk`, or `!` where the string is refused; a newline is spelt \\n.
"""
import itertools
import pathlib
import random
import sys

here = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(here.parent), str(here.parent.parent / "oracle")]
sys.dont_write_bytecode = True

import mcore_env  # noqa: F401  imports Megatron-Core on a machine without CUDA
from megatron.core import parallel_state
from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout
from megatron.core.transformer.transformer_block import get_num_layers_to_build
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.core.transformer.transformer_layer import get_transformer_layer_offset

import golden
import torch


def divide(layers, pp, vpp=None, first=None, last=None, embedding=False, loss=False, cells=None):
    """Layers of each chunk in cell order, or None."""
    try:
        if cells is not None:
            found = PipelineParallelLayerLayout.get_num_stages_from_str(cells)
            if found % pp:
                return None
            vpp = found // pp
        if vpp == 1:
            vpp = None
        if vpp is not None and pp == 1:
            return None
        config = TransformerConfig(
            num_layers=layers, hidden_size=8, num_attention_heads=1, pipeline_model_parallel_size=pp, virtual_pipeline_model_parallel_size=vpp,
            num_layers_in_first_pipeline_stage=first, num_layers_in_last_pipeline_stage=last, pipeline_dtype=torch.float32,
            account_for_embedding_in_pipeline_split=embedding, account_for_loss_in_pipeline_split=loss, pipeline_model_parallel_layout=cells)
        parallel_state.set_virtual_pipeline_model_parallel_world_size(vpp)
        counts, next_layer = [], 0
        for chunk in range(vpp or 1):
            for stage in range(pp):
                parallel_state.set_pipeline_model_parallel_rank(stage)
                stage_of_chunk = chunk if vpp else None
                count = get_num_layers_to_build(config, stage_of_chunk, stage)
                if count < 0 or (count and get_transformer_layer_offset(config, stage_of_chunk, stage) != next_layer):
                    return None
                next_layer += count
                counts.append(count)
        return counts if next_layer == layers else None
    except (ValueError, AssertionError, NotImplementedError, ZeroDivisionError, IndexError):
        return None


def text(value):
    return "-" if value is None else str(int(value))


def grid(path, spoken, cases):
    rows, asked = [f"# Megatron-Core's own answers; see generate.py\ngrid: {spoken}"], 0
    for case in cases:
        asked += 1
        counts = divide(*case)
        if counts is not None:
            rows.append(" ".join(map(text, case)) + " = " + " ".join(map(str, counts)))
    path.write_text("\n".join(rows) + "\n")
    print(f"{path.name}: {asked} cases, {len(rows) - 1} possible")


HANDMADE = [
    (61, 2, "Et*3|(tt|)*29,m|L"), (61, 4, "Et*3|(tt|)*29,m|L"), (60, 31, "Ett|(tt|)*29L"), (4, 2, "Ett|ttL"), (4, 2, "Et|t|t|tL"), (4, 4, "E|tt|tt|L"),
    (4, 2, "|Ett|tt|L"), (4, 2, "Ett|tt|L|"), (4, 2, "Et*4|L"), (4, 2, "Et*4L|"), (4, 1, "Et*4L"), (4, 1, "Et*2|t*2L"), (4, 3, "Ett|ttL"),
    (4, 2, "Ettt|ttL"), (4, 2, "ett|ttl"), (4, 2, "Ett|tt"), (4, 2, "tt|ttL"), (4, 2, "EEtt|ttL"), (4, 2, "Ett|ttLL"), (4, 2, "Ett|ttmL"), (4, 2, "tE|tttL"),
    (4, 2, ""), (4, 2, "|"), (4, 2, "E t t|ttL"), (4, 2, "E,t,t,|,t,t,L"), (4, 2, "E(t)*2|(t)*2L"), (4, 2, "E(t|t)*2L"), (4, 3, "E(t|t)*2L"), (4, 5, "E(t|)*4L"),
    (8, 2, "E((t|)*2)*2L"), (8, 5, "E((t|)*2)*2ttttL"), (4, 2, "Et*2*2|L"), (4, 2, "E(t)*2*2|L"), (4, 2, "E(tt|)*2L"), (4, 3, "E(tt|)*2L"), (4, 2, "Ett*0tt|ttL"),
    (4, 2, "Ett|x*0ttL"), (4, 2, "Ett|(x)*0ttL"), (4, 2, "Ett|()*2ttL"), (4, 2, "Ett|t*tL"), (4, 2, "Ett|*2ttL"), (4, 3, "Ett|*2ttL"), (4, 2, "Ett|t(tL"), (4, 2, "Ett|t)*0tL"),
    (4, 2, "Ett|tt)*0L"), (4, 2, "Et*02|t*002L"), (4, 2, "Ett|ttL\n"), (4, 2, "Ett|ttL\n*0"), (4, 2, "Ett|ttDL"), (4, 2, "Et*|tttL"), (4, 2, "E(t*2|)*1t*2L"), (4, 4, "E|t|t|ttL"), (4, 2, "E||tt|ttL"),
    (4, 2, "Ett||tt|L"), (4, 2, "Ett|tt||L"), (4, 6, "E|t|t|t|t|L"), (4, 3, "E|t|t|t|t|L"), (4, 2, "E|t|t|t|t|L"), (10, 2, "Ettt|tt|ttt|ttL"), (10, 2, "Et*3|t*2|(t*3|)*1t*2L"), (4, 2, "E(t,t,|,)*1ttL"),
]


def random_strings(number):
    """Cells of random sizes, written in random ways; some with a character too many."""
    dice = random.Random(20260801)
    for _ in range(number):
        pp, vpp = dice.randint(1, 5), dice.randint(1, 4)
        counts = [dice.choice((0, 1, 1, 2, 2, 3, 5)) for _ in range(pp * vpp)]
        cells = ["t" * n if dice.random() < 0.5 else f"t*{n}" for n in counts]
        cells[0] = "E" + cells[0]
        cells[-1] += "L"
        string, i = "", 0
        while i < len(cells):
            same = 1
            while i + same < len(cells) and cells[i + same] == cells[i]:
                same += 1
            if same > 1 and dice.random() < 0.7 and i + same < len(cells):
                string += f"({cells[i]}|)*{same}"
                i += same
            else:
                string += cells[i] + ("|" if i + 1 < len(cells) else "")
                i += 1
        layers = sum(counts)
        fault = dice.random()
        if fault < 0.1:
            layers += 1
        elif fault < 0.25:
            at = dice.randint(0, len(string))
            string = string[:at] + dice.choice("tmEL|*()2,x") + string[at:]
        elif fault < 0.3:
            pp += 1
        yield max(layers, 1), pp, string


def grids():
    grid(here / "even.txt", "layers 1-16, pp 1-6, vpp 1-4, embedding 0-1, loss 0-1",
         [(layers, pp, vpp, None, None, embedding, loss) for layers, pp, vpp, embedding, loss in
          itertools.product(range(1, 17), range(1, 7), range(1, 5), (False, True), (False, True))])
    ends = (None, 0, 1, 2, 3, 4, 6)
    grid(here / "uneven.txt", "layers 1-14, pp 1-5, vpp 1-3, first and last of - 0 1 2 3 4 6 but not both -, and not both given with pp 1, embedding 0-1",
         [(layers, pp, vpp, first, last, embedding, False) for layers, pp, vpp, first, last, embedding in
          itertools.product(range(1, 15), range(1, 6), range(1, 4), ends, ends, (False, True))
          if (first, last) != (None, None) and (pp > 1 or None in (first, last))])


def strings():
    rows = ["# Megatron-Core's own answers; see generate.py"]
    for layers, pp, string in [*HANDMADE, *random_strings(400)]:
        counts = divide(layers, pp, cells=string)
        spelt = string.replace("\n", "\\n")
        rows.append(f"{layers} {pp} {spelt} => " + ("!" if counts is None else " ".join(map(str, counts))))
    (here / "strings.txt").write_text("\n".join(rows) + "\n")
    print(f"strings.txt: {len(rows) - 1} strings, {sum(not row.endswith('!') for row in rows) - 1} possible")


def main():
    grids()
    strings()
    golden.write_manifest(here, golden.versions("megatron-core", "torch"), limit=100_000)


if __name__ == "__main__":
    main()
