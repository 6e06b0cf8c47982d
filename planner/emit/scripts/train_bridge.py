"""Trains a recipe of Megatron-Bridge 0.3 with a plan's overrides; words added to the call
(train.train_iters=20) come last and win.
"""

from __future__ import annotations

import argparse

from megatron.bridge import recipes
from megatron.bridge.training.gpt_step import forward_step
from megatron.bridge.training.mixed_precision import get_mixed_precision_config
from megatron.bridge.training.pretrain import pretrain
from megatron.bridge.training.utils.omegaconf_utils import process_config_with_overrides


def config(recipe: str, precision: str, overrides: str, more: list[str]):
    """The recipe's configuration as the plan wants it: its precision is chosen first, then single
    words of everything.
    """
    made = getattr(recipes, recipe)()
    made.mixed_precision = get_mixed_precision_config(precision)
    # What overlaps is said word by word in the overrides; the recipe's own choice would win over
    # them.
    made.comm_overlap = None
    return process_config_with_overrides(made, overrides, more)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, meaning in (
        ("recipe", "a function of megatron.bridge.recipes"),
        ("precision", "of its mixed_precision module"),
        ("overrides", "YAML file"),
    ):
        parser.add_argument(f"--{name}", required=True, help=meaning)
    known, more = parser.parse_known_args()
    pretrain(config(known.recipe, known.precision, known.overrides, more), forward_step)


if __name__ == "__main__":
    main()
