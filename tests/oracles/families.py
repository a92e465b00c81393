"""Tiny random models of the families of 2026, written as GGUF files by llama.cpp's own converter.

`models_golden.py` writes the rows below beside its own.  A row is a class of transformers, the fields of its
configuration, and changes of these fields that the golden must notice.  llama.cpp's converter (the folder that
`--llama-cpp` names, of llama-cpp-python's source package) turns the saved checkpoint into the GGUF file, so that the
file has the names, the metadata and the row orders that files of users have; only the vocabulary is ours.
"""
import contextlib
import importlib
import io
import json
import math
import re
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

import own_models
import own_names

EPS = 2e-2      # large, so that residuals of ordinary size show it


@dataclass
class Family:
    """One golden."""
    name: str
    arch: str                    # what the converter calls it
    cls: str                     # the class of transformers, without ForCausalLM
    fields: dict                 # of its configuration
    n_tokens: int = 72
    seed: int = 1
    changes: dict = field(default_factory=dict)     # field: another value, which must move the logits
    tensors: dict = field(default_factory=dict)     # part of a parameter's name: (mean, standard deviation)
    experts: tuple = ()          # (experts, experts in use), for the check that no choice is close
    router: str = "gate"         # the module of a layer's `mlp` that chooses experts
    head: str = "ForCausalLM"    # the rest of the class's name; Model: the result is the hidden states
    first_of_second: int = 0     # where a second text begins, which a classifier compares with the first
    files: dict = field(default_factory=dict)       # JSON files of the checkpoint: fields to be added to them; None: removed
    silent: tuple = ()           # parameters that move nothing: softmax takes no note of a bias of keys
    keys: dict = field(default_factory=dict)        # numbers to be added to the file's metadata, without the architecture
    around: dict = field(default_factory=dict)      # of a model with other modalities, whose `text_config` the fields are
    nmse: float = 1e-9
    hparams: dict = field(default_factory=dict)     # fields that the converter reads and transformers 5 calls otherwise
    renames: dict = field(default_factory=dict)     # patterns of tensors' names that transformers saves otherwise than the Hub has them


def sizes(**more):
    """Fields that most configurations have."""
    return dict(vocab_size=96, hidden_size=32, intermediate_size=44, num_hidden_layers=4, num_attention_heads=4,
                num_key_value_heads=2, max_position_embeddings=256, tie_word_embeddings=False,
                bos_token_id=1, eos_token_id=2, pad_token_id=0, use_cache=False, attn_implementation="eager",
                dtype="float32") | more


QWEN35 = dict(rms_norm_eps=EPS, head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=12, linear_value_head_dim=10,
              rope_parameters={"rope_type": "default", "rope_theta": 50.0, "partial_rotary_factor": 0.5,
                               "mrope_section": [2, 1, 1], "mrope_interleaved": True})
QWEN35_CHANGES = {"rms_norm_eps": 2 * EPS,
                  "rope_parameters": QWEN35["rope_parameters"] | {"rope_theta": 200.0},
                  "layer_types": ["linear_attention"] * 2 + ["full_attention"] * 2}
QWEN_EXPERTS = dict(num_experts=6, num_experts_per_tok=3, moe_intermediate_size=12, shared_expert_intermediate_size=20,
                    experts_implementation="eager")

# A budget of the indexer below the length of the text, so that attention sees six of its blocks at most.
STREAMS = dict(hc_count=3, hc_lowrank=5, output_gate_type="sigmoid", ple_layer_ids=[], indexer_n_heads=6, indexer_kv_heads=1,
               indexer_head_dim=10, indexer_budget=24, indexer_compress_ratio=4, max_position_embeddings=128)
STREAMS_LAYERS = ["linear_attention", "full_attention", "linear_attention"]
NGRAMS = dict(ple_layer_ids=[3], ple_embed_dim=36, ple_conv_kernel_size=3, ngram_size=3, heads_per_ngram=2, ngram_vocab_size_base=40,
              make_ngram_vocab_size_divisible_by=16, split_ngram_parts=3)
INDEXER_TENSORS = {"index_qk_proj": (0.0, 0.04)}     # small, so that the eps of the norms behind it shows

LFM2 = dict(norm_eps=EPS, rope_parameters={"rope_type": "default", "rope_theta": 50.0},
            layer_types=["conv", "full_attention", "conv", "full_attention"])
LFM2_TENSORS = {"q_layernorm": (2.0, 0.7), "k_layernorm": (2.0, 0.7), "self_attn.out_proj": (0.0, 0.15),
                "conv.in_proj": (0.0, 0.22), "conv.out_proj": (0.0, 0.15), "feed_forward.w2": (0.0, 0.12)}
LFM2_CHANGES = {"norm_eps": 2 * EPS, "rope_parameters": {"rope_type": "default", "rope_theta": 200.0}}

LFM3 = dict(norm_eps=EPS, head_dim=12, sliding_window=13, conv_L_cache=7, tie_word_embeddings=True,
            rope_parameters={"sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
                             "full_attention": {"rope_type": "proportional", "rope_theta": 300.0, "partial_rotary_factor": 0.5}},
            layer_types=["conv", "sliding_attention", "full_attention", "conv", "sliding_attention"])
LFM3_CHANGES = {"norm_eps": 2 * EPS, "sliding_window": 11} | {
    "rope_parameters": LFM3["rope_parameters"] | {"sliding_attention": {"rope_type": "default", "rope_theta": 70.0}}}

PLAIN = dict(rms_norm_eps=EPS, rope_parameters={"rope_type": "default", "rope_theta": 50.0})
PLAIN_CHANGES = {"rms_norm_eps": 2 * EPS, "rope_parameters": {"rope_type": "default", "rope_theta": 200.0}}
VISION = dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=2, patch_size=2, out_hidden_size=32)
SECTIONS = PLAIN | {"rope_parameters": PLAIN["rope_parameters"] | {"mrope_section": [2, 1, 1]}}
QWEN3_SECTIONS = SECTIONS | {"head_dim": 10, "rope_parameters": PLAIN["rope_parameters"] | {"mrope_section": [2, 2, 1]}}
SHARP = {"q_norm": (1.3, 0.4), "k_norm": (1.3, 0.4)}

GEMMA4 = dict(rms_norm_eps=0.1, head_dim=12, global_head_dim=16, num_hidden_layers=6, sliding_window=13, final_logit_softcapping=2.0,
              layer_types=["sliding_attention", "full_attention"] * 3, tie_word_embeddings=True,
              rope_parameters={"sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
                               "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": 300.0}})
GEMMA4_CHANGES = {"rms_norm_eps": 0.2, "sliding_window": 11, "final_logit_softcapping": 3.0,
                  "rope_parameters": GEMMA4["rope_parameters"] | {"sliding_attention": {"rope_type": "default", "rope_theta": 70.0}}}
# Small queries, keys and values: their norms would hide a change of the epsilon of the norm before.
GEMMA4_TENSORS = {name: (0.0, 0.04) for name in ("q_proj", "k_proj", "v_proj")}
GEMMA3N = dict(rms_norm_eps=0.1, head_dim=12, sliding_window=13, final_logit_softcapping=2.0, hidden_size_per_layer_input=8,
               vocab_size_per_layer_input=96, laurel_rank=6, tie_word_embeddings=True,
               rope_parameters={"sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
                                "full_attention": {"rope_type": "default", "rope_theta": 300.0}})
GEMMA3N_TENSORS = GEMMA4_TENSORS | {"correct_output_scale": (1.0, 0.3), "modality_router": (0.0, 5.0), "correction_coefs": (0.0, 0.4), "prediction_coefs": (0.0, 0.3)}
NO_LAYER_EMBEDDINGS = dict(hidden_size_per_layer_input=0, vocab_size_per_layer_input=1)

GLM4MOE = PLAIN | dict(head_dim=12, partial_rotary_factor=0.5, rope_parameters=PLAIN["rope_parameters"] | {"partial_rotary_factor": 0.5},
                       num_experts_per_tok=3, moe_intermediate_size=12, experts_implementation="eager")
GLM4MOE_CHANGES = PLAIN_CHANGES | {"num_experts_per_tok": 2, "routed_scaling_factor": 1.0,
                                   "rope_parameters": GLM4MOE["rope_parameters"] | {"rope_theta": 200.0}}

GRANITE = dict(embedding_multiplier=3.0, residual_multiplier=0.5, attention_multiplier=0.4, logits_scaling=4.0)
GRANITE_CHANGES = {name: 1.5 * value for name, value in GRANITE.items()}

# Small residuals, queries and keys, because its converter writes an eps of 1e-5 whatever that of the model is.
OLMOE_TENSORS = {"embed": (0.0, 0.01), "o_proj": (0.0, 0.003), "down_proj": (0.0, 0.012), "q_proj": (0.0, 0.004), "k_proj": (0.0, 0.004)}

# The factor of rotated elements is the one that llama.cpp's converter computes.
LONG = {"rope_type": "longrope", "rope_theta": 50.0, "short_factor": [1.0, 1.3, 1.2, 1.5], "long_factor": [1.0, 2.5, 4.0, 5.0],
        "original_max_position_embeddings": 4096} | {name: (1 + math.log(4) / math.log(4096)) ** 0.5 for name in ("short_mscale", "long_mscale")}
PHIMOE = dict(rms_norm_eps=EPS, rope_parameters=LONG)

FAMILIES = [
    Family("ernie4_5", "ernie4_5", "Ernie4_5", sizes(**PLAIN, head_dim=12, tie_word_embeddings=True), seed=8, changes=PLAIN_CHANGES),
    Family("seed_oss", "seed_oss", "SeedOss", sizes(**PLAIN, head_dim=12), seed=9, changes=PLAIN_CHANGES),
    Family("qwen2vl", "qwen2vl", "Qwen2_5_VL", sizes(**SECTIONS), seed=10, changes={"rms_norm_eps": 2 * EPS},
           around={"vision_config": VISION | {"fullatt_block_indexes": [0]}}),
    Family("qwen3vl", "qwen3vl", "Qwen3VL", sizes(**QWEN3_SECTIONS), seed=11, changes={"rms_norm_eps": 2 * EPS}, tensors=SHARP,
           around={"vision_config": VISION | {"deepstack_visual_indexes": [0], "num_position_embeddings": 4}}),
    Family("lfm2", "lfm2", "Lfm2", sizes(**LFM2, intermediate_size=66, block_multiple_of=8, tie_word_embeddings=True),
           seed=5, changes=LFM2_CHANGES, tensors=LFM2_TENSORS),
    Family("lfm2-long", "lfm2", "Lfm2", sizes(**LFM2 | {"layer_types": ["full_attention", "conv", "conv"]}, num_hidden_layers=3,
           conv_L_cache=5, block_auto_adjust_ff_dim=False, tie_word_embeddings=True), seed=6, tensors=LFM2_TENSORS),
    Family("lfm2moe", "lfm2moe", "Lfm2Moe", sizes(**LFM2, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=12,
           num_dense_layers=1, experts_implementation="eager", tie_word_embeddings=True), seed=7, experts=(6, 3),
           tensors=LFM2_TENSORS | {"expert_bias": (0.0, 0.12), "experts.down_proj": (0.0, 0.15)}, changes=LFM2_CHANGES | {"num_experts_per_tok": 2}),
    Family("lfm3", "lfm3", "Lfm3", sizes(**LFM3, num_hidden_layers=5), seed=51, changes=LFM3_CHANGES,
           tensors={"operator_norm": (0.7, 0.2), "post_": (0.5, 0.2), "g_proj": (0.0, 0.5), "conv.in_proj": (0.0, 0.22),
                    "conv.out_proj": (0.0, 0.06), "o_proj": (0.0, 0.04), "feed_forward.w2": (0.0, 0.04)} | SHARP),
    Family("gemma4", "gemma4", "Gemma4", sizes(**GEMMA4 | dict(hidden_size_per_layer_input=8, vocab_size_per_layer_input=96,
           num_kv_shared_layers=3, use_double_wide_mlp=True, num_hidden_layers=7, num_key_value_heads=1,
           layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 2 + ["full_attention"])), seed=5,
           changes=GEMMA4_CHANGES, tensors=GEMMA4_TENSORS, nmse=1e-10),
    Family("gemma4-dense", "gemma4", "Gemma4", sizes(**GEMMA4, **NO_LAYER_EMBEDDINGS, attention_k_eq_v=True,
           num_global_key_value_heads=1), seed=6, changes=GEMMA4_CHANGES, tensors=GEMMA4_TENSORS, nmse=1e-10),
    Family("gemma4-moe", "gemma4", "Gemma4", sizes(**GEMMA4, **NO_LAYER_EMBEDDINGS, attention_k_eq_v=True,
           num_global_key_value_heads=1, enable_moe_block=True, num_experts=6, top_k_experts=3, moe_intermediate_size=12,
           experts_implementation="eager"), seed=7, experts=(6, 3),
           changes={"top_k_experts": 2}, tensors=GEMMA4_TENSORS, nmse=1e-10),
    Family("gemma3n", "gemma3n", "Gemma3n", sizes(**GEMMA3N, num_kv_shared_layers=3, num_hidden_layers=6, intermediate_size=[44, 36, 44, 44, 60, 44],
           layer_types=["sliding_attention", "sliding_attention", "full_attention"] + ["sliding_attention", "full_attention", "sliding_attention"],
           activation_sparsity_pattern=[0.9, 0.6, 0.0, 0.3, 0.0, 0.0]), seed=11,
           changes=GEMMA4_CHANGES | {"rope_parameters": GEMMA3N["rope_parameters"] | {"sliding_attention": {"rope_type": "default", "rope_theta": 70.0}},
           "altup_active_idx": 1, "activation_sparsity_pattern": [0.9, 0.6, 0.0, 0.0, 0.0, 0.0]}, tensors=GEMMA3N_TENSORS, keys={"laurel.rank": 6}, nmse=1e-10),
    Family("gemma3n-second", "gemma3n", "Gemma3n", sizes(**GEMMA3N | dict(altup_active_idx=1, tie_word_embeddings=False), num_kv_shared_layers=0,
           num_hidden_layers=2, layer_types=["sliding_attention", "full_attention"], activation_sparsity_pattern=[0.0, 0.8]), seed=12,
           tensors=GEMMA3N_TENSORS, keys={"laurel.rank": 6}, nmse=1e-10),
    Family("glm4moe", "glm4moe", "Glm4Moe", sizes(**GLM4MOE, num_hidden_layers=3, n_routed_experts=8, n_group=4, topk_group=2, n_shared_experts=2,
           routed_scaling_factor=1.7, attention_bias=True, use_qk_norm=True), seed=1, experts=(8, 3), tensors=SHARP,
           silent=("k_proj.bias",), changes=GLM4MOE_CHANGES | {"topk_group": 3, "use_qk_norm": False}),
    Family("glm4moe-air", "glm4moe", "Glm4Moe", sizes(**GLM4MOE, n_routed_experts=6, first_k_dense_replace=2, num_hidden_layers=3,
           routed_scaling_factor=0.8, norm_topk_prob=False), seed=2, experts=(6, 3), changes=GLM4MOE_CHANGES | {"norm_topk_prob": True}),
    Family("ernie4_5-moe", "ernie4_5-moe", "Ernie4_5_Moe", sizes(**PLAIN, head_dim=12, moe_num_experts=6, moe_k=3,
           moe_intermediate_size=11, moe_num_shared_experts=2, moe_layer_start_index=2, moe_layer_interval=2,
           experts_implementation="eager"), seed=3, experts=(6, 3), tensors={"e_score_correction_bias": (0.0, 0.1)},
           changes=PLAIN_CHANGES | {"moe_k": 2}),
    Family("olmoe", "olmoe", "Olmoe", sizes(**PLAIN | {"rms_norm_eps": 1e-5, "intermediate_size": 12}, num_hidden_layers=2, num_experts=6,
           num_experts_per_tok=3, experts_implementation="eager"), seed=4, experts=(6, 3), tensors=OLMOE_TENSORS,
           changes=PLAIN_CHANGES | {"rms_norm_eps": 2e-5, "num_experts_per_tok": 2, "norm_topk_prob": True}),
    Family("granitemoe", "granitemoe", "GraniteMoe", sizes(**PLAIN, **GRANITE, intermediate_size=12, num_hidden_layers=2,
           num_local_experts=6, num_experts_per_tok=3, experts_implementation="eager", tie_word_embeddings=True), seed=5, experts=(6, 3),
           changes=PLAIN_CHANGES | GRANITE_CHANGES | {"num_experts_per_tok": 2}),
    Family("granitemoe-shared", "granitemoe", "GraniteMoeShared", sizes(**PLAIN, **GRANITE, intermediate_size=12, num_hidden_layers=2,
           shared_intermediate_size=20, num_local_experts=5, num_experts_per_tok=2, experts_implementation="eager"), seed=6,
           experts=(5, 2), changes=GRANITE_CHANGES),
    Family("phimoe", "phimoe", "Phimoe", sizes(**PHIMOE, intermediate_size=12, num_hidden_layers=2, max_position_embeddings=16384, num_local_experts=6,
           num_experts_per_tok=2, attention_bias=True, lm_head_bias=True, experts_implementation="eager"), seed=8, experts=(6, 2),
           router="router", silent=("k_proj.bias",), files={"config.json": {"architectures": ["PhiMoEForCausalLM"]}},
           changes={"rms_norm_eps": 2 * EPS, "router_jitter_noise": 0.03, "rope_parameters": LONG | {"rope_theta": 200.0}}),
    Family("llama4", "llama4", "Llama4", sizes(**PLAIN | dict(intermediate_size=12), head_dim=12, intermediate_size_mlp=28,
           num_local_experts=6, num_experts_per_tok=2, interleave_moe_layer_step=2, attention_chunk_size=13, floor_scale=10, attn_scale=0.4),
           seed=9, experts=(6, 2), router="router", changes=PLAIN_CHANGES | {"attention_chunk_size": 17, "floor_scale": 7, "attn_scale": 0.8,
           "use_qk_norm": False, "attn_temperature_tuning": False},
           keys={"attention.sliding_window": 13, "attention.temperature_length": 10, "attention.temperature_scale": 0.4}),
    Family("qwen35", "qwen35", "Qwen3_5", sizes(**QWEN35), changes=QWEN35_CHANGES),
    Family("qwen35-tied", "qwen35", "Qwen3_5", sizes(**QWEN35 | {"linear_num_value_heads": 2, "linear_conv_kernel_dim": 3,
           "linear_key_head_dim": 16, "linear_value_head_dim": 16}, tie_word_embeddings=True, num_hidden_layers=3,
           layer_types=["linear_attention", "full_attention", "linear_attention"]), seed=2),
    Family("qwen35moe", "qwen35moe", "Qwen3_5Moe", sizes(**QWEN35, **QWEN_EXPERTS), seed=3, experts=(6, 3),
           changes={"num_experts_per_tok": 2}),
    # The converter takes transformers' name of layers with attention for that of others.
    Family("qwen4exp-streams", "qwen4exp", "Qwen4Exp", sizes(**QWEN35, **QWEN_EXPERTS | dict(moe_intermediate_size=8,
           shared_expert_intermediate_size=12), **STREAMS, num_hidden_layers=3, layer_types=STREAMS_LAYERS), seed=5, experts=(6, 3),
           hparams={"layer_types": STREAMS_LAYERS}, tensors=INDEXER_TENSORS, changes={"rms_norm_eps": 2 * EPS, "num_experts_per_tok": 2,
           "indexer_budget": 20,
           "output_gate_type": "silu", "rope_parameters": QWEN35_CHANGES["rope_parameters"],
           "layer_types": ["linear_attention"] * 2 + ["full_attention"]}),
    # A text that has the end of a text inside.
    Family("qwen4exp-ngrams", "qwen4exp", "Qwen4Exp", sizes(**QWEN35, **QWEN_EXPERTS | dict(moe_intermediate_size=8,
           shared_expert_intermediate_size=12), **STREAMS | NGRAMS, num_hidden_layers=3, layer_types=STREAMS_LAYERS) | {"eos_token_id": 90},
           seed=60, experts=(6, 3), tensors=INDEXER_TENSORS | {"ple.conv1d": (0.0, 0.6), "ngram_embedding": (0.0, 0.5)},
           hparams={"layer_types": STREAMS_LAYERS}, changes={"eos_token_id": 5, "rms_norm_eps": 2 * EPS}),
    Family("qwen3next", "qwen3next", "Qwen3Next", sizes(**QWEN35 | {"rope_parameters": {"rope_type": "default",
           "rope_theta": 500.0, "partial_rotary_factor": 0.5}}, **QWEN_EXPERTS, norm_topk_prob=True), seed=4, experts=(6, 3),
           changes={"num_experts_per_tok": 2}),
]

# A configuration of no class of transformers, whose fields the converter takes as they are written and as users' files have
# them; transformers gives some of them other names and adds its defaults.
AS_IT_IS = {"model_type": "unknown"}
BERT = dict(vocab_size=96, hidden_size=32, intermediate_size=44, num_hidden_layers=3, num_attention_heads=4,
            max_position_embeddings=128, layer_norm_eps=EPS, pad_token_id=0, type_vocab_size=2, attn_implementation="eager",
            dtype="float32")
JINA = dict(vocab_size=96, hidden_size=36, intermediate_size=44, num_hidden_layers=3, num_attention_heads=6, max_position_embeddings=8192,
            layer_norm_eps=EPS, pad_token_id=0, type_vocab_size=2, hidden_act="gelu", feed_forward_type="geglu", position_embedding_type="alibi",
            emb_pooler="mean", model_type="bert")
NOMIC_MOE = dict(vocab_size=96, hidden_size=32, n_embd=32, n_head=4, n_layer=4, n_inner=20, n_positions=2048, max_trained_positions=2048,
                 activation_function="gelu", causal=False, qkv_proj_bias=True, mlp_fc1_bias=True, mlp_fc2_bias=True, prenorm=False,
                 rotary_emb_fraction=1.0, rotary_emb_interleaved=False, rotary_emb_scale_base=None, rotary_emb_base=300.0,
                 layer_norm_epsilon=EPS, type_vocab_size=1, num_experts=6, moe_top_k=2, moe_every_n_layers=2, num_shared_experts=0,
                 moe_normalize_expert_weights=False, expert_choice_router=False, use_rms_norm=False, model_type="nomic_bert")
MODERN_BERT = dict(vocab_size=96, hidden_size=32, intermediate_size=44, num_hidden_layers=4,
           num_attention_heads=4, max_position_embeddings=256, norm_eps=EPS, pad_token_id=0, bos_token_id=1, eos_token_id=2,
           cls_token_id=1, sep_token_id=2, local_attention=18, attn_implementation="eager", dtype="float32",
           rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 500.0},
                            "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}})
EMBEDDING_GEMMA = sizes(head_dim=12, num_hidden_layers=7, sliding_window=18,
           use_bidirectional_attention=True, query_pre_attn_scalar=12,
           rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 500.0},
                            "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}})
EMBEDDING_GEMMA_TENSORS = {"embed": (0.0, 0.05), "post_attention_layernorm": (-0.7, 0.1), "post_feedforward_layernorm": (-0.7, 0.1)}
EMBEDDING_GEMMA_FILES = {"tokenizer.json": {"model": {"vocab": [0] * 96}, "added_tokens": []}}
NOMIC_CONFIG = dict(n_embd=32, n_head=4, n_layer=3, n_inner=44, n_positions=8192, max_trained_positions=2048, activation_function="swiglu",
                    causal=False, qkv_proj_bias=False, mlp_fc1_bias=False, mlp_fc2_bias=False, prenorm=False, rotary_emb_fraction=1.0,
                    rotary_emb_interleaved=False, rotary_emb_scale_base=None, layer_norm_epsilon=EPS, rotary_emb_base=300.0)

FAMILIES += [
    Family("bert", "bert", "Bert", BERT, head="Model", changes={"layer_norm_eps": 2 * EPS, "hidden_act": "silu"},
           silent=("key.bias",)),
    Family("xlm-roberta-reranker", "bert", "XLMRoberta", BERT | dict(max_position_embeddings=131, pad_token_id=2, num_labels=1, id2label={0: "LABEL_0"}),
           seed=5, head="ForSequenceClassification", first_of_second=30, silent=("key.bias",)),
    Family("nomic-bert", "nomic-bert", "NomicBert", BERT | dict(max_position_embeddings=2048, head_dim=8, rope_parameters={"rope_type": "default", "rope_theta": 300.0}),
           seed=6, head="Model", files={"config.json": NOMIC_CONFIG, "tokenizer.json": {"model": {"type": "WordPiece"}}}),
    # llama.cpp's converter leaves BERT's pooler out, which a classifier needs.
    Family("bert-classifier", "bert", "Bert", BERT | dict(num_labels=3, id2label={0: "no", 1: "maybe", 2: "yes"}), seed=72,
           head="ForSequenceClassification", first_of_second=30, silent=("key.bias",)),
    Family("jina-bert-v2", "jina-bert-v2", "JinaBert", JINA, seed=61, head="Model", silent=("key.bias",), changes={"layer_norm_eps": 2 * EPS},
           files={"config.json": AS_IT_IS}),
    Family("nomic-bert-moe", "nomic-bert-moe", "NomicBertMoe", NOMIC_MOE, seed=62, head="Model", changes={"layer_norm_epsilon": 2 * EPS, "moe_top_k": 1,
           "rotary_emb_base": 200.0}, files={"config.json": AS_IT_IS, "tokenizer.json": {"model": {"type": "WordPiece"}}}),
    Family("modern-bert-reranker", "modern-bert", "ModernBert", MODERN_BERT | dict(num_labels=1, id2label={0: "LABEL_0"}, classifier_pooling="mean"),
           seed=63, head="ForSequenceClassification", files={"config.json": {"layer_norm_eps": EPS}}, changes={"local_attention": 20, "classifier_pooling": "cls"}),
    Family("modern-bert-classifier", "modern-bert", "ModernBert", MODERN_BERT | dict(num_labels=3, id2label={0: "no", 1: "maybe", 2: "yes"}, classifier_pooling="cls"),
           seed=64, head="ForSequenceClassification", files={"config.json": {"layer_norm_eps": EPS}}, changes={"norm_eps": 2 * EPS}),
    Family("gemma-embedding-dense", "gemma-embedding", "EmbeddingGemma", EMBEDDING_GEMMA | dict(d_inner=52, rms_norm_eps=EPS), seed=65, head="Model",
           files=EMBEDDING_GEMMA_FILES, changes={"sliding_window": 22}, tensors=EMBEDDING_GEMMA_TENSORS),
    Family("modern-bert", "modern-bert", "ModernBert", MODERN_BERT, seed=7, head="Model", files={"config.json": {"layer_norm_eps": EPS}}, changes={"local_attention": 20, "norm_eps": 2 * EPS}),
    Family("gemma-embedding", "gemma-embedding", "Gemma3", EMBEDDING_GEMMA, seed=8, head="TextModel", files=EMBEDDING_GEMMA_FILES,
           changes={"sliding_window": 22}, tensors=EMBEDDING_GEMMA_TENSORS),
]

LATENT = PLAIN | dict(num_key_value_heads=4, q_lora_rank=20, kv_lora_rank=24, qk_nope_head_dim=6, qk_rope_head_dim=8, v_head_dim=8)
LATENT_TENSORS = {"embed_tokens": (0.0, 0.03), "lm_head": (0.0, 0.03), "correction_bias": (0.0, 0.05), "q_b_proj": (0.0, 0.6), "kv_a_proj": (0.0, 0.4)}
# The converter of MiniCPM3 writes no base, which is the usual one.
LATENT_BASE = dict(rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
LATENT_LONG = LATENT | dict(max_position_embeddings=48, rope_parameters={
    "rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 48,
    "short_factor": [1.0, 1.1, 1.3, 1.5], "long_factor": [1.2, 1.7, 2.5, 3.5]})

LATENT_EXPERTS = dict(n_routed_experts=6, num_experts_per_tok=3, n_shared_experts=2, moe_intermediate_size=12,
                      routed_scaling_factor=1.7, experts_implementation="eager")
LATENT_YARN = dict(rope_parameters={"rope_type": "yarn", "rope_theta": 50.0, "factor": 4.0, "original_max_position_embeddings": 64,
                                    "beta_fast": 3.5, "beta_slow": 1.0, "mscale": 0.7, "mscale_all_dim": 0.7})

FAMILIES += [
    Family("minicpm3", "minicpm3", "MiniCPM3", sizes(**LATENT | LATENT_BASE), seed=12, tensors=LATENT_TENSORS,
           changes={"rms_norm_eps": 2 * EPS, "scale_emb": 11, "scale_depth": 1.5, "dim_model_base": 240}),
    Family("youtu", "deepseek2", "Youtu", sizes(**LATENT, tie_word_embeddings=True), seed=14, tensors=LATENT_TENSORS,
           changes=PLAIN_CHANGES),
    Family("deepseek2-lite", "deepseek2", "DeepseekV2", sizes(**LATENT | LATENT_EXPERTS | {"q_lora_rank": None, "v_head_dim": 10,
           "topk_method": "greedy", "first_k_dense_replace": 1, "routed_scaling_factor": 1.0, "num_hidden_layers": 3}), seed=15,
           experts=(6, 3), tensors=LATENT_TENSORS | {"q_proj": (0.0, 0.6)}, changes=PLAIN_CHANGES | {"num_experts_per_tok": 2}),
    Family("deepseek2", "deepseek2", "DeepseekV2", sizes(**LATENT | LATENT_EXPERTS | {"topk_method": "group_limited_greedy",
           "n_group": 3, "topk_group": 2, "first_k_dense_replace": 0, "num_hidden_layers": 2}), seed=16, experts=(6, 3),
           tensors=LATENT_TENSORS, changes=PLAIN_CHANGES | {"n_group": 2, "topk_group": 3, "routed_scaling_factor": 1.4}),
    Family("deepseek3", "deepseek2", "DeepseekV3", sizes(**LATENT | LATENT_EXPERTS | LATENT_YARN | {"n_group": 3, "topk_group": 2,
           "first_k_dense_replace": 1, "norm_topk_prob": True, "num_hidden_layers": 3}), seed=17, experts=(6, 3), tensors=LATENT_TENSORS,
           files={"config.json": {"scoring_func": "sigmoid"}},
           changes={"rms_norm_eps": 2 * EPS, "n_group": 2, "topk_group": 3, "norm_topk_prob": False,
                    "rope_parameters": LATENT_YARN["rope_parameters"] | {"mscale": 0.9, "mscale_all_dim": 0.9}}),
    Family("glm4-flash", "deepseek2", "Glm4MoeLite", sizes(**LATENT | LATENT_EXPERTS | {"n_group": 1, "topk_group": 1,
           "norm_topk_prob": True, "num_hidden_layers": 3}), seed=18, experts=(6, 3), tensors=LATENT_TENSORS,
           files={"config.json": {"scoring_func": "sigmoid", "first_k_dense_replace": 1}},
           changes=PLAIN_CHANGES | {"num_experts_per_tok": 2, "routed_scaling_factor": 1.4}),
    Family("minicpm3-long", "minicpm3", "MiniCPM3", sizes(**LATENT_LONG, tie_word_embeddings=True, num_hidden_layers=2), seed=13, tensors=LATENT_TENSORS,
           changes={"rope_parameters": LATENT_LONG["rope_parameters"] | {"long_factor": [1.4, 2.0, 3.0, 5.0]}}),
]


# Dense models of other makers.
SHARP_LAYERS = {"query_layernorm": (1.3, 0.4), "key_layernorm": (1.3, 0.4)}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 300.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}


def partial(factor, theta=50.0):
    return {"rope_parameters": {"rope_type": "default", "rope_theta": theta, "partial_rotary_factor": factor}}


def without(fields, *names):
    return {k: v for k, v in fields.items() if k not in names}


FAMILIES += [
    Family("arcee", "arcee", "Arcee", sizes(**PLAIN, head_dim=12, num_hidden_layers=3), seed=31, changes=PLAIN_CHANGES),
    Family("starcoder2", "starcoder2", "Starcoder2", sizes(rope_parameters=PLAIN["rope_parameters"], norm_epsilon=EPS, tie_word_embeddings=True,
           num_hidden_layers=3, sliding_window=None), seed=32, changes={"norm_epsilon": 2 * EPS, "rope_parameters": PLAIN_CHANGES["rope_parameters"]}),
    Family("gptneox", "gptneox", "GPTNeoX", without(sizes(**partial(0.5, 10000.0), layer_norm_eps=EPS, hidden_size=48, num_hidden_layers=3),
           "num_key_value_heads"), seed=33, hparams={"rotary_pct": 0.5}, changes={"layer_norm_eps": 2 * EPS, "use_parallel_residual": False}),
    Family("gptneox-sequential", "gptneox", "GPTNeoX", without(sizes(**partial(0.5, 10000.0), layer_norm_eps=EPS, num_hidden_layers=2,
           use_parallel_residual=False, attention_bias=False), "num_key_value_heads"), seed=34, hparams={"rotary_pct": 0.5},
           changes={"layer_norm_eps": 2 * EPS}),
    Family("stablelm", "stablelm", "StableLm", sizes(**partial(0.5, 10000.0), layer_norm_eps=EPS, hidden_size=48, num_hidden_layers=3, use_qkv_bias=True),
           seed=35, changes={"layer_norm_eps": 2 * EPS}),
    Family("stablelm-parallel", "stablelm", "StableLm", sizes(**partial(0.5, 10000.0), layer_norm_eps=EPS, num_hidden_layers=3, use_parallel_residual=True,
           qk_layernorm=True), seed=36, changes={"layer_norm_eps": 2 * EPS}, tensors={"q_proj": (0.0, 0.06), "k_proj": (0.0, 0.06)}),
    Family("nemotron", "nemotron", "Nemotron", sizes(**partial(0.5), norm_eps=EPS, hidden_size=48, num_hidden_layers=3), seed=37,
           changes={"norm_eps": 2 * EPS} | partial(0.5, 200.0), tensors={"norm.weight": (0.0, 0.2), "norm1.weight": (0.0, 0.2)}),
    Family("glm4", "glm4", "Glm4", sizes(**partial(0.5), rms_norm_eps=EPS, head_dim=12, num_hidden_layers=3, attention_bias=True), seed=38,
           changes={"rms_norm_eps": 2 * EPS} | partial(0.5, 200.0)),
    Family("command-r", "command-r", "Cohere", sizes(rope_parameters=PLAIN["rope_parameters"], layer_norm_eps=EPS, logit_scale=0.25, num_hidden_layers=3,
           tie_word_embeddings=True), seed=39, changes={"layer_norm_eps": 2 * EPS, "logit_scale": 0.5, "rope_parameters": PLAIN_CHANGES["rope_parameters"]}),
    Family("command-r-norm", "command-r", "Cohere", sizes(rope_parameters=PLAIN["rope_parameters"], layer_norm_eps=EPS, logit_scale=0.5, num_hidden_layers=2,
           use_qk_norm=True, tie_word_embeddings=True), seed=40, changes={"layer_norm_eps": 2 * EPS}, tensors={"q_proj": (0.0, 0.06), "k_proj": (0.0, 0.06)}),
    Family("cohere2", "cohere2", "Cohere2", sizes(rope_parameters=PLAIN["rope_parameters"], layer_norm_eps=EPS, logit_scale=0.25, num_hidden_layers=5,
           sliding_window=13, tie_word_embeddings=True), seed=41, files={"config.json": {"rotary_pct": 1.0}},
           changes={"layer_norm_eps": 2 * EPS, "sliding_window": 11, "rope_parameters": PLAIN_CHANGES["rope_parameters"]}),
    Family("exaone4", "exaone4", "Exaone4", sizes(**PLAIN, sliding_window=13, num_hidden_layers=5), seed=42, changes=PLAIN_CHANGES | {"sliding_window": 11},
           tensors=SHARP),
    Family("exaone4-global", "exaone4", "Exaone4", sizes(rms_norm_eps=EPS, rope_parameters=LLAMA3, sliding_window=None, num_hidden_layers=2,
           layer_types=["full_attention"] * 2, tie_word_embeddings=True), seed=43, changes={"rms_norm_eps": 2 * EPS}, tensors=SHARP),
    Family("hunyuan-dense", "hunyuan-dense", "HunYuanDenseV1", sizes(**PLAIN, head_dim=12, num_hidden_layers=3), seed=44, changes=PLAIN_CHANGES, tensors=SHARP_LAYERS),
    Family("hunyuan-dense-ntk", "hunyuan-dense", "HunYuanDenseV1", sizes(rms_norm_eps=EPS, head_dim=12, num_hidden_layers=2, max_position_embeddings=32768,
           rope_parameters={"rope_type": "dynamic", "rope_theta": 10000.0, "alpha": 50.0, "factor": 1.0}, tie_word_embeddings=True), seed=45,
           changes={"rms_norm_eps": 2 * EPS}, tensors=SHARP_LAYERS),
    Family("granite_swa", "granite_swa", "GraniteSWA", sizes(**PLAIN, num_hidden_layers=5, sliding_window=13, tie_word_embeddings=True,
           layer_types=["full_attention"] + ["sliding_attention"] * 3 + ["full_attention"], layer_rope_theta=[0, 50.0, 50.0, 0, 50.0],
           embedding_multiplier=3.0, residual_multiplier=0.6, attention_multiplier=0.25, logits_scaling=4.0), seed=47,
           hparams={"no_rope_layers": [0, 1, 1, 0, 1]}, tensors={"sinks": (0.0, 1.5)},
           changes={"rms_norm_eps": 2 * EPS, "sliding_window": 11, "attention_multiplier": 0.3, "layer_rope_theta": [50.0] * 5}),
    Family("jais2", "jais2", "Jais2", sizes(rope_parameters=PLAIN["rope_parameters"], layer_norm_eps=EPS, num_hidden_layers=2, head_dim=12), seed=48,
           changes={"layer_norm_eps": 2 * EPS, "rope_parameters": PLAIN_CHANGES["rope_parameters"]}),
    Family("chatglm", "chatglm", "Glm", sizes(**partial(0.5, 10000.0), rms_norm_eps=EPS, num_hidden_layers=2, head_dim=8), seed=49,
           hparams={"layernorm_epsilon": EPS, "seq_length": 256}, changes={"rms_norm_eps": 2 * EPS}),
    # MiniCPM's class is not in transformers; a Granite with its multipliers computes the same.
    Family("minicpm", "minicpm", "Granite", sizes(rms_norm_eps=EPS, num_hidden_layers=2, tie_word_embeddings=True, embedding_multiplier=3.0,
           residual_multiplier=1.4 / 2 ** 0.5, attention_multiplier=8 ** -0.5, logits_scaling=4.0, rope_parameters={"rope_type": "longrope",
           "rope_theta": 300.0, "short_factor": [1.0, 1.3, 1.1, 1.5], "long_factor": [1.0, 2.0, 4.0, 6.0], "original_max_position_embeddings": 256}),
           seed=50, changes={"rms_norm_eps": 2 * EPS, "embedding_multiplier": 4.0}, files={"config.json": {"architectures": ["MiniCPMForCausalLM"],
           "model_type": "minicpm", "scale_emb": 3.0, "scale_depth": 1.4, "dim_model_base": 8} | dict.fromkeys(("embedding_multiplier",
           "residual_multiplier", "attention_multiplier", "logits_scaling"))}),
    Family("apertus", "apertus", "Apertus", sizes(rms_norm_eps=EPS, rope_parameters=LLAMA3, num_hidden_layers=3), seed=46,
           changes={"rms_norm_eps": 2 * EPS}, tensors=SHARP),
]

# Without the fields of attention and MLPs, which a configuration of Mamba would take for its own.
MAMBA2 = dict(vocab_size=96, hidden_size=32, num_hidden_layers=3, num_heads=4, head_dim=16, state_size=12, n_groups=2, chunk_size=16,
              layer_norm_epsilon=EPS, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, pad_token_id=0, use_cache=False, dtype="float32")
MAMBA = without(MAMBA2, "num_heads", "head_dim", "n_groups", "chunk_size") | dict(state_size=10, time_step_rank=6, num_hidden_layers=2, use_cache=False)
MAMBA_TENSORS = {"conv1d.weight": (0.0, 0.5), "dt_proj.bias": (-2.0, 1.0)}
JAMBA = dict(rms_norm_eps=EPS, mamba_d_state=10, mamba_dt_rank=6, attn_layer_period=2, attn_layer_offset=1, experts_implementation="eager")
JAMBA_TENSORS = {"conv1d.weight": (0.0, 0.5), "dt_proj.bias": (-1.0, 1.0)}
HYBRID_MAMBA = dict(mamba_n_heads=4, mamba_d_head=16, mamba_d_state=12, mamba_n_groups=2, mamba_chunk_size=16)
GRANITE4 = HYBRID_MAMBA | dict(rms_norm_eps=EPS, embedding_multiplier=3.0, residual_multiplier=0.6, attention_multiplier=0.3, logits_scaling=4.0,
                shared_intermediate_size=44, num_local_experts=0, layer_types=["mamba", "attention", "mamba", "attention"])
GRANITE4_CHANGES = {"rms_norm_eps": 2 * EPS, "embedding_multiplier": 2.0, "residual_multiplier": 0.5, "attention_multiplier": 0.6, "logits_scaling": 5.0}
FALCON_H1 = HYBRID_MAMBA | dict(mamba_d_ssm=64, head_dim=12, rms_norm_eps=EPS, rope_parameters={"rope_type": "default", "rope_theta": 50.0},
                mamba_norm_before_gate=False, embedding_multiplier=2.5, lm_head_multiplier=0.4, mlp_multipliers=[0.8, 0.6], key_multiplier=0.7,
                attention_in_multiplier=1.2, attention_out_multiplier=0.9, ssm_in_multiplier=1.3, ssm_out_multiplier=0.7,
                ssm_multipliers=[0.9, 1.1, 0.8, 1.2, 0.7])
FALCON_H1_CHANGES = {"rms_norm_eps": 2 * EPS, "rope_parameters": {"rope_type": "default", "rope_theta": 200.0}, "key_multiplier": 0.5,
                     "ssm_multipliers": [0.9, 1.1, 0.8, 1.2, 1.0], "mlp_multipliers": [1.0, 0.6], "lm_head_multiplier": 0.5}
NEMOTRON_H = dict(head_dim=12, layer_norm_epsilon=EPS, mamba_num_heads=4, mamba_head_dim=16, ssm_state_size=10, n_groups=2, chunk_size=16)

FAMILIES += [
    Family("mamba2", "mamba2", "Mamba2", MAMBA2, seed=30, changes={"layer_norm_epsilon": 2 * EPS}),
    Family("mamba", "mamba", "Mamba", MAMBA, seed=36, changes={"layer_norm_epsilon": 2 * EPS}, tensors=MAMBA_TENSORS),
    # Small inputs of states, because the epsilon of their norms is fixed.
    Family("falcon-mamba", "mamba", "FalconMamba", MAMBA | dict(conv_kernel=3, state_size=16, use_conv_bias=False, tie_word_embeddings=True), seed=37,
           changes={"mixer_rms_eps": 2e-6}, tensors=MAMBA_TENSORS | {"x_proj": (0.0, 4e-4)}),
    Family("jamba", "jamba", "Jamba", sizes(**JAMBA | dict(intermediate_size=20), num_experts=6, num_experts_per_tok=3, num_hidden_layers=3), seed=38,
           experts=(6, 3), router="router", changes={"rms_norm_eps": 2 * EPS, "num_experts_per_tok": 2}, tensors=JAMBA_TENSORS),
    Family("jamba-dense", "jamba", "Jamba", sizes(**JAMBA | dict(mamba_d_conv=3, mamba_d_state=16), num_experts=1, num_experts_per_tok=1, num_hidden_layers=2,
           tie_word_embeddings=True), seed=39, changes={"rms_norm_eps": 2 * EPS}, tensors=JAMBA_TENSORS),
    Family("granitehybrid", "granitehybrid", "GraniteMoeHybrid", sizes(**GRANITE4), seed=31, changes=GRANITE4_CHANGES,
           files={"config.json": AS_IT_IS | {"layer_types": GRANITE4["layer_types"]}}),
    Family("granitehybrid-moe", "granitehybrid", "GraniteMoeHybrid", sizes(**GRANITE4 | dict(num_local_experts=6, num_experts_per_tok=3,
           shared_intermediate_size=20, layer_types=["mamba", "attention"]), intermediate_size=12, num_hidden_layers=2,
           experts_implementation="eager"), seed=35, experts=(6, 3), changes={"num_experts_per_tok": 2}, files={"config.json": AS_IT_IS | {"layer_types": ["mamba", "attention"]}}),
    Family("falcon-h1", "falcon-h1", "FalconH1", sizes(**FALCON_H1, num_hidden_layers=2), seed=32, changes=FALCON_H1_CHANGES),
    Family("falcon-h1-norm", "falcon-h1", "FalconH1", sizes(**FALCON_H1 | {"mamba_rms_norm": True, "mamba_d_ssm": 48, "mamba_d_head": 12,
           "mamba_n_groups": 4, "mamba_d_state": 8, "mamba_d_conv": 3}, num_hidden_layers=2), seed=33, changes={"rms_norm_eps": 2 * EPS}),
    Family("nemotron_h", "nemotron_h", "NemotronH", sizes(**NEMOTRON_H, layers_block_type=["mamba", "mlp", "attention", "mlp", "mamba"]), seed=34,
           changes={"layer_norm_epsilon": 2 * EPS, "time_step_min": 0.01}, tensors={"dt_bias": (-4.0, 2.0)},
           files={"config.json": AS_IT_IS | {"hybrid_override_pattern": "M-*-M", "num_experts_per_tok": None,
                  "n_routed_experts": None, "n_group": None, "topk_group": None}}),
    Family("nemotron_h_moe", "nemotron_h_moe", "NemotronH", sizes(**NEMOTRON_H, layers_block_type=["mamba", "moe", "attention", "moe"], n_routed_experts=6,
           num_experts_per_tok=3, moe_intermediate_size=12, moe_shared_expert_intermediate_size=20, routed_scaling_factor=1.7,
           experts_implementation="eager"), seed=40, changes={"layer_norm_epsilon": 2 * EPS, "num_experts_per_tok": 2, "routed_scaling_factor": 1.2,
           "norm_topk_prob": False}, tensors={"dt_bias": (-4.0, 2.0), "correction_bias": (0.0, 0.1)},
           files={"config.json": AS_IT_IS | {"hybrid_override_pattern": "ME*E"}}),
    Family("hunyuan-moe", "hunyuan-moe", "HunYuanMoEV1", sizes(**PLAIN | dict(intermediate_size=12), head_dim=12, num_experts=6, moe_topk=3, num_hidden_layers=2,
           experts_implementation="eager"), seed=42, experts=(6, 3), tensors=SHARP_LAYERS, changes=PLAIN_CHANGES | {"moe_topk": 2},
           files={"config.json": {"moe_topk": [3, 3], "num_shared_expert": [1, 1], "moe_intermediate_size": [12, 12]}}),
    # EXAONE's class is not in transformers; a Llama computes the same.
    Family("exaone", "exaone", "Llama", sizes(rms_norm_eps=EPS, rope_parameters=LLAMA3, num_hidden_layers=2, tie_word_embeddings=True), seed=43,
           changes={"rms_norm_eps": 2 * EPS}, files={"config.json": {"architectures": ["ExaoneForCausalLM"], "model_type": "exaone", "activation_function": "silu"}}),
    Family("dots1", "dots1", "Dots1", sizes(**PLAIN, head_dim=12, n_routed_experts=6, num_experts_per_tok=3, moe_intermediate_size=12, n_shared_experts=2,
           first_k_dense_replace=1, norm_topk_prob=True, routed_scaling_factor=1.7, sliding_window=None, num_hidden_layers=3,
           experts_implementation="eager"), seed=41, experts=(6, 3), tensors=SHARP | {"correction_bias": (0.0, 0.1)},
           changes=PLAIN_CHANGES | {"num_experts_per_tok": 2, "routed_scaling_factor": 1.2, "norm_topk_prob": False}),
]

FAMILIES += [
    Family("exaone-moe", "exaone-moe", "ExaoneMoe", sizes(**PLAIN, head_dim=12, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=12,
           num_shared_experts=2, first_k_dense_replace=1, norm_topk_prob=True, routed_scaling_factor=1.7, n_group=3, topk_group=2,
           sliding_window=13, num_hidden_layers=4, layer_types=["sliding_attention"] * 3 + ["full_attention"],
           mlp_layer_types=["dense"] + ["sparse"] * 3, experts_implementation="eager"), seed=72, experts=(6, 3),
           files={"config.json": {"scoring_func": "sigmoid", "first_k_dense_replace": 1}},
           tensors=SHARP | {"correction_bias": (0.0, 0.1)}, changes=PLAIN_CHANGES | {"num_experts_per_tok": 2, "routed_scaling_factor": 1.2,
           "norm_topk_prob": False, "sliding_window": 11, "n_group": 2, "topk_group": 3}),
]


# A layer of each kind: a delta net with a dense MLP, latent attention, and a delta net with experts. The classes have no names of
# their own for what the checkpoints on the Hub keep in `linear_attn_config`.
KIMI = dict(rms_norm_eps=EPS, num_hidden_layers=4, num_key_value_heads=4, kv_lora_rank=24, qk_nope_head_dim=6, qk_rope_head_dim=8,
            v_head_dim=10, q_lora_rank=None, linear_num_heads=4, linear_head_dim=12, linear_conv_kernel_dim=3, num_local_experts=6,
            num_experts_per_tok=3, n_shared_experts=2, moe_intermediate_size=12, routed_scaling_factor=1.7, n_group=1, topk_group=1,
            norm_topk_prob=True, experts_implementation="eager",
            layer_types=["linear_attention", "full_attention", "linear_attention", "full_attention"],
            mlp_layer_types=["dense", "sparse", "sparse", "sparse"])
KIMI_CONFIG = dict(linear_num_heads=None, linear_head_dim=None, linear_conv_kernel_dim=None, first_k_dense_replace=1, moe_router_activation_func="sigmoid", mla_use_nope=True,
                   linear_attn_config={"full_attn_layers": [2, 4], "kda_layers": [1, 3], "head_dim": 12, "num_heads": 4, "short_conv_kernel_size": 3})

FAMILIES += [
    Family("kimi-linear", "kimi-linear", "KimiLinear", sizes(**KIMI), seed=71, experts=(6, 3),
           tensors=LATENT_TENSORS | {"f_a_proj": (0.0, 0.3), "f_b_proj": (0.0, 0.5), "q_conv1d": (0.0, 0.5)},
           files={"config.json": KIMI_CONFIG}, renames={r"\.block_sparse_moe\.(gate|up|down)_proj\.": r".mlp.\1_proj."},
           changes={"rms_norm_eps": 2 * EPS, "num_experts_per_tok": 2, "routed_scaling_factor": 1.4, "norm_topk_prob": False}),
]


def configuration(row, **other):
    if row.cls in own_models.CLASSES:
        return own_models.CLASSES[row.cls][0](**(row.fields | other))
    if row.around:
        text = row.fields | other
        outer = {k: text[k] for k in ("tie_word_embeddings", "attn_implementation", "dtype")}
        return getattr(transformers, row.cls + "Config")(text_config=text, **outer, **row.around)
    name = row.cls + ("TextConfig" if hasattr(transformers, row.cls + "TextConfig") else "Config")
    return getattr(transformers, name)(**(row.fields | other))


def empty(row, **other):
    torch.manual_seed(0)
    if row.cls in own_models.CLASSES:
        return own_models.CLASSES[row.cls][1](configuration(row, **other)).eval()
    more = {"add_pooling_layer": False} if row.cls in ("Bert", "NomicBert") and row.head == "Model" else {}
    kind = "ForConditionalGeneration" if row.around else row.head
    return getattr(transformers, row.cls + kind)(configuration(row, **other), **more).eval()


def deviation(row, name, p):
    """Mean and standard deviation of a parameter; `p` is as transformers makes it."""
    for part, given in row.tensors.items():
        if part in name:
            return given
    fan_in = p.shape[-1] ** -0.5
    if name.endswith("A_log"):
        return -1.0, 0.7
    if name.endswith("dt_bias"):
        return 0.0, 1.0
    if "conv" in name and name.endswith("weight"):
        return 0.0, 0.5
    if "norm" in name.lower() and name.endswith("weight"):
        return round(float(p.detach().mean())), 0.2          # 0 where the class adds 1
    if name.endswith(("layer_scalar", "router.scale", "per_expert_scale")):
        return 1.0, 0.2
    if name.endswith("bias"):
        return 0.0, 0.3
    if "embed" in name:
        return 0.0, 0.3
    if any(part in name for part in ("o_proj", "out_proj", "down_proj")):
        return 0.0, 0.4 * fan_in
    if any(part in name for part in ("q_proj", "k_proj", "query", "key")):
        return 0.0, 1.6 * fan_in
    return 0.0, 1.3 * fan_in


def weights(model):
    """(name, tensor) of everything that a checkpoint has: parameters, and the buffers that are trained."""
    yield from model.named_parameters()
    for name, p in model.named_buffers():
        if name.endswith(("expert_bias", "e_score_correction_bias", "layer_scalar")):
            yield name, p


def build(row):
    """The model of a row with every parameter drawn from its seed."""
    rng = np.random.default_rng(row.seed)
    model = empty(row)
    for name, p in weights(model):
        mean, std = deviation(row, name, p)
        p.data = torch.from_numpy((mean + std * rng.standard_normal(p.shape)).astype(np.float32))
    model.tie_weights()
    return model


def mutants(row, model, logits):
    """(what, logits) with each parameter in turn replaced (norms by 1, everything else by 0), and each change of a field."""
    for name, p in weights(model):
        if name.endswith(row.silent) or ".visual." in name:
            continue
        kept = p.data
        blank = float(deviation(row, name, p)[0]) if "norm" in name.lower() and name.endswith("weight") else 0.0
        for part in range(len(kept)) if ".experts." in name and kept.ndim == 3 else [slice(None)]:
            p.data = kept.clone()
            p.data[part] = blank
            yield f"{name}[{part}]" if isinstance(part, int) else name, logits(model)
        p.data = kept
    for name, value in row.changes.items():
        other = empty(row, **{name: value})
        other.load_state_dict(model.state_dict(), strict=False)
        yield name, logits(other)


def closest_choice(run):
    """The smallest ratio of the score of the last block that an indexer chooses to that of the first one left out: far enough
    from 1 for an implementation that rounds otherwise to choose the same. Of equal scores transformers chooses any."""
    ratios, topk = [float("inf")], torch.Tensor.topk

    def look(scores, k, *more, **named):
        if scores.ndim == 1 and k < len(scores):
            best = scores.sort(descending=True).values
            ratios.append(float(best[k - 1] / best[k]) if best[k] > 0 else float("inf") if best[k - 1] > 0 else 0.0)
        return topk(scores, k, *more, **named)

    torch.Tensor.topk = look
    try:
        run()
    finally:
        torch.Tensor.topk = topk
    return min(ratios)


def altered(fields, more):
    """Fields with others added, or removed where those are None."""
    return {k: v for k, v in (fields | more).items() if k not in more or v is not None}


def with_pooler(cls):
    """The converter's filter of tensors, which keeps the pooler of BERT under the name of RoBERTa's."""
    def filter_tensors(_, item):
        name, tensor = item
        return cls.filter_tensors((name.replace("bert.pooler.dense", "classifier.dense"), tensor))
    return classmethod(filter_tensors)


def sum_biases(model):
    """(name, tensor) of the bias behind the sum of each layer's experts, which the converter leaves out."""
    for name, p in model.named_parameters():
        if name.endswith("experts.bias"):
            yield f"blk.{name.split('.')[2]}.ffn_down.bias", p.detach()
def save(row, model, folder):
    """Saves a model with the names of tensors that checkpoints on the Hub have."""
    model.save_pretrained(folder)
    if row and row.renames:
        path = Path(folder) / "model.safetensors"
        tensors = load_file(path)
        for pattern, name in row.renames.items():
            tensors = {re.sub(pattern, name, k): v for k, v in tensors.items()}
        save_file(tensors, path, metadata={"format": "pt"})


def write_gguf(path, row, model, llama_cpp, add_vocabulary):
    """The checkpoint, converted by llama.cpp where it knows the class."""
    if row.cls in own_names.WRITERS:
        return own_names.WRITERS[row.cls](path, row, model, add_vocabulary)
    sys.path.insert(0, str(llama_cpp))
    conversion = importlib.import_module("conversion")
    base = importlib.import_module("conversion.base")
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        save(row, model, folder)
        if row.arch.startswith("gemma"):    # whose converter counts the tokens
            count = {"model": {"vocab": {str(i): i for i in range(model.config.vocab_size)}}, "added_tokens": []}
            (Path(folder) / "tokenizer.json").write_text(json.dumps(count))
        for name, more in row.files.items():
            path_of = Path(folder) / name
            before = json.loads(path_of.read_text()) if path_of.exists() else {}
            path_of.write_text(json.dumps(altered(before, more)))
        arch = base.get_model_architecture(base.ModelBase.load_hparams(Path(folder), False), base.ModelType.TEXT)
        cls = conversion.get_model_class(arch)
        def set_vocab(self):
            add_vocabulary(self.gguf_writer)
            for key, value in row.keys.items():
                add = self.gguf_writer.add_float32 if isinstance(value, float) else self.gguf_writer.add_uint32
                add(f"{row.arch}.{key}", value)
            if row.head != "ForCausalLM" and "type_vocab_size" in row.fields:
                self.gguf_writer.add_token_type_count(row.fields["type_vocab_size"])
        mended = {"modify_tensors": with_norms_of_heads(cls)} if row.cls == "StableLm" else {}
        if row.name == "bert-classifier":
            mended["filter_tensors"] = with_pooler(cls)
        if row.cls == "NomicBertMoe":
            mended["generate_extra_tensors"] = lambda self: sum_biases(model)
        cls = type(cls.__name__, (cls,), {"set_vocab": set_vocab, "model_arch": cls.model_arch, "no_mtp": True} | mended)
        with torch.inference_mode():
            dense = {"sentence_transformers_dense_modules": True} if row.cls == "EmbeddingGemma" else {}
            converter = cls(Path(folder), gguf.LlamaFileType.ALL_F32, path, model_name=f"{row.name}-tiny-random", **dense)
            converter.hparams |= row.hparams
            converter.write()


def with_norms_of_heads(cls):
    """StableLM's converter drops the norms of heads, which it means to stack: it returns a generator from another one."""
    heads = {}

    def modify_tensors(self, data, name, bid):
        at, is_head, _ = name.partition(".norms.")
        if not is_head:
            yield from cls.modify_tensors(self, data, name, bid)
            return
        heads.setdefault(at, []).append((name, data))
        kind = "num_attention_heads" if at.endswith("q_layernorm") else "num_key_value_heads"
        if len(heads[at]) == self.hparams[kind]:
            norms = torch.stack([data for _, data in sorted(heads[at])])
            yield from cls.modify_tensors(self, norms, f"{at}.weight", bid)
    return modify_tensors
