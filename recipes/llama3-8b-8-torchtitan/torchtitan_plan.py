"""llama3-8b on 8 GPUs of h100-sxm, bf16, torch 2.13; by ppplan

torchtitan 0.3 reads this: `--module torchtitan_plan --config plan`.
"""

from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.components.optimizer import default_adamw
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataLoader
from torchtitan.models.common.config_utils import decoder_vocab_size
from torchtitan.models.llama3 import model_registry
from torchtitan.trainer import Trainer


def plan() -> Trainer.Config:
    model = model_registry("8B")
    loss = CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(model))
    optimizer = default_adamw(lr=3e-4)
    return Trainer.Config(
        model_spec=model,
        loss=ChunkedLossWrapper.Config(num_chunks=8, loss_fn=loss),
        optimizer=optimizer,
        training=TrainingConfig(
            local_batch_size=1,
            global_batch_size=512,
            seq_len=8192,
            mixed_precision_param="bfloat16",
            disable_cuda_graphs=True,
        ),
        parallelism=ParallelismConfig(
            data_parallel_replicate_degree=1,
            data_parallel_shard_degree=8,
            fsdp_reshard_after_forward="never",
            tensor_parallel_degree=1,
            context_parallel_degree=1,
            expert_parallel_degree=1,
            enable_sequence_parallel=False,
        ),
        activation_checkpoint=None,
        compile=CompileConfig(enable=True),
        dataloader=HuggingFaceTextDataLoader.Config(dataset="c4"),
    )


if __name__ == "__main__":
    from torchtitan.train import main

    main()
