"""peft: LoRA on a small Llama: trainable parameters, losses, merged logits."""

import torch
import transformers as t
from common import digest, fill, tell, tokens
from peft import LoraConfig, get_peft_model

ids = tokens(2, 9)
torch.manual_seed(0)
model = t.LlamaForCausalLM(
    t.LlamaConfig(
        vocab_size=50,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        num_key_value_heads=2,
        max_position_embeddings=32,
        bos_token_id=0,
        eos_token_id=0,
    )
)
model = get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0))
fill(model)
trainable = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(trainable, lr=1e-2)
losses = []
for _ in range(3):
    optimizer.zero_grad()
    loss = model(ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
merged = model.merge_and_unload()
tell(count=len(trainable), losses=losses, merged=digest(merged(ids).logits))
