"""`ppplan recommend`."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.cli import options as o


def recommend(
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
    top: Annotated[
        int, typer.Option("--top", help="Plans to show.", metavar="K", parser=o.whole)
    ] = 5,
    min_gpus: Annotated[
        bool, typer.Option("--min-gpus", help="The smallest GPU count on which a layout fits.")
    ] = False,
    out: o.Out = None,
    launcher: o.Launcher = "torchrun",
    format: o.Format = None,
    script: o.Script = None,
    report: o.Report = None,
    as_json: o.Json = False,
) -> None:
    """Rank the layouts that fit.

    Example: ppplan recommend --model llama3-70b --gpus 32 --cluster h100-sxm --out plan
    """
    asked = o.question(locals())
    from planner import api
    from planner.cli.show import check_report, show, write_report
    from planner.report.json import documents

    check_report(report)
    answer = api.recommend(
        asked, top=top, min_gpus=min_gpus, out=out, launcher=launcher, script=script, form=format
    )
    show(answer, documents.recommendation, "ranking", as_json)
    write_report(report, "recommend", "page", answer)
    if answer.search is None or not answer.search.plans:
        raise typer.Exit(1)
