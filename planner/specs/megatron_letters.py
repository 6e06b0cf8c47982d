"""Megatron-LM's letters of layers, as --hybrid-layer-pattern has them: `M-M-|M*M-/*E/*E`.

Source: [megatron-core] core/models/hybrid/hybrid_layer_allocation.py of 0.19.2,
        core/ssm/mamba_hybrid_layer_allocation.py of 0.14 to 0.17.
"""

from __future__ import annotations

from typing import NamedTuple

from planner.errors import InputError
from planner.specs.layers import kinds, layer_kinds, mtp_kinds
from planner.specs.mixers import GatedDeltaNet, Mamba2, NoMixer
from planner.specs.model import MOST_LAYERS, ModelSpec
from planner.specs.versions import Version

MAMBA, ATTENTION, MLP, EXPERTS, DELTA, SPARSE, LATENT = "M*-EGD+"
SINCE: dict[str, Version] = {
    MAMBA: (0, 8),
    ATTENTION: (0, 8),
    MLP: (0, 8),
    EXPERTS: (0, 16),
    DELTA: (0, 17),
    SPARSE: (0, 18),
    LATENT: (0, 19),
}
"""The version that brought a letter."""
STAGES: Version = (0, 17)
"""Since then a pattern has the bounds of stages and multi-token prediction; before, a hybrid has no
virtual stages and no such prediction.
"""


class Pattern(NamedTuple):
    """A pattern by its parts."""

    stages: tuple[str, ...]
    """Letters of each (virtual) stage, as they run; one where no bounds are stated."""
    prediction: str = ""
    """Letters of one depth of multi-token prediction."""
    depths: int = 0

    @property
    def letters(self) -> str:
        return "".join(self.stages)

    def __str__(self) -> str:
        return "|".join(self.stages) + f"/{self.prediction}" * self.depths


def parsed(text: str) -> Pattern:
    """The pattern of a text. Raises InputError for one that Megatron-LM refuses."""
    main, *predictions = text.split("/")
    predictions = [letters for letters in predictions if letters] or []
    if len(set(predictions)) > 1:
        raise _fault("the same layers for each depth of prediction", text)
    prediction = predictions[0] if predictions else ""
    strange = sorted(set(main.replace("|", "") + prediction) - set(SINCE))
    if strange:
        raise _fault(f"the letters {' '.join(SINCE)}, | between stages and / of prediction", text)
    pattern = Pattern(tuple(main.split("|")), prediction, len(predictions))
    if not 0 < len(pattern.letters) <= MOST_LAYERS or len(pattern.stages) > MOST_LAYERS:
        raise _fault(f"1 to {MOST_LAYERS:,} layers", text)
    if ATTENTION in text and (SPARSE in text or LATENT in text):
        raise _fault("plain attention or latent one (+, D), not both", text)
    return pattern


def _fault(must: str, text: str) -> InputError:
    return InputError(f"a pattern of layers must have {must}, but got {text[:60]!r}")


def spread(layers: int, attention: float, mlp: float) -> str:
    """Letters of so many layers of which shares are attention and MLP and the rest Mamba, as
    --hybrid-attention-ratio and --hybrid-mlp-ratio spread them (until 0.16).

    Raises InputError for shares that leave nothing.
    """
    if not (attention >= 0 and mlp >= 0 and attention + mlp <= 1 and 0 < layers <= MOST_LAYERS):
        raise InputError(
            "hybrid_attention_ratio and hybrid_mlp_ratio must be shares of 1 together, of 1 to"
            f" {MOST_LAYERS:,} layers, but got {attention:g}, {mlp:g} and {layers:,}"
        )
    attends, dense = round(layers * attention), round(layers * mlp)
    letters = [MAMBA] * layers
    for place in _evenly(layers, (layers - attends) / (attends + 1)):
        letters[place] = ATTENTION
    if dense:
        left = [place for place, letter in enumerate(letters) if letter == MAMBA]
        for place in _evenly(len(left), (layers - attends - dense) / dense):
            letters[left[place]] = MLP
    return "".join(letters)


def _evenly(places: int, between: float) -> list[int]:
    """Places that are taken where so many stay free before each, on the mean."""
    taken, free = [], between
    for place in range(places):
        if free < 0.5:
            taken.append(place)
            free += between
        else:
            free -= 1
    return taken


def letter(kind: ModelSpec) -> str:
    """The letter of a layer, of a model all of whose layers are alike; '' where there is none: each
    letter is a mixer or an MLP alone, behind one norm.
    """
    if kind.norms_per_layer != 1:
        return ""
    mixer = kind.mixer
    if isinstance(mixer, NoMixer):
        return "" if not kind.has_mlp else EXPERTS if kind.moe else MLP
    if kind.has_mlp:
        return ""
    if isinstance(mixer, Mamba2):
        return "" if mixer.beside_attention else MAMBA
    if isinstance(mixer, GatedDeltaNet):
        return DELTA
    if mixer is not None:
        return ""
    return ATTENTION if kind.mla is None else SPARSE if kind.mla.indexer else LATENT


def by_letters(model: ModelSpec) -> bool:
    """Whether Megatron-LM says the layers of the model by letters: each has one."""
    predicted = mtp_kinds(model) if model.mtp_layers else ()
    return all(map(letter, (*kinds(model).values(), *predicted)))


def pattern(model: ModelSpec, sizes: tuple[int, ...] = ()) -> Pattern:
    """The pattern of a model of letters; sizes: layers of each (virtual) stage, none where no
    bounds are stated.
    """
    each = {name: letter(kind) for name, kind in kinds(model).items()}
    letters = "".join(each[name] for name in layer_kinds(model))
    stages, begin = [], 0
    for size in sizes or (len(letters),):
        stages.append(letters[begin : begin + size])
        begin += size
    if not model.mtp_layers:
        return Pattern(tuple(stages))
    prediction = "".join(map(letter, mtp_kinds(model)))
    return Pattern(tuple(stages), prediction, model.mtp_layers)
