/* The QSF plan's functions: plan MODEL PROMPT */

#include <qsf.h>
#include <stdio.h>
#include <string.h>

#define MAX_TOKENS 64

/* Prints the text that a token completes. */
static void on_token(int token, const char *text, void *user) {
    (void)token;
    *(int *)user += 1;
    fputs(text, stdout);
}

int main(int argc, char **argv) {
    int n_calls = 0, n_tokens = 0, i;
    int text_tokens[MAX_TOKENS];
    qsf_config *config = qsf_config_default();
    qsf_engine *engine;
    int *tokens;
    char *text;
    float *logits;
    if (argc != 3) return 2;
    qsf_config_set_threads(config, 1);
    qsf_config_set_max_seq_len(config, 128);
    qsf_config_set_ram_budget(config, 200);
    qsf_config_set_quality(config, 1.0f);
    engine = qsf_load(argv[1], config);
    qsf_config_free(config);
    if (!engine) return 1;
    if (qsf_generate(engine, argv[2], 16, 0.0f, 0.9f, on_token, &n_calls) != 16) return 1;
    if (n_calls < 16) return 1;

    /* The same by hand: the most probable token, one after the other. */
    tokens = qsf_tokenize(engine, argv[2], &n_tokens);
    if (!tokens || n_tokens > MAX_TOKENS / 2) return 1;
    memcpy(text_tokens, tokens, (size_t)n_tokens * sizeof *tokens);
    qsf_free_tokens(tokens);
    puts("");
    for (i = 0; i < 4; i++) {
        logits = qsf_forward(engine, text_tokens, n_tokens);
        if (!logits) return 1;
        text_tokens[n_tokens] = qsf_sample(engine, logits, 0.0f, 0.9f);
        if (text_tokens[n_tokens] < 0) return 1;
        n_tokens++;
    }
    text = qsf_detokenize(engine, text_tokens, n_tokens);
    if (!text) return 1;
    puts(text);
    qsf_free_text(text);
    qsf_print_stats(engine);
    qsf_free(engine);
    return 0;
}
