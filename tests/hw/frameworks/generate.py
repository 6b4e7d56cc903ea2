"""transformers.generate, greedy, with a small model of random weights: prints the tokens, 96 a row unless it says otherwise."""
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM


def main(count=96):
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=4096, hidden_size=512, intermediate_size=1408, num_hidden_layers=6,
                         num_attention_heads=8, num_key_value_heads=4, max_position_embeddings=512, bos_token_id=1,
                         eos_token_id=None, pad_token_id=0)
    model = LlamaForCausalLM(config).cuda().eval()
    prompts = torch.randint(2, 4096, (4, 32), generator=torch.Generator().manual_seed(5)).cuda()
    tokens = model.generate(prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=count, do_sample=False)
    for row in tokens[:, prompts.shape[1]:].tolist():
        print(*row)


main(*map(int, sys.argv[1:]))
