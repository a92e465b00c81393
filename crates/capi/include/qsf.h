/* The functions of the QSF plan, over libatta: they load GGUF and QSF files alike. atta.h has the
   words of failures (atta_last_error) and all that is not here: streams of events, cancelling,
   chat, sessions. One thread at a time uses an engine. */

#ifndef QSF_H
#define QSF_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct qsf_config qsf_config;
typedef struct qsf_engine qsf_engine;

/* Gets each token with the text that it completes; text behind the last token has token -1. */
typedef void (*qsf_callback)(int token, const char *text, void *user);

/* The defaults: 200 MB, as many threads as cores, the model's length, all of its quality. */
qsf_config *qsf_config_default(void);
void qsf_config_set_ram_budget(qsf_config *config, size_t megabytes);
/* 0: as many as there are cores. */
void qsf_config_set_threads(qsf_config *config, int n_threads);
/* The most tokens of a text; 0: the model's. It is made less where the budget is short. */
void qsf_config_set_max_seq_len(qsf_config *config, int n);
/* 0 to 1; below 1, layers of a file with measured layers are left out. */
void qsf_config_set_quality(qsf_config *config, float quality);
void qsf_config_free(qsf_config *config);

/* `config` may be NULL, and may be freed afterwards. NULL after a failure. */
qsf_engine *qsf_load(const char *path, const qsf_config *config);
void qsf_free(qsf_engine *engine);

/* Writes a text behind a prompt, with top-k 40; `callback` may be NULL. Returns the number of
   tokens, or -1 after a failure. */
int qsf_generate(const qsf_engine *engine, const char *prompt, int max_tokens, float temperature,
                 float top_p, qsf_callback callback, void *user);

/* The tokens of a text, with begin-of-sequence where the model wants it; NULL after a failure. */
int *qsf_tokenize(const qsf_engine *engine, const char *text, int *n_tokens);
void qsf_free_tokens(int *tokens);
char *qsf_detokenize(const qsf_engine *engine, const int *tokens, int n_tokens);
void qsf_free_text(char *text);

/* The logits behind a text of tokens, one for each token of the vocabulary. They are the engine's,
   and valid until its next call. NULL after a failure. */
float *qsf_forward(const qsf_engine *engine, const int *tokens, int n_tokens);
/* Chooses a token from logits; -1 after a failure. */
int qsf_sample(const qsf_engine *engine, const float *logits, float temperature, float top_p);

/* Prints memory and speed to standard error. */
void qsf_print_stats(const qsf_engine *engine);

#ifdef __cplusplus
}
#endif

#endif
