"""ppplan: plans and tunes the parallelism of LLM training from an analytic cost model."""

__version__ = "0.2.0"
