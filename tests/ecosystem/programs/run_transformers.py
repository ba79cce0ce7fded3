"""transformers: tiny models of six kinds; losses, logits, AdamW, generation, folders."""

import os
import tempfile

import torch
import transformers as t
from common import digest, draw_by_numpy, fill, normal, tell, tokens, train

SMALL = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
ids = tokens(2, 9)
numbers = {}


def causal(name, model):
    model = fill(model.eval())
    numbers[name] = digest(model(ids).logits)
    for way in (dict(), dict(num_beams=3)):
        made = model.generate(ids[:, :4], max_new_tokens=6, do_sample=False, pad_token_id=0, **way)
        numbers[f"{name} tokens {way}"] = made.flatten().tolist()
    draw_by_numpy()
    sampling = dict(do_sample=True, temperature=0.7, top_k=20, top_p=0.9, pad_token_id=0)
    made = model.generate(ids[:, :4], max_new_tokens=6, **sampling)
    numbers[f"{name} sampled"] = made.flatten().tolist()
    for kept in (True, False):  # keys and values of earlier tokens
        made = model.generate(ids[:, :4], max_new_tokens=6, do_sample=False, use_cache=kept)
        numbers[f"{name} cache {kept}"] = made.flatten().tolist()
    first = model(ids[:, :5], use_cache=True)
    rest = model(ids[:, 5:], past_key_values=first.past_key_values)
    numbers[f"{name} continued"] = digest(rest.logits)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, max_shard_size="20KB")
        again = type(model).from_pretrained(folder).eval()
        numbers[f"{name} files"] = len([f for f in os.listdir(folder) if "safetensors" in f])
        numbers[f"{name} again"] = digest(again(ids).logits)
    model.train()
    numbers[f"{name} losses"] = train(model, lambda: model(ids, labels=ids).loss)


torch.manual_seed(0)
causal(
    "gpt2",
    t.GPT2LMHeadModel(
        t.GPT2Config(
            vocab_size=50,
            n_embd=32,
            n_layer=2,
            n_head=4,
            n_positions=32,
            resid_pdrop=0,
            embd_pdrop=0,
            attn_pdrop=0,
            bos_token_id=0,
            eos_token_id=0,
        )
    ),
)
causal(
    "llama",
    t.LlamaForCausalLM(
        t.LlamaConfig(
            vocab_size=50,
            num_key_value_heads=2,
            max_position_embeddings=32,
            bos_token_id=0,
            eos_token_id=0,
            **SMALL,
        )
    ),
)
causal(
    "qwen2",
    t.Qwen2ForCausalLM(
        t.Qwen2Config(
            vocab_size=50,
            num_key_value_heads=2,
            max_position_embeddings=32,
            bos_token_id=0,
            eos_token_id=0,
            **SMALL,
        )
    ),
)

bert = fill(
    t.BertForMaskedLM(
        t.BertConfig(
            vocab_size=50,
            hidden_dropout_prob=0,
            attention_probs_dropout_prob=0,
            max_position_embeddings=32,
            **SMALL,
        )
    )
)
mask = torch.ones_like(ids)
mask[0, 6:] = 0
numbers["bert"] = digest(bert(ids, attention_mask=mask).logits)
numbers["bert losses"] = train(bert, lambda: bert(ids, labels=ids).loss)

vit = fill(
    t.ViTForImageClassification(
        t.ViTConfig(
            image_size=16,
            patch_size=4,
            num_labels=5,
            hidden_dropout_prob=0,
            attention_probs_dropout_prob=0,
            **SMALL,
        )
    )
)
images = normal(2, 3, 16, 16)
numbers["vit"] = digest(vit(images).logits)
numbers["vit losses"] = train(vit, lambda: vit(images, labels=torch.tensor([1, 3])).loss)

whisper = fill(
    t.WhisperForConditionalGeneration(
        t.WhisperConfig(
            vocab_size=50,
            d_model=32,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            num_mel_bins=8,
            max_source_positions=16,
            max_target_positions=32,
            dropout=0,
            attention_dropout=0,
            activation_dropout=0,
            pad_token_id=0,
            bos_token_id=0,
            eos_token_id=0,
            decoder_start_token_id=1,
        )
    )
)
sound = normal(2, 8, 32)
numbers["whisper"] = digest(whisper(sound, decoder_input_ids=ids).logits)
made = whisper.generate(sound, max_new_tokens=6, do_sample=False, num_beams=2)
numbers["whisper tokens"] = made.flatten().tolist()
numbers["whisper losses"] = train(whisper, lambda: whisper(sound, labels=ids).loss)

with tempfile.TemporaryDirectory() as folder:
    bert.save_pretrained(folder)
    again = t.BertForMaskedLM.from_pretrained(folder)
    same = [torch.equal(a, b) for a, b in zip(bert.parameters(), again.parameters())]
numbers["from_pretrained"] = [sum(same), len(same)]
tell(**numbers)
