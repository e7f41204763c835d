#!/usr/bin/env python3
"""Speed and memory as ratios in one run: against `cp` of the same bytes made durable, and against a Python script.

    benchmarks/bench.py --crossdock build/release/crossdock [--gib 3] [--rounds 5] [--python ENV/bin/python] [--work DIR] [--only WORD]

Rounds are interleaved (cp, crossdock, peer; crossdock, peer, cp; ...); the ratio is taken round by round, the median quoted with its range.
Outputs are deleted and the deletion synced outside the timed region. A round in which cp itself took more than 1.5 x its
own minimum is void for wall ratios. CPU seconds are user + system of the process.
Cold: inputs are dropped from the page cache before each run (posix_fadvise). Prints one Markdown table.
"""
import argparse
import os
import shutil
import statistics
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tests", "limits"))
import models  # noqa: E402
import process  # noqa: E402


def drop(folder):
    """Takes the files below `folder` out of the page cache."""
    os.sync()
    for directory, _, files in os.walk(folder):
        for name in files:
            fd = os.open(os.path.join(directory, name), os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def size_of(folder):
    return sum(os.path.getsize(os.path.join(d, f)) for d, _, files in os.walk(folder) for f in files)


def clean(folder):
    shutil.rmtree(folder, ignore_errors=True)
    os.sync()


class Road:
    def __init__(self, name, source, command, peer=None):
        self.name, self.source, self.command, self.peer = name, source, command, peer


def copy_command(source, target):
    return ["sh", "-c", 'cp -r --reflink=never "$1" "$2" && sync -f "$2"', "sh", source, target]


def measure(road, rounds, target, with_peer):
    rows = []
    for number in range(rounds + 1):  # the first one warms everything up and is not counted
        row = {}
        source = road.source()
        commands = {"cp": copy_command(source, target), "crossdock": road.command(target)}
        if with_peer and road.peer:
            commands["peer"] = road.peer(target)
        # Another one begins each round: what ran before leaves the disk busy (discards, a used-up burst allowance).
        order = list(commands)
        order = order[number % len(order):] + order[:number % len(order)]
        for who in order:
            command = commands[who]
            clean(target)
            drop(source)
            row[who] = process.run(command)
            if row[who].status != 0:
                sys.exit(f"{road.name}: {who} failed\n{row[who].output}")
            if who == "crossdock":
                row["out"] = size_of(target)
        if number:
            rows.append(row)
    clean(target)
    return rows


def spread(values):
    if not values:
        return "void"
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def cpu(usage):
    return usage.user + usage.system


def report(road, rows):
    quiet = min(r["cp"].wall for r in rows)
    valid = [r for r in rows if r["cp"].wall <= 1.5 * quiet]
    source = size_of(road.source())
    peer = [r for r in rows if "peer" in r]
    cells = [
        road.name,
        spread([r["crossdock"].wall / r["cp"].wall for r in valid]),
        spread([cpu(r["crossdock"]) / max(cpu(r["cp"]), 1e-3) for r in rows]),
        f'{max(r["crossdock"].read_chars for r in rows) / source:.3f}',
        f'{max(r["crossdock"].write_chars / r["out"] for r in rows):.3f}',
        f'{max(r["crossdock"].max_rss for r in rows) >> 20}',
        spread([cpu(r["peer"]) / cpu(r["crossdock"]) for r in peer]) if peer else "-",
        spread([r["peer"].wall / r["crossdock"].wall for r in peer]) if peer else "-",
        f'{max(r["peer"].max_rss for r in peer) >> 20}' if peer else "-",
    ]
    print("| " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--crossdock", required=True)
    parser.add_argument("--gib", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--python", help="interpreter with torch and safetensors, for the peer")
    parser.add_argument("--work", help="a directory on the disk to measure")
    parser.add_argument("--memory", default="512MiB")
    parser.add_argument("--only", default="", help="roads whose name has this word")
    options = parser.parse_args()
    crossdock = os.path.abspath(options.crossdock)

    work = tempfile.mkdtemp(prefix="crossdock-bench-", dir=options.work)
    try:
        hf = os.path.join(work, "hf")
        # An even number, for two pipeline stages.
        layers = 2 * max(1, round((options.gib * 2**30 - 2 * 2 * 32000 * 2048) / (4 * 47.2e6)))
        models.write_llama(hf, layers=layers, random=True)
        layout = ["--tp", "2", "--pp", "2"]
        sources = {"megatron": ["megatron", *layout], "megatron-legacy": ["megatron-legacy", *layout], "dcp": ["dcp"], "maxtext": ["maxtext", "--compression", "none"],
                   "maxtext-zstd": ["maxtext", "--compression", "zstd:1"]}

        def source(kind):
            """The same model in another form, made when a road first starts there."""
            folder = os.path.join(work, kind)
            if not os.path.exists(folder):
                made = process.run([crossdock, "convert", hf, folder, "--to", *sources[kind], "--quiet"])
                if made.status:
                    sys.exit(made.output)
            return folder

        target = os.path.join(work, "out")
        memory = ["--memory", options.memory, "--quiet"]
        lean = [options.python, f"{HERE}/peers/lean_torch.py"]

        def road(name, start, to, *words, peer=None):
            return Road(name, start, lambda t: [crossdock, "convert", start(), t, "--to", to, *words, *memory], peer)

        from_hf = lambda: hf  # noqa: E731
        megatron, legacy, dcp, maxtext, packed = (lambda kind=kind: source(kind) for kind in sources)
        roads = [
            road("hf -> megatron TP2 PP2", from_hf, "megatron", *layout, peer=lambda t: [*lean, "to", hf, t]),
            road("megatron TP2 PP2 -> hf", megatron, "hf", peer=lambda t: [*lean, "from", megatron(), t]),
            road("hf -> full-state", from_hf, "full-state"),
            road("megatron TP2 PP2 -> TP4 PP1", megatron, "megatron", "--tp", "4"),
            road("hf -> megatron-legacy TP2 PP2", from_hf, "megatron-legacy", *layout),
            road("megatron-legacy TP2 PP2 -> hf", legacy, "hf"),
            road("megatron-legacy TP2 PP2 -> megatron TP4 PP1", legacy, "megatron", "--tp", "4"),
            road("megatron TP2 PP2 -> megatron-legacy TP1 PP2", megatron, "megatron-legacy", "--pp", "2"),
            road("hf -> dcp", from_hf, "dcp"),
            road("dcp -> hf", dcp, "hf"),
            road("dcp -> megatron TP2 PP2", dcp, "megatron", *layout),
            road("hf -> maxtext, not compressed", from_hf, "maxtext", "--compression", "none"),
            road("hf -> maxtext, zstd 1", from_hf, "maxtext"),
            road("maxtext, not compressed -> hf", maxtext, "hf"),
            road("maxtext, zstd 1 -> hf", packed, "hf"),
            road("hf -> hf fp8 block", from_hf, "hf", "--fp8", "block", peer=lambda t: [*lean, "fp8", hf, t]),
            road("hf -> hf fp8 channel", from_hf, "hf", "--fp8", "channel"),
            road("hf -> hf fp8 tensor", from_hf, "hf", "--fp8", "tensor"),
            road("megatron TP2 PP2 -> hf fp8 block", megatron, "hf", "--fp8", "block"),
        ]
        print(f"Llama, bf16, {size_of(hf) / 2**30:.2f} GiB, {options.rounds} rounds, cold, --memory {options.memory}, "
              f"{os.cpu_count()} cores. cp = `cp -r --reflink=never` + `sync -f`.\n")
        print("| road | wall / cp | CPU / cp | read / input | written / output | peak MiB | peer CPU / ours | "
              "peer wall / ours | peer peak MiB |\n|---|---|---|---|---|---|---|---|---|", flush=True)
        for one in roads:
            if options.only in one.name:
                report(one, measure(one, options.rounds, target, bool(options.python)))
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
