#!/usr/bin/env python3
"""OpenVINO GenAI on one GGUF file: prefill of a prompt, and decode behind it. compare.py runs it.

    openvino_bench.py MODEL.gguf -p 512 -n 64 -t 2

Prints one JSON object: prefill and decode in tokens per second, or `unsupported` with OpenVINO's reason. One warm-up comes
first. Tokens are arbitrary ids and no end of text stops the answer. Prefill is the time to the first token, decode the mean
time between tokens, both as OpenVINO measures them. Its settings are its own defaults, but for the number of threads.
"""

import argparse
import json
import re


def once(genai, openvino, pipeline, n_prompt, n_gen, first):
    """{prefill, decode: tokens per second} of one answer of n_gen tokens to a prompt of n_prompt that begins with token `first`."""
    import numpy as np

    n_vocab = 2000  # of every vocabulary
    ids = ((np.arange(n_prompt, dtype=np.int64) * 7919 + first) % n_vocab)[None]
    inputs = genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(np.ones_like(ids)))
    config = genai.GenerationConfig()
    config.max_new_tokens, config.ignore_eos, config.do_sample = n_gen + 1, True, False
    seen = pipeline.generate(inputs, config).perf_metrics
    if seen.get_num_generated_tokens() != n_gen + 1:
        raise RuntimeError(f"{seen.get_num_generated_tokens()} tokens were generated, expected {n_gen + 1}")
    return {"prefill": 1e3 * n_prompt / seen.get_ttft().mean, "decode": 1e3 / seen.get_tpot().mean}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("-p", type=int, default=512, help="tokens of the prompt")
    parser.add_argument("-n", type=int, default=64, help="tokens written behind it")
    parser.add_argument("-t", type=int, default=2, help="threads")
    args = parser.parse_args()
    import openvino
    import openvino_genai as genai

    try:
        pipeline = genai.LLMPipeline(args.model, "CPU", INFERENCE_NUM_THREADS=args.t)
    except RuntimeError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        # The last line says what is wrong, the ones before where in the source.
        print(json.dumps({"unsupported": re.sub(r"\s+", " ", lines[-1])[:200] if lines else "no reason given"}))
        return
    # Another prompt: prefixes are cached.
    once(genai, openvino, pipeline, min(args.p, 512), 4, first=1)
    print(json.dumps(once(genai, openvino, pipeline, args.p, args.n, first=2)))


if __name__ == "__main__":
    main()
