"""`ppplan explain`."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.cli import options as o

Sweep = Annotated[
    list[str] | None,
    typer.Option("--sweep", help="A table over a word; repeatable.", metavar="WORD=A,B,C"),
]

Formulas = Annotated[
    bool,
    typer.Option("--formulas/--no-formulas", help="Formulas, sources and assumptions at the end."),
]


def explain(
    file: o.File = None,
    model: o.Model = None,
    gpus: o.Gpus = None,
    cluster: o.Cluster = None,
    set: o.Set = None,
    seq_length: o.SeqLength = None,
    global_batch_size: o.GlobalBatchSize = None,
    global_batch_tokens: o.GlobalBatchTokens = None,
    precision: o.Precision = None,
    stack: o.Stack = None,
    framework: o.Framework = None,
    framework_version: o.FrameworkVersion = None,
    attention: o.Attention = None,
    max_memory_gib: o.MaxMemory = None,
    optimizer: o.Optimizer = None,
    lora_rank: o.LoraRank = None,
    lora_targets: o.LoraTargets = None,
    lora_base: o.LoraBase = None,
    frozen: o.Frozen = None,
    packing: o.Packing = None,
    mean_length: o.MeanLength = None,
    mtbf_hours: o.MtbfHours = None,
    checkpoint_s: o.CheckpointS = None,
    restart_s: o.RestartS = None,
    tp: o.Tp = None,
    pp: o.Pp = None,
    dp: o.Dp = None,
    cp: o.Cp = None,
    ep: o.Ep = None,
    etp: o.Etp = None,
    v: o.V = None,
    mbs: o.Mbs = None,
    m: o.M = None,
    zero: o.Zero = None,
    hpz: o.Hpz = None,
    cp_a2a: o.CpA2a = None,
    offload: o.Offload = None,
    sp: o.Sp = None,
    schedule: o.Schedule = None,
    group: o.Group = None,
    recompute: o.Recompute = None,
    no_recompute: o.NoRecompute = False,
    recompute_layers: o.RecomputeLayers = None,
    recompute_modules: o.RecomputeModules = None,
    account_for_embedding: o.AccountEmbedding = None,
    account_for_loss: o.AccountLoss = None,
    first_layers: o.FirstLayers = None,
    last_layers: o.LastLayers = None,
    stage_layout: o.StageLayout = None,
    sweep: Sweep = None,
    formulas: Formulas = True,
    report: o.Report = None,
    as_json: o.Json = False,
) -> None:
    """Every term of one layout, or a table over a swept word.

    Example: ppplan explain --model llama3-70b --gpus 32 --tp 8 --pp 4 --sweep v=1,2,5
    """
    asked = o.question(locals(), layout=True)
    from planner import api
    from planner.cli.show import check_report, show, write_report
    from planner.report.json import documents
    from planner.specs.sweep import sweeps

    check_report(report)
    if sweep:
        table = api.sweep(asked, sweeps(sweep))
        show(table, documents.sweep, "sweep", as_json)
        write_report(report, "explain", "sweep", table)
    else:
        answer = api.explain(asked)
        show(answer, documents.explanation, "explanation" if formulas else "brief", as_json)
        write_report(report, "explain", "explanation", answer)
