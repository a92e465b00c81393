#!/usr/bin/env python3
"""Goldens of samplers: what llama.cpp's typical, top-n-sigma and DRY samplers leave of random logits.

    sampling_golden.py path/to/libllama.so tests/golden/sampling.json

libllama is called through ctypes. Typical and top-n-sigma get 40 seeded logits and say which ids stay. DRY gets 2,048
logits of zero, the vocabulary of the story model with breakers in it, and a text as history, which repeats itself;
kept are the penalties that are not zero.
"""
import ctypes
import json
import random
import sys
from ctypes import POINTER, Structure, byref, c_bool, c_char_p, c_float, c_int32, c_int64, c_size_t, c_void_p
from pathlib import Path

STORIES = Path(__file__).resolve().parents[2] / "tests/golden/stories.gguf"
TEXT = ('The bird said: "I can fly." The dog said: "I can run." The bird said: "I can fly and I can run." Then the dog '
        'and the bird went to the tree. The dog and the bird went to the tree and the dog and the bird')
# More than llama_model_params takes.
N_PARAM_BYTES = 256
BREAKERS = [["\n", ":", '"', "*"], [], ["The"], ["said: \"I"], ["dog", "tree."], [" the b"]]


class Data(Structure):
    _fields_ = [("id", c_int32), ("logit", c_float), ("p", c_float)]


class Array(Structure):
    _fields_ = [("data", POINTER(Data)), ("size", c_size_t), ("selected", c_int64), ("sorted", c_bool)]


def library(path):
    lib = ctypes.CDLL(path)
    lib.llama_sampler_init_typical.restype = c_void_p
    lib.llama_sampler_init_typical.argtypes = [c_float, c_size_t]
    lib.llama_sampler_init_top_n_sigma.restype = c_void_p
    lib.llama_sampler_init_top_n_sigma.argtypes = [c_float]
    lib.llama_sampler_init_dry.restype = c_void_p
    lib.llama_sampler_init_dry.argtypes = [c_void_p, c_float, c_float, c_int32, c_int32, POINTER(c_char_p), c_size_t]
    lib.llama_sampler_apply.argtypes = [c_void_p, POINTER(Array)]
    lib.llama_sampler_accept.argtypes = [c_void_p, c_int32]
    lib.llama_model_default_params.restype = Params
    lib.llama_model_load_from_file.restype = c_void_p
    lib.llama_model_load_from_file.argtypes = [c_char_p, Params]
    lib.llama_model_get_vocab.restype = c_void_p
    lib.llama_model_get_vocab.argtypes = [c_void_p]
    lib.llama_tokenize.argtypes = [c_void_p, c_char_p, c_int32, POINTER(c_int32), c_int32, c_bool, c_bool]
    return lib


class Params(Structure):
    """llama_model_params as it is handed back and forth; nothing in it is looked at."""
    _fields_ = [("raw", ctypes.c_uint8 * N_PARAM_BYTES)]


def apply(lib, sampler, logits):
    data = (Data * len(logits))(*[Data(i, logit, 0.0) for i, logit in enumerate(logits)])
    array = Array(data, len(logits), -1, False)
    lib.llama_sampler_apply(sampler, byref(array))
    return [(array.data[i].id, array.data[i].logit) for i in range(array.size)]


def filters(lib):
    rng, cases = random.Random(1), []
    for i in range(24):
        logits = [round(rng.gauss(0, 1 + i % 4), 3) for _ in range(40)]
        p, n = round(rng.uniform(0.05, 0.98), 2), round(rng.uniform(0.2, 3), 2)
        typical = apply(lib, lib.llama_sampler_init_typical(p, 0), logits)
        sigma = apply(lib, lib.llama_sampler_init_top_n_sigma(n), logits)
        cases.append({
            "logits": logits, "p": p, "n": n,
            "typical": sorted(i for i, _ in typical),
            "top_n_sigma": sorted(i for i, logit in sigma if logit > float("-inf")),
        })
    return cases


def main(path, out):
    lib = library(path)
    model = lib.llama_model_load_from_file(str(STORIES).encode(), lib.llama_model_default_params())
    vocab = lib.llama_model_get_vocab(model)
    ids = (c_int32 * 512)()
    ids = ids[: lib.llama_tokenize(vocab, TEXT.encode(), len(TEXT.encode()), ids, 512, True, False)]
    dry = []
    for breakers in BREAKERS:
        for multiplier, base, allowed, window in [(0.8, 1.75, 2, 64), (1.5, 1.1, 0, 200), (0.5, 3.0, 4, 40)]:
            texts = (c_char_p * len(breakers))(*[b.encode() for b in breakers])
            for end in (len(ids) - 9, len(ids) - 3, len(ids)):
                sampler = lib.llama_sampler_init_dry(vocab, multiplier, base, allowed, window, texts, len(breakers))
                for token in ids[:end]:
                    lib.llama_sampler_accept(sampler, token)
                left = apply(lib, sampler, [0.0] * 2048)
                penalties = {str(i): round(-logit, 6) for i, logit in left if logit != 0.0}
                dry.append({
                    "breakers": breakers, "multiplier": multiplier, "base": base, "allowed_length": allowed,
                    "penalty_last_n": window, "n_history": end, "penalties": penalties,
                })
    lines = lambda cases: "[\n  " + ",\n  ".join(json.dumps(case) for case in cases) + "\n ]"
    out.write_text(f'{{\n "filters": {lines(filters(lib))},\n "history": {json.dumps(list(ids))},\n "dry": {lines(dry)}\n}}\n')


main(sys.argv[1], Path(sys.argv[2]))
