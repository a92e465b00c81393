#!/usr/bin/env python3
"""Checkpoints whose matrices other programs quantized, beside `expected.safetensors`: what those programs read in them.

    pip install mlx mlx-cpu compressed-tensors loguru
    pip download --no-deps auto-gptq==0.7.1 autoawq==0.2.9      # unpacked below SOMEWHERE: two files of theirs are run
    quantized_checkpoints.py ../golden/convert/quantized SOMEWHERE

GPTQ: AutoGPTQ packs and computes. AWQ: AutoAWQ computes; the words are packed here in the order that it unpacks.
compressed-tensors packs and unpacks, NVFP4 too, of which modelopt has other names. MLX quantizes and dequantizes. FP8 is torch's own type.
"""
import argparse
import importlib.util
import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from convert_golden import EXPECTED, NAMES, of_kind, save

GROUP = 32
GEN = torch.Generator()


def module(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def ranges(w, bits, symmetric):
    """Scale and zero of each group of a row, `[rows, groups]`."""
    groups = w.reshape(w.shape[0], -1, GROUP)
    most = 2**bits - 1
    if symmetric:
        scales = groups.abs().amax(-1) * 2 / most
        return scales.half().float(), torch.full_like(scales, 2 ** (bits - 1))
    low, high = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
    scales = ((high - low) / most).half().float()
    return scales, (-low / scales).round().clamp(1, most)


def gptq(at, w, bits, symmetric, shuffled):
    scales, zeros = ranges(w, bits, symmetric)
    linear = nn.Linear(w.shape[1], w.shape[0], bias=False)
    linear.weight.data = w.half()
    packed = GPTQ.QuantLinear(bits, GROUP, w.shape[1], w.shape[0], bias=True, weight_dtype=torch.float16)
    packed.pack(linear, scales, zeros, None)
    stored = {"qweight": packed.qweight, "qzeros": packed.qzeros, "scales": packed.scales.half(), "g_idx": packed.g_idx,
              "bias": torch.zeros(w.shape[0], dtype=torch.float16)}
    packed.scales, packed.bias = packed.scales.half().float(), None
    means = packed(torch.eye(w.shape[1])).T
    if shuffled:
        # Columns in another order: those of a group are no neighbours.
        order = torch.randperm(w.shape[1], generator=GEN)
        stored["g_idx"] = packed.g_idx[order]
        words = torch.zeros_like(stored["qweight"])
        for c, source in enumerate(order.tolist()):
            n = 32 // bits
            code = stored["qweight"][source // n] >> (bits * (source % n)) & (2**bits - 1)
            words[c // n] |= code << (bits * (c % n))
        stored["qweight"], means = words, means[:, order]
    return {f"{at}.{part}": tensor for part, tensor in stored.items()}, means


def awq(at, w):
    scales, zeros = ranges(w, 4, False)
    codes = ((w.reshape(w.shape[0], -1, GROUP) / scales[..., None]).round() + zeros[..., None]).clamp(0, 15)
    codes = codes.reshape(w.shape).T.to(torch.int32)                      # [columns, rows]

    def words(table):
        table = table.reshape(table.shape[0], -1, 8)[..., AWQ.AWQ_ORDER]
        return sum(table[..., i] << (4 * i) for i in range(8)).to(torch.int32).contiguous()

    stored = {"qweight": words(codes), "qzeros": words(zeros.T.to(torch.int32)), "scales": scales.T.half()}
    means = AWQ.dequantize_gemm(stored["qweight"], stored["qzeros"], stored["scales"].float(), 4, GROUP).T
    return {f"{at}.{part}": tensor for part, tensor in stored.items()}, means


def compressed(at, w, bits, symmetric):
    from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32, unpack_from_int32
    scales, zeros = ranges(w, bits, symmetric)
    centre = 2 ** (bits - 1)
    zeros = (zeros - centre).to(torch.int8)
    codes = (w.reshape(w.shape[0], -1, GROUP) / scales[..., None]).round() + zeros[..., None]
    codes = codes.clamp(-centre, centre - 1).reshape(w.shape).to(torch.int8)
    stored = {"weight_packed": pack_to_int32(codes, bits), "weight_scale": scales.half(), "weight_shape": torch.tensor(w.shape)}
    if not symmetric:
        stored["weight_zero_point"] = pack_to_int32(zeros, bits, packed_dim=0)
    codes = unpack_from_int32(stored["weight_packed"], bits, w.shape).reshape(w.shape[0], -1, GROUP)
    means = (codes.float() - zeros[..., None].float()) * scales[..., None]
    return {f"{at}.{part}": tensor for part, tensor in stored.items()}, means.reshape(w.shape)


def int8(at, w):
    scales = (w.abs().amax(-1, keepdim=True) / 127).half()
    codes = (w / scales.float()).round().clamp(-128, 127).to(torch.int8)
    return {f"{at}.weight": codes, f"{at}.weight_scale": scales}, codes.float() * scales.float()


def fp8(at, w, dims, end, more):
    scales = 0.5 + torch.rand(dims(w), generator=GEN)
    codes = w.to(torch.float8_e4m3fn)
    return {f"{at}.weight": codes, f"{at}.weight{end}": scales} | {f"{at}.{name}": torch.ones(1) for name in more}, codes.float() * scales


def nvfp4(at, w, is_modelopt):
    from compressed_tensors.compressors.nvfp4.helpers import quantize_and_pack_fp4, unpack_fp4_from_uint8
    factor = 6 * 448 / w.abs().amax()
    scales = (factor * w.reshape(w.shape[0], -1, 16).abs().amax(-1) / 6).to(torch.float8_e4m3fn)
    packed = quantize_and_pack_fp4(w, scales.float(), global_scale=factor, group_size=16)
    codes = unpack_fp4_from_uint8(packed, *w.shape, dtype=torch.float32).reshape(w.shape[0], -1, 16)
    means = (codes * (scales.float() / factor)[..., None]).reshape(w.shape)
    if is_modelopt:
        stored = {"weight": packed, "weight_scale": scales, "weight_scale_2": 1 / factor, "input_scale": torch.tensor(0.5)}
    else:
        stored = {"weight_packed": packed, "weight_scale": scales, "weight_global_scale": factor.reshape(1), "input_global_scale": torch.ones(1)}
    return {f"{at}.{part}": tensor for part, tensor in stored.items()}, means


def mlx(at, w, bits):
    import mlx.core as mx
    import numpy
    words, scales, biases = mx.quantize(mx.array(w.numpy()).astype(mx.float16), group_size=GROUP, bits=bits)
    means = mx.dequantize(words, scales.astype(mx.float32), biases.astype(mx.float32), group_size=GROUP, bits=bits)
    stored = {"weight": words, "scales": scales, "biases": biases}
    return {f"{at}.{part}": torch.from_numpy(numpy.array(tensor)) for part, tensor in stored.items()}, torch.from_numpy(numpy.array(means))


def scheme(name, format, weights, **more):
    group = {"targets": ["Linear"], "weights": weights}
    return {"quant_method": "compressed-tensors", "format": format, "config_groups": {"group_0": group}, "ignore": ["lm_head"], **more}


PACKED = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": GROUP}
EIGHT = {"num_bits": 8, "symmetric": True, "strategy": "channel"}
NVFP4 = {"num_bits": 4, "type": "float", "symmetric": True, "strategy": "tensor_group", "group_size": 16}
ROWS = {
    "gptq": ({"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False, "sym": False}, lambda at, w: gptq(at, w, 4, False, False)),
    "gptq-symmetric": ({"quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": True}, lambda at, w: gptq(at, w, 4, True, False)),
    "gptq-3": ({"quant_method": "gptq", "bits": 3, "group_size": GROUP}, lambda at, w: gptq(at, w, 3, False, False)),
    "gptq-8-shuffled": ({"quant_method": "gptq", "bits": 8, "group_size": GROUP, "desc_act": True}, lambda at, w: gptq(at, w, 8, True, True)),
    "awq": ({"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm", "zero_point": True}, awq),
    "w4a16": (scheme("w4a16", "pack-quantized", PACKED), lambda at, w: compressed(at, w, 4, True)),
    "w4a16-zeros": (scheme("w4a16", "pack-quantized", {**PACKED, "symmetric": False}), lambda at, w: compressed(at, w, 4, False)),
    "w8a8": (scheme("w8a8", "int-quantized", {**EIGHT, "type": "int"}), int8),
    "fp8-rows": (scheme("fp8", "float-quantized", {**EIGHT, "type": "float"}), lambda at, w: fp8(at, w, lambda w: (w.shape[0], 1), "_scale", [])),
    "fp8-matrix": ({"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None}, lambda at, w: fp8(at, w, lambda w: (), "_scale_inv", ["activation_scale"])),
    "nvfp4": (scheme("nvfp4", "nvfp4-pack-quantized", NVFP4), lambda at, w: nvfp4(at, w, False)),
    "nvfp4-modelopt": ({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}, lambda at, w: nvfp4(at, w, True)),
    "mlx": (None, lambda at, w: mlx(at, w, 4)),
    "mlx-3": (None, lambda at, w: mlx(at, w, 3)),
}


def write(out, name, quantization, quantize):
    GEN.manual_seed(sum(name.encode()))
    kind = "llama-plain" if name == "gptq-symmetric" else "qwen3"
    model = of_kind(kind, heads=(2, 1), d_model=64, d_ff=64, d_head=32)
    tensors, expected = dict(model.state_dict()), {}
    if model.config.tie_word_embeddings:
        tensors.pop("lm_head.weight")
    for module_name, gguf in NAMES.items():
        at = f"model.layers.0.{module_name}"
        new, means = quantize(at, tensors.pop(f"{at}.weight").float())
        tensors |= new
        if kind == "llama-plain" and gguf == "attn_k":
            # From halves of heads to pairs, as llama.cpp's converter does it.
            means = means.reshape(-1, 2, 16, 64).transpose(1, 2).reshape(means.shape)
        expected |= {f"blk.0.{gguf}.weight": means} if gguf in EXPECTED else {}
    model.config.save_pretrained(out / name)
    config = json.loads((out / name / "config.json").read_text())
    config["architectures"] = [type(model).__name__]
    if quantization:
        config["quantization_config"] = quantization
    else:
        bits = 3 if name == "mlx-3" else 4
        config["quantization"] = config["quantization_config"] = {"group_size": GROUP, "bits": bits}
    save(out / name, config, tensors, 1)
    save_file({k: v.contiguous().float() for k, v in expected.items()}, out / name / "expected.safetensors")


def main():
    global GPTQ, AWQ
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("out", type=Path, help="tests/golden/convert/quantized")
    ap.add_argument("packages", type=Path, help="where auto-gptq and autoawq are unpacked")
    a = ap.parse_args()
    GPTQ = module(next(a.packages.rglob("qlinear_cuda_old.py")))
    AWQ = module(next(a.packages.rglob("packing_utils.py")))
    for name, (quantization, quantize) in ROWS.items():
        write(a.out, name, quantization, quantize)


if __name__ == "__main__":
    main()
