"""transformers: tiny models of many architectures: results, a loss, gradients, greedy tokens."""

import copy
import zlib

import numpy as np
import torch
import transformers
from common import cases_of, digest, tell, tokens

transformers.logging.set_verbosity_error()

# The sizes that most configurations know by these names.
SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 96,
    "max_position_embeddings": 64,
}
LANGUAGE = {
    "mamba": {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 96, "state_size": 8},
    "mamba2": {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "vocab_size": 96,
        "state_size": 8,
        "num_heads": 8,
        "head_dim": 8,
        "expand": 2,
        "n_groups": 1,
        "chunk_size": 8,
    },
    "falcon_mamba": {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 96, "state_size": 8},
    "mistral": {**SMALL, "num_key_value_heads": 2, "head_dim": 8},
    "gemma": {**SMALL, "num_key_value_heads": 2, "head_dim": 8},
    "gemma2": {**SMALL, "num_key_value_heads": 2, "head_dim": 8},
    "gemma3_text": {**SMALL, "num_key_value_heads": 2, "head_dim": 8},
    "phi": SMALL,
    "phi3": {**SMALL, "num_key_value_heads": 2, "pad_token_id": 0},
    "qwen2": {**SMALL, "num_key_value_heads": 2},
    "qwen3": {**SMALL, "num_key_value_heads": 2, "head_dim": 8},
    "olmo": {**SMALL, "pad_token_id": 0, "eos_token_id": 1},
    "olmo2": {**SMALL, "pad_token_id": 0, "eos_token_id": 1},
    "granite": {**SMALL, "num_key_value_heads": 2},
    "stablelm": {**SMALL, "num_key_value_heads": 2},
    "starcoder2": {**SMALL, "num_key_value_heads": 2},
    "cohere": {**SMALL, "num_key_value_heads": 2},
    "falcon": {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 96,
    },
    "bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 96},
    "gpt_neox": SMALL,
    "gptj": {
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 4,
        "rotary_dim": 4,
        "vocab_size": 96,
        "n_positions": 64,
    },
    "gpt_neo": {
        "hidden_size": 32,
        "num_layers": 2,
        "num_heads": 4,
        "attention_types": [[["global", "local"], 1]],
        "vocab_size": 96,
        "max_position_embeddings": 64,
    },
    "opt": {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "ffn_dim": 48,
        "vocab_size": 96,
        "max_position_embeddings": 64,
        "word_embed_proj_dim": 32,
    },
    "codegen": {
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 4,
        "rotary_dim": 4,
        "vocab_size": 96,
        "n_positions": 64,
    },
    "biogpt": SMALL,
    "ctrl": {
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 4,
        "dff": 48,
        "vocab_size": 96,
        "n_positions": 64,
    },
    "recurrent_gemma": {
        "hidden_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 48,
        "vocab_size": 96,
        "max_position_embeddings": 64,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "lru_width": 32,
        "attention_window_size": 16,
    },
    "persimmon": SMALL,
    "nemotron": {**SMALL, "num_key_value_heads": 2},
    "mpt": {"d_model": 32, "n_heads": 4, "n_layers": 2, "vocab_size": 96, "max_seq_len": 64},
}
SEQUENCES = {
    "t5": {
        "d_model": 32,
        "d_kv": 8,
        "d_ff": 48,
        "num_layers": 2,
        "num_heads": 4,
        "vocab_size": 96,
        "decoder_start_token_id": 0,
    },
    "mt5": {
        "d_model": 32,
        "d_kv": 8,
        "d_ff": 48,
        "num_layers": 2,
        "num_heads": 4,
        "vocab_size": 96,
        "decoder_start_token_id": 0,
    },
    "bart": {
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48,
        "vocab_size": 96,
        "max_position_embeddings": 64,
    },
    "pegasus": {
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48,
        "vocab_size": 96,
        "max_position_embeddings": 64,
    },
    "marian": {
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48,
        "vocab_size": 96,
        "max_position_embeddings": 64,
        "decoder_start_token_id": 0,
        "pad_token_id": 95,
    },
    "led": {
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48,
        "vocab_size": 96,
        "max_encoder_position_embeddings": 64,
        "max_decoder_position_embeddings": 64,
        "attention_window": 8,
    },
    "prophetnet": {
        "hidden_size": 32,
        "num_encoder_layers": 2,
        "num_decoder_layers": 2,
        "num_encoder_attention_heads": 4,
        "num_decoder_attention_heads": 4,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48,
        "vocab_size": 96,
        "max_position_embeddings": 64,
    },
    "switch_transformers": {
        "d_model": 32,
        "d_kv": 8,
        "d_ff": 48,
        "num_layers": 2,
        "num_decoder_layers": 2,
        "num_heads": 4,
        "vocab_size": 96,
        "num_experts": 2,
        "decoder_start_token_id": 0,
    },
}
MASKED = {
    "bert": SMALL,
    "roberta": {**SMALL, "pad_token_id": 1},
    "distilbert": {
        "dim": 32,
        "n_layers": 2,
        "n_heads": 4,
        "hidden_dim": 48,
        "vocab_size": 96,
        "max_position_embeddings": 64,
    },
    "albert": {**SMALL, "embedding_size": 16},
    "electra": {**SMALL, "embedding_size": 16},
    "deberta": SMALL,
    "deberta-v2": {
        **SMALL,
        "relative_attention": True,
        "pos_att_type": ["p2c", "c2p"],
        "position_buckets": 8,
    },
    "mobilebert": {
        **SMALL,
        "embedding_size": 16,
        "intra_bottleneck_size": 16,
        "true_hidden_size": 16,
    },
    "mpnet": SMALL,
    "funnel": {
        "vocab_size": 96,
        "block_sizes": [1, 1],
        "num_decoder_layers": 1,
        "d_model": 32,
        "n_head": 4,
        "d_head": 8,
        "d_inner": 48,
    },
    "longformer": {**SMALL, "attention_window": [8, 8], "pad_token_id": 1},
    "big_bird": {**SMALL, "attention_type": "original_full"},
    "fnet": SMALL,
    "nystromformer": {**SMALL, "num_landmarks": 4, "segment_means_seq_len": 16},
    "convbert": {**SMALL, "embedding_size": 16},
    "roformer": {**SMALL, "embedding_size": 16},
    "xlm-roberta": {**SMALL, "pad_token_id": 1},
    "modernbert": {**SMALL, "pad_token_id": 0},
    "esm": {**SMALL, "pad_token_id": 1, "mask_token_id": 2},
}
IMAGES = {
    "vit": {**SMALL, "image_size": 16, "patch_size": 4},
    "deit": {**SMALL, "image_size": 16, "patch_size": 4},
    "swin": {
        "image_size": 16,
        "patch_size": 2,
        "embed_dim": 8,
        "depths": [1, 1],
        "num_heads": [2, 2],
        "window_size": 4,
    },
    "convnext": {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2},
    "convnextv2": {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2},
    "resnet": {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]},
    "beit": {**SMALL, "image_size": 16, "patch_size": 4},
    "dinov2": {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "image_size": 16,
        "patch_size": 4,
    },
    "poolformer": {"hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1]},
    "regnet": {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "groups_width": 4},
    "mobilenet_v2": {"image_size": 32},
    "segformer": {
        "hidden_sizes": [8, 16],
        "depths": [1, 1],
        "num_encoder_blocks": 2,
        "sr_ratios": [2, 1],
        "patch_sizes": [3, 3],
        "strides": [2, 2],
        "num_attention_heads": [1, 2],
        "mlp_ratios": [2, 2],
    },
    "pvt_v2": {
        "image_size": 32,
        "hidden_sizes": [8, 16, 16, 16],
        "depths": [1, 1, 1, 1],
        "num_attention_heads": [1, 2, 2, 2],
    },
    "levit": {
        "image_size": 64,
        "hidden_sizes": [16, 32, 32],
        "num_attention_heads": [2, 2, 2],
        "depths": [1, 1, 1],
        "key_dim": [8, 8, 8],
    },
}
SOUNDS = {
    "wav2vec2": {
        **SMALL,
        "conv_dim": (16, 16),
        "conv_stride": (5, 2),
        "conv_kernel": (10, 3),
        "num_feat_extract_layers": 2,
        "num_conv_pos_embeddings": 8,
        "num_conv_pos_embedding_groups": 2,
    },
    "hubert": {
        **SMALL,
        "conv_dim": (16, 16),
        "conv_stride": (5, 2),
        "conv_kernel": (10, 3),
        "num_feat_extract_layers": 2,
        "num_conv_pos_embeddings": 8,
        "num_conv_pos_embedding_groups": 2,
    },
    "wavlm": {
        **SMALL,
        "conv_dim": (16, 16),
        "conv_stride": (5, 2),
        "conv_kernel": (10, 3),
        "num_feat_extract_layers": 2,
        "num_conv_pos_embeddings": 8,
        "num_conv_pos_embedding_groups": 2,
    },
}
KINDS = {
    "AutoModelForCausalLM": LANGUAGE,
    "AutoModelForSeq2SeqLM": SEQUENCES,
    "AutoModelForMaskedLM": MASKED,
    "AutoModel": {**IMAGES, **SOUNDS},
}
FOUND = {name: (kind, sizes) for kind, table in KINDS.items() for name, sizes in table.items()}


def named_weights(model):
    """Set every parameter by its name: architectures register them in any order."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            numbers = np.random.default_rng(zlib.crc32(name.encode()))
            made = numbers.standard_normal(tuple(parameter.shape)) * 0.2
            parameter.copy_(torch.from_numpy(np.asarray(made)))
    return model


@cases_of(FOUND)
def architecture(name):
    kind, sizes = FOUND[name]
    config = transformers.AutoConfig.for_model(name, **copy.deepcopy(sizes))
    if hasattr(config, "mask_time_prob"):
        config.mask_time_prob = 0.0
    model = named_weights(getattr(transformers, kind).from_config(config).double()).eval()
    numbers = np.random.default_rng(1)
    if name in SOUNDS:
        result = model(torch.from_numpy(numbers.standard_normal((2, 400)))).last_hidden_state
    elif name in IMAGES:
        side = sizes.get("image_size", 32)
        pixels = numbers.standard_normal((2, 3, side, side))
        result = model(pixel_values=torch.from_numpy(pixels)).last_hidden_state
    else:
        read = tokens(2, 16, most=90)
        told = model(input_ids=read, labels=read.clone())
        result, loss = told.logits, told.loss
    if name in {**SOUNDS, **IMAGES}:
        loss = result.square().mean()
    loss.backward()
    slopes = [p.grad.abs().sum().item() for p in model.parameters() if p.grad is not None]
    found = {"result": digest(result), "loss": loss.item(), "gradients": sum(slopes)}
    if name in {**LANGUAGE, **SEQUENCES}:
        with torch.no_grad():
            made = model.generate(read[:, :5], max_new_tokens=6, do_sample=False, pad_token_id=0)
        found["tokens"] = made.tolist()
    return found


tell()
