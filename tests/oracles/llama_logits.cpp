// llama_logits MODEL IDS|@FILE OUT [THREADS [BATCH]]: llama.cpp's logits of every position, f32 little endian,
// [n_tokens, n_vocab], with f32 KV and without flash attention. IDS are token ids separated by commas; BATCH tokens
// are evaluated at a time (all by default). PLAIN=1 in the environment keeps the plain GGUF layout, without the
// repacked and AMX kernels. README.md says how to build it.
#include "llama.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

static std::vector<llama_token> read_ids(std::string text) {
    if (text[0] == '@') {
        std::ifstream file(text.substr(1));
        text.assign(std::istreambuf_iterator<char>(file), {});
    }
    std::vector<llama_token> ids;
    for (const char * at = text.c_str(); *at;) {
        char * end;
        const long id = strtol(at, &end, 10);
        if (end != at) ids.push_back(id);
        at = end != at ? end : at + 1;
    }
    return ids;
}

static llama_context * open_context(llama_model * model, int n_ctx, int n_threads, int n_batch) {
    llama_context_params p = llama_context_default_params();
    p.n_ctx = n_ctx;
    p.n_batch = p.n_ubatch = n_batch;
    p.n_threads = p.n_threads_batch = n_threads;
    p.type_k = p.type_v = GGML_TYPE_F32;
    p.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    return llama_init_from_model(model, p);
}

// Evaluates ids[from .. from + n] and writes their logits.
static bool step(llama_context * ctx, const std::vector<llama_token> & ids, size_t from, size_t n, int n_vocab, FILE * out) {
    llama_batch b = llama_batch_init(n, 0, 1);
    b.n_tokens = n;
    for (size_t i = 0; i < n; i++) {
        b.token[i] = ids[from + i];
        b.pos[i] = from + i;
        b.n_seq_id[i] = 1;
        b.seq_id[i][0] = 0;
        b.logits[i] = 1;
    }
    bool ok = llama_decode(ctx, b) == 0;
    for (size_t i = 0; ok && i < n; i++) ok = fwrite(llama_get_logits_ith(ctx, i), 4, n_vocab, out) == (size_t) n_vocab;
    llama_batch_free(b);
    return ok;
}

static void log_warnings(ggml_log_level level, const char * text, void *) {
    if (level == GGML_LOG_LEVEL_ERROR || level == GGML_LOG_LEVEL_WARN) fputs(text, stderr);
}

int main(int argc, char ** argv) {
    if (argc < 4) return fprintf(stderr, "usage: llama_logits MODEL IDS|@FILE OUT [THREADS [BATCH]]\n"), 2;
    const std::vector<llama_token> ids = read_ids(argv[2]);
    const size_t n_batch = argc > 5 ? atoi(argv[5]) : ids.size();
    llama_log_set(log_warnings, nullptr);
    llama_backend_init();
    llama_model_params p = llama_model_default_params();
    p.n_gpu_layers = 0;
    p.use_extra_bufts = !getenv("PLAIN");
    llama_model * model = llama_model_load_from_file(argv[1], p);
    llama_context * ctx = model ? open_context(model, ids.size() + 1, argc > 4 ? atoi(argv[4]) : 2, n_batch) : nullptr;
    FILE * out = fopen(argv[3], "wb");
    bool ok = ctx && out && !ids.empty();
    const int n_vocab = ok ? llama_vocab_n_tokens(llama_model_get_vocab(model)) : 0;
    for (size_t from = 0; ok && from < ids.size(); from += n_batch) {
        ok = step(ctx, ids, from, std::min(n_batch, ids.size() - from), n_vocab, out);
    }
    if (out) fclose(out);
    fprintf(stderr, ok ? "%zu tokens x %d\n" : "failed\n", ids.size(), n_vocab);
    if (ctx) llama_free(ctx);
    if (model) llama_model_free(model);
    return !ok;
}
