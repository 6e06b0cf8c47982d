"""Sources of formulas and constants: the keys that docstrings and documents cite in square
brackets.
"""

from __future__ import annotations

REFERENCES: dict[str, str] = {
    "narayanan2021": (
        "Narayanan et al., Efficient Large-Scale LM Training on GPU Clusters Using Megatron-LM,"
        " SC21, arXiv 2104.04473"
    ),
    "korthikanti2022": (
        "Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, arXiv"
        " 2205.05198"
    ),
    "nanotron": "Hugging Face nanotron, github.com/huggingface/nanotron, February 2025",
    "megatron-core": "NVIDIA Megatron-LM, megatron-core 0.19, github.com/NVIDIA/Megatron-LM",
    "hf-transformers": (
        "Hugging Face Transformers 5.24, github.com/huggingface/transformers: model classes built"
        " on the meta device"
    ),
    "gpt-neox": (
        "EleutherAI GPT-NeoX, May 2026, github.com/EleutherAI/gpt-neox: arguments, transformer"
    ),
    "megatron-deepspeed": (
        "DeepSpeed's Megatron-DeepSpeed, github.com/deepspeedai/Megatron-DeepSpeed, 2025: arguments"
    ),
    "nemo": "NVIDIA NeMo 1 and 2, github.com/NVIDIA/NeMo: configuration of language models",
    "megatron-bridge": (
        "NVIDIA Megatron-Bridge, 2026, github.com/NVIDIA-NeMo/Megatron-Bridge: configuration,"
        " recipes"
    ),
    "primus": (
        "AMD Primus, 2026, github.com/AMD-AGI/Primus: configuration of Megatron and torchtitan"
    ),
    "torchtitan": (
        "PyTorch torchtitan 2024 to 2026, github.com/pytorch/torchtitan: job configuration, metrics"
    ),
    "accelerate": (
        "Hugging Face Accelerate 1, github.com/huggingface/accelerate: configuration, plugins"
    ),
    "skypilot": "SkyPilot 0.14, github.com/skypilot-org/skypilot: tasks, names of GPUs",
    "huang2019": (
        "Huang et al., GPipe: Efficient Training of Giant Neural Networks using Pipeline"
        " Parallelism, arXiv 1811.06965"
    ),
    "qi2023": "Qi et al., Zero Bubble Pipeline Parallelism, arXiv 2401.10241",
    "qi2024": "Qi et al., Pipeline Parallelism with Controllable Memory, arXiv 2405.15362",
    "lamypoirier2023": "Lamy-Poirier, Breadth-First Pipeline Parallelism, arXiv 2211.05953",
    "gu2023": (
        "Gu, Dao, Mamba: Linear-Time Sequence Modeling with Selective State Spaces, arXiv"
        " 2312.00752"
    ),
    "dao2024": (
        "Dao, Gu, Transformers are SSMs: Generalized Models and Efficient Algorithms Through"
        " Structured State Space Duality, ICML 2024, arXiv 2405.21060"
    ),
    "deepseek2024": "DeepSeek-AI, DeepSeek-V3 Technical Report, arXiv 2412.19437",
    "deepseek2025": "DeepSeek-AI, DeepSeek-V3.2, arXiv 2512.02556: sparse attention, its indexer",
    "flashmla": "FlashMLA, github.com/deepseek-ai/FlashMLA, 2026: rates of sparse attention",
    "mamba-ssm": "state-spaces/mamba, github.com/state-spaces/mamba, 2026: kernels of SSD",
    "flash-linear-attention": (
        "flash-linear-attention, github.com/fla-org/flash-linear-attention, 2026: kernels of linear"
        " attention, and their times on GB200 and H100"
    ),
    "flaggems": "FlagGems, github.com/flagos-ai: KDA and the gated delta rule on one GPU, 2026",
    "tilelang": (
        "TileLang, github.com/tile-ai/tilelang, benchmark/mamba2: the chunk scan of Mamba-2 on H800"
    ),
    "minimax2025": (
        "MiniMax-01: Scaling Foundation Models with Lightning Attention, arXiv 2501.08313"
    ),
    "deepep": (
        "DeepSeek-AI, DeepEP, github.com/deepseek-ai/DeepEP: kernels, measured dispatch and combine"
    ),
    "deepspeed": "DeepSpeed ZeRO 0.3 to 0.19, github.com/deepspeedai/DeepSpeed: runtime/zero",
    "ml-engineering": (
        "Bekman, Machine Learning Engineering, github.com/stas00/ml-engineering: Llama 3.1 8B on"
        " H200 and B200"
    ),
    "torch-fsdp": (
        "PyTorch torch.distributed.fsdp: full shard, backward prefetch, limit_all_gathers (1.13 to"
        " 2.13)"
    ),
    "torch-checkpoint": (
        "PyTorch torch.utils.checkpoint 2.1 and later, non-reentrant: set_checkpoint_early_stop"
    ),
    "torch-pipelining": "PyTorch torch.distributed.pipelining 2.13",
    "daly2006": (
        "Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, FGCS"
        " 22, 2006"
    ),
    "young1974": (
        "Young, A first order approximation to the optimum checkpoint interval, CACM 17, 1974"
    ),
    "rajbhandari2020": (
        "Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models,"
        " arXiv 1910.02054"
    ),
    "dao2022": "Dao et al., FlashAttention, arXiv 2205.14135; FlashAttention-2, arXiv 2307.08691",
    "patarasuk2009": (
        "Patarasuk and Yuan, Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations,"
        " JPDC 2009"
    ),
    "nccl-tuning": "NVIDIA NCCL, src/graph/tuning.cc: latencies of protocols and algorithms",
    "aiconfigurator": (
        "NVIDIA aiconfigurator-core 0.12.0 (Apache-2.0): measured kernel and collective latencies"
    ),
    "transformer-engine": "NVIDIA Transformer Engine 2, github.com/NVIDIA/TransformerEngine",
    "aleph-alpha-scaling": (
        "Aleph Alpha, Scaling, github.com/Aleph-Alpha/scaling; runs: Hagemann et al., arXiv"
        " 2311.05610"
    ),
    "simumax": "SimuMax (Apache-2.0): measured kernel efficiencies and modelling notes",
    "abramowitz1964": "Abramowitz and Stegun, Handbook of Mathematical Functions, 1964",
    "grattafiori2024": "Grattafiori et al., The Llama 3 Herd of Models, arXiv 2407.21783",
    "hu2021": "Hu et al., LoRA: Low-Rank Adaptation of Large Language Models, arXiv 2106.09685",
    "dettmers2023": (
        "Dettmers et al., QLoRA: Efficient Finetuning of Quantized LLMs, arXiv 2305.14314"
    ),
    "dettmers2022": (
        "Dettmers et al., 8-bit Optimizers via Block-wise Quantization, arXiv 2110.02861;"
        " bitsandbytes: blocks of 256"
    ),
    "jordan2024": (
        "Jordan et al., Muon: An optimizer for hidden layers in neural networks,"
        " kellerjordan.github.io/posts/muon, 2024"
    ),
    "torch-optim": "PyTorch torch.optim 2.13: Adafactor, SGD",
    "vtrain": "Bang et al., vTrain, arXiv 2312.12391; data under MIT licence",
}
