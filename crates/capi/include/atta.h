/* libatta: runs large language models from GGUF and QSF files. Version 0.1.

   Made from crates/capi by cbindgen; docs/embedding.md shows how to use it.

   Threads: a model is for any number of threads. A session, and a generation, is for one thread at
   a time; a second one gets ATTA_STATUS_BUSY. atta_cancel is for any thread. Options, buffers and
   samplers belong to the thread that uses them.
   Memory: what a function gives through `out` is freed with the function of its type, in any order.
   After a failure `out` is NULL or 0. Texts that are passed in are not kept. */

#ifndef ATTA_H
#define ATTA_H

#include <stddef.h>
#include <stdint.h>

// The version of the binary interface, which a program compares with `atta_abi_version()`.
// Functions, options, statuses and events are added without another one.
#define ATTA_ABI 1

// How a call went.
enum atta_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // It went well.
  ATTA_STATUS_OK = 0,
  // A NULL where none may be, text that is not UTF-8, an unknown name, a value out of range.
  ATTA_STATUS_INVALID = 1,
  // There is no such value, as of a token that the model does not have.
  ATTA_STATUS_ABSENT = 2,
  // The session or generation is in use: by another thread, or by a generation that has not
  // ended.
  ATTA_STATUS_BUSY = 3,
  // The generation has ended; there are no more events.
  ATTA_STATUS_END = 4,
  // There is no event yet.
  ATTA_STATUS_PENDING = 5,
  // The model cannot be opened: no such file, a damaged one, an unsupported one.
  ATTA_STATUS_MODEL = 6,
  // There is too little memory, or the budget is too small.
  ATTA_STATUS_MEMORY = 7,
  // The tokens do not fit the context.
  ATTA_STATUS_CONTEXT = 8,
  // A request was refused.
  ATTA_STATUS_REQUEST = 9,
  // Something else failed, such as a step of the model.
  ATTA_STATUS_FAILED = 10,
  // A bug in atta. The program goes on; the handle may have lost its content.
  ATTA_STATUS_PANIC = 11,
  // The session is suspended, and must be resumed first.
  ATTA_STATUS_SUSPENDED = 12,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum atta_status atta_status;
#else
typedef int32_t atta_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// The kind of an event. A program ignores kinds that it does not know.
enum atta_event_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // `n_done` of `n_total` tokens of the prompt are evaluated.
  ATTA_EVENT_KIND_PROMPT = 0,
  // More text, in whole characters.
  ATTA_EVENT_KIND_TEXT = 1,
  // A token, the `n_done`th of the text, which came before. With `n_probs`, `text` has its
  // log-probabilities as JSON.
  ATTA_EVENT_KIND_TOKEN = 2,
  // A warning for the user, in one line.
  ATTA_EVENT_KIND_NOTE = 3,
  // A response to a request as JSON, or one event of a streamed one.
  ATTA_EVENT_KIND_JSON = 4,
  // The last event. `text` says how a generation in a session went, as JSON, and is empty
  // behind a response.
  ATTA_EVENT_KIND_DONE = 5,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum atta_event_kind atta_event_kind;
#else
typedef int32_t atta_event_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// How hot the machine is. iOS has these numbers in `ProcessInfo.thermalState`; of Android's
// `PowerManager.getCurrentThermalStatus`, 0 and 1, 2, 3, and from 4 on are meant.
enum atta_heat
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // All threads compute.
  ATTA_HEAT_NOMINAL = 0,
  // Half of the threads.
  ATTA_HEAT_ELEVATED = 1,
  // A quarter of the threads, which rest after each step for as long as it took.
  ATTA_HEAT_CRITICAL = 2,
  // Nothing is generated until the level falls: `atta_next` waits, and `atta_next_within` is
  // ATTA_STATUS_PENDING. Steps that a program takes by itself are as at the level before.
  ATTA_HEAT_EMERGENCY = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum atta_heat atta_heat;
#else
typedef int32_t atta_heat;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// A result: a text, tokens, numbers, or bytes.
typedef struct atta_buffer atta_buffer;

// A generation. One thread at a time may ask for its events; any may cancel it.
typedef struct atta_generation atta_generation;

// A loaded model. Any number of threads may use it at the same time.
typedef struct atta_model atta_model;

// Options. Each function that takes some says which.
typedef struct atta_options atta_options;

// A sampler with its random numbers.
typedef struct atta_sampler atta_sampler;

// A session. One thread at a time may use it; to others it is busy.
typedef struct atta_session atta_session;

// An event of a generation.
typedef struct atta_event {
  // An `atta_event_kind`.
  int32_t kind;
  // The token.
  uint32_t token;
  // The text, which ends with a NUL. Valid until the next call with the same generation; never
  // NULL.
  const char *text;
  // Bytes of the text.
  size_t text_size;
  // Tokens so far.
  uint64_t n_done;
  // Tokens in all.
  uint64_t n_total;
} atta_event;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The `ATTA_ABI` that this library was built with.
uint32_t atta_abi_version(void);

// The version of the library, such as "0.1.0". It is never freed.
const char *atta_version(void);

// The values of a buffer: uint32_t of tokens, float of numbers, char of a text, which has a NUL
// behind it. Valid until the buffer is freed. NULL for NULL.
const void *atta_buffer_data(const struct atta_buffer *buffer);

// The size of a buffer in bytes, without the NUL behind a text. 0 for NULL.
size_t atta_buffer_size(const struct atta_buffer *buffer);

// Frees a buffer. NULL is ignored.
void atta_buffer_free(struct atta_buffer *buffer);

// The words of the last call on this thread that failed; "" before the first one. The text is
// valid until the next call of this thread that fails.
const char *atta_last_error(void);

// The name of a status, such as "busy"; "unknown" for a number that is none. It is never freed.
const char *atta_status_name(int32_t status);

// Generates text in a session, which is busy until the generation has ended or is freed. `json`
// is an object with llama.cpp's fields: "prompt" (a text, or a list of tokens; without one the
// text in the session goes on), "max_tokens", "stop", "grammar", "json_schema", "n_probs", and
// those of `atta_sampler_new`. No bytes are an empty object. Nothing is computed before the first
// `atta_next`.
//
// # Safety
// `json` has `json_size` bytes.
atta_status atta_generate(const struct atta_session *session,
                          const char *json,
                          size_t json_size,
                          struct atta_generation **out);

// Sends a request to a path of `atta serve`, such as "/v1/chat/completions", "/v1/completions",
// "/v1/embeddings", "/apply-template" or "/tokenize", with a body of JSON; `body` NULL is a GET.
// Requests of a model are answered beside each other, as many as its option "parallel". Nothing is
// sent before the first `atta_next`.
//
// # Safety
// A NUL ends `path`, and `body` is NULL or has `body_size` bytes.
atta_status atta_request(const struct atta_model *model,
                         const char *path,
                         const char *body,
                         size_t body_size,
                         struct atta_generation **out);

// Waits for the next event, and computes until there is one. `event_size` is the size of the
// struct that the program was compiled with; fields beyond it are not written.
//
// # Safety
// `event` has `event_size` bytes that can be written.
atta_status atta_next(const struct atta_generation *generation,
                      struct atta_event *event,
                      size_t event_size);

// As `atta_next`, but ATTA_STATUS_PENDING if no event comes in this time, so that a thread can see
// to other things. A session computes on this thread: there it returns after a step.
//
// # Safety
// As `atta_next`.
atta_status atta_next_within(const struct atta_generation *generation,
                             uint32_t milliseconds,
                             struct atta_event *event,
                             size_t event_size);

// As `atta_session_suspend`, between two events of a generation that has the session. The file has
// the tokens that were evaluated, which may lack the last ones. ATTA_STATUS_INVALID for a request:
// `atta_model_suspend` frees what requests share.
//
// # Safety
// `path` is NULL, or a NUL ends it.
atta_status atta_generation_suspend(const struct atta_generation *generation, const char *path);

// As `atta_session_resume`, for a generation that was suspended: the next event is the one that
// would have come.
atta_status atta_generation_resume(const struct atta_generation *generation);

// Ends a generation early, from any thread: a call that waits for its next event returns soon,
// and the events that follow are the last ones. NULL is ignored.
void atta_cancel(const struct atta_generation *generation);

// Frees a generation, and ends it if it has not ended; no other thread may use it meanwhile. NULL
// is ignored.
void atta_generation_free(struct atta_generation *generation);

// Opens a GGUF or QSF file, or a split model by any of its files. `options` may be NULL.
//
// # Safety
// A NUL ends `path`.
atta_status atta_model_open(const char *path,
                            const struct atta_options *options,
                            struct atta_model **out);

// Frees a model. Its sessions and generations keep what they need. NULL is ignored.
void atta_model_free(struct atta_model *model);

// Frees the KV cache that the requests of a model share, and their buffers, such as when an app
// goes to the background; the next request makes them again and reads its prompt anew.
// ATTA_STATUS_BUSY while the generation of a request has neither ended nor is freed. Sessions are
// suspended by `atta_session_suspend`.
atta_status atta_model_suspend(const struct atta_model *model);

// Says how hot the machine is, an `atta_heat`, from any thread: hotter machines compute with fewer
// threads and pause. No text changes by it. It is 0 at first.
atta_status atta_model_set_heat(const struct atta_model *model, int32_t heat);

// A number of a model: "n_ctx_train", "n_vocab", "n_layers", "d_model", "d_vector", "ram_used"
// (bytes), "heat", "token_bos", "token_eos", "token_eot", "token_unk", "token_pad", "token_nl"; 0
// or 1 are "add_bos", "add_eos", "is_encoder" and "is_reranker". ATTA_STATUS_ABSENT without such a
// token.
//
// # Safety
// A NUL ends `name`.
atta_status atta_model_number(const struct atta_model *model, const char *name, uint64_t *out);

// A text of a model: "name", "isa", "weights", "chat_template", "metadata" (all of the file's
// without arrays, as JSON), or the value of a key of the metadata.
//
// # Safety
// A NUL ends `name`.
atta_status atta_model_text(const struct atta_model *model,
                            const char *name,
                            struct atta_buffer **out);

// Splits a text of any bytes into tokens. Of `flags`, 1 parses the texts of special tokens, and 2
// puts begin-of-sequence in front if the model wants it.
//
// # Safety
// `text` has `text_size` bytes.
atta_status atta_tokenize(const struct atta_model *model,
                          const char *text,
                          size_t text_size,
                          uint32_t flags,
                          struct atta_buffer **out);

// The text of tokens, in bytes that may end inside a character. Of `flags`, 1 writes special
// tokens, too, and 2 keeps the space in front that belongs to a text that goes on.
//
// # Safety
// `tokens` has `n_tokens` values.
atta_status atta_detokenize(const struct atta_model *model,
                            const uint32_t *tokens,
                            size_t n_tokens,
                            uint32_t flags,
                            struct atta_buffer **out);

// Makes an empty set of options.
atta_status atta_options_new(struct atta_options **out);

// Sets an option to a whole number: of models and sessions "ctx" (context length in tokens),
// "batch" (prompt tokens per step) and "keep" (when the context is full, its older half is evicted
// but for so many tokens); of models "threads", "parallel" (requests at the same time), "experts",
// "ram_budget" (bytes), and, 0 or 1, "verify", "prewarm" and "shrink" (the context, if memory is
// short).
//
// # Safety
// A NUL ends `name`.
atta_status atta_options_set_u64(struct atta_options *options, const char *name, uint64_t value);

// Sets an option to a number: of models "quality" (0 to 1, for a file with measured layers).
//
// # Safety
// A NUL ends `name`.
atta_status atta_options_set_f64(struct atta_options *options, const char *name, double value);

// Sets an option to a text: of models and sessions "kv" (f32, f16, q8 or q4); of models "weights"
// (mapped, resident or streamed), "isa", "chat_template" (chatml, plain, or Jinja), "name" (of the
// model in responses) and "lora" (adapters: JSON, a list of objects with "path", "name" and
// "scale"; with a scale of 0 an adapter waits to be named).
//
// # Safety
// A NUL ends `name`, and `value` has `value_size` bytes.
atta_status atta_options_set_text(struct atta_options *options,
                                  const char *name,
                                  const char *value,
                                  size_t value_size);

// Frees options; models and sessions that were made with them stay. NULL is ignored.
void atta_options_free(struct atta_options *options);

// Makes a sampler. `json` is an object with llama.cpp's fields, such as "temperature", "top_k",
// "top_p", "min_p", "repeat_penalty", "logit_bias" and "seed"; no bytes are an empty one.
//
// # Safety
// `json` has `json_size` bytes.
atta_status atta_sampler_new(const struct atta_model *model,
                             const char *json,
                             size_t json_size,
                             struct atta_sampler **out);

// Chooses the next token from the logits of a session; the token is not appended.
atta_status atta_sampler_sample(const struct atta_sampler *sampler,
                                const struct atta_session *session,
                                uint32_t *out);

// Chooses a token from logits that the program has, as many as the vocabulary; `tokens` are those
// of the text so far, for penalties.
//
// # Safety
// `logits` has `n_logits` values, `tokens` has `n_tokens`.
atta_status atta_sampler_choose(const struct atta_sampler *sampler,
                                const float *logits,
                                size_t n_logits,
                                const uint32_t *tokens,
                                size_t n_tokens,
                                uint32_t *out);

// Frees a sampler. NULL is ignored.
void atta_sampler_free(struct atta_sampler *sampler);

// Makes a session with a KV cache of its own. Of `options`, which may be NULL, "ctx", "batch",
// "keep" and "kv" apply; those that are not set are as for the model.
atta_status atta_session_new(const struct atta_model *model,
                             const struct atta_options *options,
                             struct atta_session **out);

// Frees a session; a generation in it keeps what it needs. NULL is ignored.
void atta_session_free(struct atta_session *session);

// Appends tokens to the text, and evaluates them.
//
// # Safety
// `tokens` has `n_tokens` values.
atta_status atta_session_append(const struct atta_session *session,
                                const uint32_t *tokens,
                                size_t n_tokens);

// As `atta_session_append`, and gives the logits after each of the tokens: floats, a row for each
// token with one for each of the vocabulary.
//
// # Safety
// `tokens` has `n_tokens` values.
atta_status atta_session_append_all(const struct atta_session *session,
                                    const uint32_t *tokens,
                                    size_t n_tokens,
                                    struct atta_buffer **out);

// Gives the logits after the last token: floats, one for each token of the vocabulary.
// ATTA_STATUS_ABSENT before the first token, and behind `atta_session_truncate`.
atta_status atta_session_logits(const struct atta_session *session, struct atta_buffer **out);

// Gives the tokens of the text, those that were evicted from a full context included.
atta_status atta_session_tokens(const struct atta_session *session, struct atta_buffer **out);

// Removes all tokens from the `n`th on, and gives the number of those that are left. It is less
// than `n` if there were fewer, or if the model cannot return there: append the missing ones.
atta_status atta_session_truncate(const struct atta_session *session, size_t n, size_t *out_n_left);

// Gives the text and its KV cache as bytes, for `atta_session_load`.
atta_status atta_session_save(const struct atta_session *session, struct atta_buffer **out);

// Replaces the text by one that `atta_session_save` gave, in a session of the same model, version,
// processor and KV type. The bytes may come from anywhere: they are checked. There are no logits
// before the next token.
//
// # Safety
// `bytes` has `n_bytes` bytes.
atta_status atta_session_load(const struct atta_session *session,
                              const uint8_t *bytes,
                              size_t n_bytes);

// Frees the memory of the session's state until `atta_session_resume`, such as when an app goes to
// the background; meanwhile what needs the state is ATTA_STATUS_SUSPENDED. The state is written to
// the file `path`, which only its owner can read and which `atta_session_resume` removes; a later
// process may give its bytes to `atta_session_load`. With NULL, the text is evaluated again; a
// session whose context was shifted needs a file. A session that is suspended stays so.
//
// # Safety
// `path` is NULL, or a NUL ends it.
atta_status atta_session_suspend(const struct atta_session *session, const char *path);

// Restores the state of a suspended session: the text goes on with the same bits. After a failure,
// such as of memory, it is suspended as before. A session that is not suspended stays as it is.
atta_status atta_session_resume(const struct atta_session *session);

// Sets the LoRA adapters of a session, among those that the model was opened with: JSON, a list of
// objects with "name" or "id" and maybe "scale", in order, as the field "lora" of requests. At
// first they are those with a scale. With others than before the session becomes empty.
//
// # Safety
// `json` has `json_size` bytes.
atta_status atta_session_set_lora(const struct atta_session *session,
                                  const char *json,
                                  size_t json_size);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ATTA_H */
