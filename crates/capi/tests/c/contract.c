/* Every function of atta.h: what it does, how it fails, from several threads, and what it leaves
   behind. Usage: contract MODEL TEXT LORA, where TEXT is what the engine writes in 24 tokens, and
   LORA is the option with an adapter of the name "tale" and of scale 0. */

#include <atta.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROMPT "Once upon a time"
#define GREEDY "\"temperature\": 0"

static const char *model_path;
static const char *expected;
static const char *lora;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "line %d: %s; last error: %s\n", __LINE__, #condition,                 \
                    atta_last_error());                                                            \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define IS(call, status) CHECK((call) == (status))
#define OK(call) IS(call, ATTA_STATUS_OK)
#define SAYS(words) CHECK(strstr(atta_last_error(), words) != NULL)

static atta_model *open_model(void) {
    atta_options *options;
    atta_model *model;
    OK(atta_options_new(&options));
    OK(atta_options_set_u64(options, "ctx", 128));
    OK(atta_options_set_u64(options, "threads", 1));
    OK(atta_options_set_text(options, "name", "stories", 7));
    OK(atta_model_open(model_path, options, &model));
    atta_options_free(options);
    return model;
}

static atta_session *new_session(const atta_model *model) {
    atta_session *session;
    OK(atta_session_new(model, NULL, &session));
    return session;
}

static atta_generation *begin(const atta_session *session, const char *json) {
    atta_generation *generation;
    OK(atta_generate(session, json, strlen(json), &generation));
    return generation;
}

/* Collects the text of a generation, and the text of its last event. */
static void collect(atta_generation *generation, char *text, char *summary) {
    atta_event event;
    text[0] = 0;
    do {
        OK(atta_next(generation, &event, sizeof event));
        CHECK(strlen(event.text) == event.text_size);
        if (event.kind == ATTA_EVENT_KIND_TEXT) strcat(text, event.text);
    } while (event.kind != ATTA_EVENT_KIND_DONE);
    if (summary) strcpy(summary, event.text);
    IS(atta_next(generation, &event, sizeof event), ATTA_STATUS_END);
    atta_generation_free(generation);
}

static void versions_and_names(void) {
    CHECK(atta_abi_version() == ATTA_ABI);
    CHECK(strchr(atta_version(), '.') != NULL);
    CHECK(strcmp(atta_status_name(ATTA_STATUS_BUSY), "busy") == 0);
    CHECK(strcmp(atta_status_name(-1), "unknown") == 0);
    CHECK(strcmp(atta_status_name(99), "unknown") == 0);
}

static void options_are_checked(void) {
    atta_options *options;
    atta_model *model;
    OK(atta_options_new(&options));
    IS(atta_options_set_u64(options, "size", 1), ATTA_STATUS_INVALID);
    SAYS("size");
    IS(atta_options_set_u64(options, "ctx", 0), ATTA_STATUS_INVALID);
    IS(atta_options_set_f64(options, "ctx", 1.0), ATTA_STATUS_INVALID);
    IS(atta_options_set_text(options, "kv", "f8", 2), ATTA_STATUS_INVALID);
    SAYS("f16");
    IS(atta_options_set_text(options, "name", "\xff", 1), ATTA_STATUS_INVALID);
    SAYS("UTF-8");
    IS(atta_options_set_u64(options, NULL, 1), ATTA_STATUS_INVALID);
    IS(atta_options_set_text(options, "name", NULL, 1), ATTA_STATUS_INVALID);
    OK(atta_options_set_f64(options, "quality", 0.5));
    IS(atta_model_open(model_path, options, &model), ATTA_STATUS_MODEL);
    CHECK(model == NULL);
    OK(atta_options_set_f64(options, "quality", 1.0));
    OK(atta_options_set_text(options, "isa", "none", 4));
    CHECK(atta_model_open(model_path, options, &model) != ATTA_STATUS_OK);
    atta_options_free(options);
    OK(atta_options_new(&options));
    OK(atta_options_set_text(options, "weights", "resident", 8));
    OK(atta_options_set_u64(options, "ram_budget", 1000));
    IS(atta_model_open(model_path, options, &model), ATTA_STATUS_MEMORY);
    atta_options_free(options);
    IS(atta_model_open("/nowhere.gguf", NULL, &model), ATTA_STATUS_MODEL);
    SAYS("nowhere");
    IS(atta_model_open("contract.c", NULL, &model), ATTA_STATUS_MODEL);
}

static void nothing_takes_null_for_a_handle(void) {
    uint64_t number;
    size_t n;
    uint32_t token;
    atta_buffer *buffer;
    atta_session *session;
    atta_sampler *sampler;
    atta_generation *generation;
    atta_event event;
    IS(atta_options_new(NULL), ATTA_STATUS_INVALID);
    IS(atta_options_set_u64(NULL, "ctx", 1), ATTA_STATUS_INVALID);
    IS(atta_options_set_f64(NULL, "quality", 1), ATTA_STATUS_INVALID);
    IS(atta_options_set_text(NULL, "kv", "f16", 3), ATTA_STATUS_INVALID);
    IS(atta_model_open(NULL, NULL, NULL), ATTA_STATUS_INVALID);
    IS(atta_model_number(NULL, "n_vocab", &number), ATTA_STATUS_INVALID);
    IS(atta_model_text(NULL, "name", &buffer), ATTA_STATUS_INVALID);
    CHECK(buffer == NULL);
    IS(atta_tokenize(NULL, "a", 1, 0, &buffer), ATTA_STATUS_INVALID);
    IS(atta_detokenize(NULL, NULL, 0, 0, &buffer), ATTA_STATUS_INVALID);
    IS(atta_session_new(NULL, NULL, &session), ATTA_STATUS_INVALID);
    IS(atta_session_append(NULL, NULL, 0), ATTA_STATUS_INVALID);
    IS(atta_session_append_all(NULL, NULL, 0, &buffer), ATTA_STATUS_INVALID);
    IS(atta_session_logits(NULL, &buffer), ATTA_STATUS_INVALID);
    IS(atta_session_tokens(NULL, &buffer), ATTA_STATUS_INVALID);
    IS(atta_session_truncate(NULL, 0, &n), ATTA_STATUS_INVALID);
    IS(atta_session_save(NULL, &buffer), ATTA_STATUS_INVALID);
    IS(atta_session_load(NULL, NULL, 0), ATTA_STATUS_INVALID);
    IS(atta_session_suspend(NULL, NULL), ATTA_STATUS_INVALID);
    IS(atta_session_resume(NULL), ATTA_STATUS_INVALID);
    IS(atta_session_set_lora(NULL, "[]", 2), ATTA_STATUS_INVALID);
    IS(atta_generation_suspend(NULL, NULL), ATTA_STATUS_INVALID);
    IS(atta_generation_resume(NULL), ATTA_STATUS_INVALID);
    IS(atta_model_suspend(NULL), ATTA_STATUS_INVALID);
    IS(atta_model_set_heat(NULL, 0), ATTA_STATUS_INVALID);
    IS(atta_sampler_new(NULL, NULL, 0, &sampler), ATTA_STATUS_INVALID);
    IS(atta_sampler_sample(NULL, NULL, &token), ATTA_STATUS_INVALID);
    IS(atta_sampler_choose(NULL, NULL, 0, NULL, 0, &token), ATTA_STATUS_INVALID);
    IS(atta_generate(NULL, NULL, 0, &generation), ATTA_STATUS_INVALID);
    IS(atta_request(NULL, "/health", NULL, 0, &generation), ATTA_STATUS_INVALID);
    IS(atta_next(NULL, &event, sizeof event), ATTA_STATUS_INVALID);
    IS(atta_next_within(NULL, 1, &event, sizeof event), ATTA_STATUS_INVALID);
    CHECK(atta_buffer_data(NULL) == NULL && atta_buffer_size(NULL) == 0);
    atta_cancel(NULL);
    atta_options_free(NULL);
    atta_model_free(NULL);
    atta_session_free(NULL);
    atta_sampler_free(NULL);
    atta_generation_free(NULL);
    atta_buffer_free(NULL);
}

static void a_model_has_numbers_and_texts(const atta_model *model) {
    uint64_t n_vocab, number;
    atta_buffer *buffer, *text;
    const uint32_t *ids;
    OK(atta_model_number(model, "n_vocab", &n_vocab));
    CHECK(n_vocab > 100);
    IS(atta_model_number(model, "n_nothing", &number), ATTA_STATUS_INVALID);
    IS(atta_model_number(model, "token_pad", &number), ATTA_STATUS_ABSENT);
    OK(atta_model_text(model, "name", &buffer));
    CHECK(strcmp(atta_buffer_data(buffer), "stories") == 0 && atta_buffer_size(buffer) == 7);
    atta_buffer_free(buffer);
    OK(atta_model_text(model, "metadata", &buffer));
    CHECK(strstr(atta_buffer_data(buffer), "general.architecture") != NULL);
    atta_buffer_free(buffer);
    IS(atta_model_text(model, "no.such.key", &buffer), ATTA_STATUS_ABSENT);
    OK(atta_tokenize(model, PROMPT, strlen(PROMPT), 2, &buffer));
    ids = atta_buffer_data(buffer);
    OK(atta_detokenize(model, ids + 1, atta_buffer_size(buffer) / 4 - 1, 0, &text));
    CHECK(strcmp(atta_buffer_data(text), PROMPT) == 0);
    atta_buffer_free(text);
    OK(atta_detokenize(model, ids, atta_buffer_size(buffer) / 4, 3, &text));
    CHECK(strlen(atta_buffer_data(text)) > strlen(PROMPT));
    atta_buffer_free(text);
    atta_buffer_free(buffer);
    IS(atta_tokenize(model, "a", 1, 4, &buffer), ATTA_STATUS_INVALID);
    IS(atta_tokenize(model, NULL, 1, 0, &buffer), ATTA_STATUS_INVALID);
    IS(atta_detokenize(model, NULL, 0, 4, &buffer), ATTA_STATUS_INVALID);
}

static void a_session_is_worked_by_hand(const atta_model *model) {
    atta_session *session = new_session(model), *other = new_session(model);
    atta_buffer *prompt, *buffer, *state, *all;
    atta_sampler *sampler;
    const uint32_t *ids;
    uint32_t token, again, absent = 0xffffffff;
    uint64_t n_vocab;
    size_t n, n_left;
    OK(atta_model_number(model, "n_vocab", &n_vocab));
    OK(atta_tokenize(model, PROMPT, strlen(PROMPT), 2, &prompt));
    ids = atta_buffer_data(prompt);
    n = atta_buffer_size(prompt) / 4;
    IS(atta_session_logits(session, &buffer), ATTA_STATUS_ABSENT);
    OK(atta_session_append(session, ids, n));
    OK(atta_session_logits(session, &buffer));
    CHECK(atta_buffer_size(buffer) == n_vocab * sizeof(float));
    OK(atta_sampler_new(model, "{" GREEDY "}", 18, &sampler));
    OK(atta_sampler_sample(sampler, session, &token));
    OK(atta_sampler_choose(sampler, atta_buffer_data(buffer), n_vocab, ids, n, &again));
    CHECK(token == again);
    IS(atta_sampler_choose(sampler, atta_buffer_data(buffer), 3, ids, n, &again), ATTA_STATUS_INVALID);
    atta_sampler_free(sampler);

    /* The same logits, all at once. */
    OK(atta_session_append_all(other, ids, n, &all));
    CHECK(atta_buffer_size(all) == n * n_vocab * sizeof(float));
    CHECK(memcmp((const float *)atta_buffer_data(all) + (n - 1) * n_vocab, atta_buffer_data(buffer),
                 atta_buffer_size(buffer)) == 0);
    atta_buffer_free(all);
    atta_buffer_free(buffer);

    OK(atta_session_append(session, &token, 1));
    OK(atta_session_save(session, &state));
    OK(atta_session_truncate(session, n, &n_left));
    CHECK(n_left == n);
    IS(atta_session_logits(session, &buffer), ATTA_STATUS_ABSENT);
    OK(atta_session_load(other, atta_buffer_data(state), atta_buffer_size(state)));
    OK(atta_session_tokens(other, &buffer));
    CHECK(atta_buffer_size(buffer) == (n + 1) * 4);
    CHECK(memcmp(atta_buffer_data(buffer), ids, n * 4) == 0);
    atta_buffer_free(buffer);
    CHECK(atta_session_load(other, atta_buffer_data(state), 9) != ATTA_STATUS_OK);
    atta_buffer_free(state);

    IS(atta_session_append(session, &absent, 1), ATTA_STATUS_INVALID);
    IS(atta_session_append(session, NULL, 1), ATTA_STATUS_INVALID);
    for (n_left = 0; n_left < 40 && atta_session_append(session, ids, n) == ATTA_STATUS_OK; n_left++) {
    }
    IS(atta_session_append(session, ids, n), ATTA_STATUS_CONTEXT);
    SAYS("ctx");
    IS(atta_sampler_new(model, "{\"stop\": \"a\"}", 13, &sampler), ATTA_STATUS_REQUEST);
    atta_buffer_free(prompt);
    atta_session_free(session);
    atta_session_free(other);
}

static void a_session_generates(const atta_model *model) {
    atta_session *session = new_session(model);
    atta_generation *generation;
    atta_buffer *buffer;
    atta_event event;
    char text[4096], rest[4096], summary[1024];
    /* In two parts, of which the second goes on with the first. */
    generation = begin(session, "{\"prompt\": \"" PROMPT "\", \"max_tokens\": 10, " GREEDY "}");
    IS(atta_session_tokens(session, &buffer), ATTA_STATUS_BUSY);
    SAYS("in use");
    collect(generation, text, summary);
    CHECK(strstr(summary, "\"finish_reason\":\"length\"") != NULL);
    collect(begin(session, "{\"max_tokens\": 14, " GREEDY "}"), rest, NULL);
    strcat(text, rest);
    CHECK(strcmp(text, expected) == 0);

    /* Ended early, by freeing it: the session goes on. */
    generation = begin(session, "{\"prompt\": \" The end.\", \"n_probs\": 2, " GREEDY "}");
    do {
        OK(atta_next_within(generation, 1000, &event, sizeof event));
    } while (event.kind != ATTA_EVENT_KIND_TOKEN);
    CHECK(strstr(event.text, "logprob") != NULL);
    atta_generation_free(generation);
    OK(atta_session_tokens(session, &buffer));
    atta_buffer_free(buffer);

    /* An event of an older program. */
    memset(&event, 0x55, sizeof event);
    generation = begin(session, "{\"max_tokens\": 1}");
    OK(atta_next(generation, &event, 8));
    CHECK(event.n_total == 0x5555555555555555u && event.kind == ATTA_EVENT_KIND_PROMPT);
    IS(atta_next(generation, NULL, sizeof event), ATTA_STATUS_INVALID);
    atta_generation_free(generation);

    IS(atta_generate(session, "{\"temprature\": 0}", 17, &generation), ATTA_STATUS_REQUEST);
    SAYS("temprature");
    IS(atta_generate(session, "{", 1, &generation), ATTA_STATUS_REQUEST);
    IS(atta_generate(session, "[]", 2, &generation), ATTA_STATUS_REQUEST);
    IS(atta_generate(session, "{\"prompt\": [99999999]}", 22, &generation), ATTA_STATUS_INVALID);
    IS(atta_generate(session, "{\"temperature\": -1e9, \"top_p\": 7}", 33, &generation), ATTA_STATUS_REQUEST);
    SAYS("top_p");
    atta_session_free(session);
    session = new_session(model);
    IS(atta_generate(session, NULL, 0, &generation), ATTA_STATUS_REQUEST);
    CHECK(generation == NULL);
    atta_session_free(session);
}

static atta_generation *request(const atta_model *model, const char *path, const char *body) {
    atta_generation *generation;
    OK(atta_request(model, path, body, body ? strlen(body) : 0, &generation));
    return generation;
}

static void a_model_answers_requests(const atta_model *model) {
    atta_generation *generation;
    atta_event event;
    int n_events = 0;
    generation = request(model, "/v1/completions", "{\"prompt\": \"" PROMPT "\", \"max_tokens\": 8, " GREEDY ", \"sed\": 1}");
    OK(atta_next(generation, &event, sizeof event));
    CHECK(event.kind == ATTA_EVENT_KIND_JSON && strstr(event.text, "text_completion") != NULL);
    OK(atta_next(generation, &event, sizeof event));
    CHECK(event.kind == ATTA_EVENT_KIND_NOTE && strstr(event.text, "sed") != NULL);
    OK(atta_next(generation, &event, sizeof event));
    CHECK(event.kind == ATTA_EVENT_KIND_DONE);
    IS(atta_next(generation, &event, sizeof event), ATTA_STATUS_END);
    atta_generation_free(generation);

    generation = request(model, "/v1/completions", "{\"prompt\": \"a\", \"max_tokens\": 4, \"stream\": true}");
    do {
        OK(atta_next(generation, &event, sizeof event));
        n_events++;
    } while (event.kind != ATTA_EVENT_KIND_DONE);
    CHECK(n_events > 2);
    atta_generation_free(generation);

    generation = request(model, "/v1/models", NULL);
    OK(atta_next(generation, &event, sizeof event));
    CHECK(strstr(event.text, "stories") != NULL);
    atta_generation_free(generation);

    generation = request(model, "/v1/completions", "{");
    IS(atta_next(generation, &event, sizeof event), ATTA_STATUS_REQUEST);
    SAYS("JSON");
    IS(atta_next(generation, &event, sizeof event), ATTA_STATUS_END);
    atta_generation_free(generation);
    generation = request(model, "/nowhere", "{}");
    IS(atta_next(generation, &event, sizeof event), ATTA_STATUS_REQUEST);
    atta_generation_free(generation);
    IS(atta_request(model, "no path", "{}", 2, &generation), ATTA_STATUS_INVALID);
    IS(atta_request(model, NULL, "{}", 2, &generation), ATTA_STATUS_INVALID);
    /* Freed before it was sent. */
    atta_generation_free(request(model, "/v1/completions", "{\"prompt\": \"a\"}"));
}

static void *cancel(void *generation) {
    atta_cancel(generation);
    return NULL;
}

static void any_thread_may_cancel(const atta_model *model) {
    atta_session *session = new_session(model);
    atta_generation *generation;
    atta_event event;
    pthread_t thread;
    char text[4096], summary[1024];
    generation = begin(session, "{\"prompt\": \"" PROMPT "\"}");
    OK(atta_next(generation, &event, sizeof event));
    pthread_create(&thread, NULL, cancel, generation);
    pthread_join(thread, NULL);
    collect(generation, text, summary);
    CHECK(strstr(summary, "interrupted") != NULL);
    atta_session_free(session);

    /* A request that waits meanwhile. */
    generation = request(model, "/v1/completions", "{\"prompt\": \"" PROMPT "\", \"max_tokens\": 100000, \"logit_bias\": {\"2\": -100}}");
    while (atta_next_within(generation, 1, &event, sizeof event) == ATTA_STATUS_PENDING) {
        pthread_create(&thread, NULL, cancel, generation);
        pthread_join(thread, NULL);
    }
    atta_generation_free(generation);
}

static uint64_t number(const atta_model *model, const char *name) {
    uint64_t value;
    OK(atta_model_number(model, name, &value));
    return value;
}

static void a_session_is_suspended_and_goes_on(const atta_model *model) {
    static const char START[] = "{\"prompt\": \"" PROMPT "\", \"max_tokens\": 10, " GREEDY "}";
    static const char REST[] = "{\"max_tokens\": 14, " GREEDY "}";
    const char *files[2] = {NULL, "suspended.state"};
    atta_generation *generation;
    atta_event event;
    char text[4096], rest[4096];
    uint64_t with_memory;
    int i, n_events;
    for (i = 0; i < 2; i++) {
        atta_session *session = new_session(model);
        collect(begin(session, START), text, NULL);
        with_memory = number(model, "ram_used");
        OK(atta_session_suspend(session, files[i]));
        CHECK(number(model, "ram_used") < with_memory);
        IS(atta_generate(session, REST, strlen(REST), &generation), ATTA_STATUS_SUSPENDED);
        SAYS("resume");
        OK(atta_session_resume(session));
        CHECK(number(model, "ram_used") == with_memory);
        /* And between the events of the rest. */
        generation = begin(session, REST);
        IS(atta_session_suspend(session, NULL), ATTA_STATUS_BUSY);
        for (n_events = 0; n_events < 9; n_events++) {
            OK(atta_next(generation, &event, sizeof event));
            if (event.kind == ATTA_EVENT_KIND_TEXT) strcat(text, event.text);
        }
        OK(atta_generation_suspend(generation, files[i]));
        CHECK(number(model, "ram_used") < with_memory);
        IS(atta_next(generation, &event, sizeof event), ATTA_STATUS_SUSPENDED);
        OK(atta_generation_resume(generation));
        collect(generation, rest, NULL);
        strcat(text, rest);
        CHECK(strcmp(text, expected) == 0);
        /* Freed while it is suspended. */
        generation = begin(session, REST);
        OK(atta_next(generation, &event, sizeof event));
        OK(atta_generation_suspend(generation, NULL));
        atta_generation_free(generation);
        OK(atta_session_resume(session));
        IS(atta_session_suspend(session, "/no/such/folder"), ATTA_STATUS_FAILED);
        SAYS("folder");
        atta_session_free(session);
    }
    CHECK(fopen(files[1], "r") == NULL);
}

static void requests_give_their_memory_back(const atta_model *model) {
    static const char BODY[] = "{\"prompt\": \"a\", \"max_tokens\": 2}";
    atta_event event;
    atta_generation *generation = request(model, "/v1/completions", BODY);
    uint64_t with_memory;
    OK(atta_next(generation, &event, sizeof event));
    with_memory = number(model, "ram_used");
    IS(atta_generation_suspend(generation, NULL), ATTA_STATUS_INVALID);
    IS(atta_model_suspend(model), ATTA_STATUS_BUSY);
    atta_generation_free(generation);
    OK(atta_model_suspend(model));
    OK(atta_model_suspend(model));
    CHECK(number(model, "ram_used") < with_memory);
    generation = request(model, "/v1/completions", BODY);
    OK(atta_next(generation, &event, sizeof event));
    atta_generation_free(generation);
}

static void heat_slows_and_pauses(const atta_model *model) {
    atta_session *session = new_session(model);
    atta_generation *generation;
    atta_event event;
    char text[4096], summary[1024];
    IS(atta_model_set_heat(model, 4), ATTA_STATUS_INVALID);
    IS(atta_model_set_heat(model, -1), ATTA_STATUS_INVALID);
    SAYS("-1");
    OK(atta_model_set_heat(model, ATTA_HEAT_CRITICAL));
    CHECK(number(model, "heat") == ATTA_HEAT_CRITICAL);
    collect(begin(session, "{\"prompt\": \"" PROMPT "\", \"max_tokens\": 24, " GREEDY "}"), text, NULL);
    CHECK(strcmp(text, expected) == 0);
    OK(atta_model_set_heat(model, ATTA_HEAT_EMERGENCY));
    generation = begin(session, "{\"max_tokens\": 1, " GREEDY "}");
    IS(atta_next_within(generation, 1, &event, sizeof event), ATTA_STATUS_PENDING);
    SAYS("hot");
    OK(atta_model_set_heat(model, ATTA_HEAT_NOMINAL));
    OK(atta_next(generation, &event, sizeof event));
    OK(atta_model_set_heat(model, ATTA_HEAT_EMERGENCY));
    /* What is cancelled need not wait. */
    atta_cancel(generation);
    collect(generation, text, summary);
    CHECK(strstr(summary, "interrupted") != NULL);
    generation = request(model, "/v1/completions", "{\"prompt\": \"a\", \"max_tokens\": 2}");
    IS(atta_next_within(generation, 1, &event, sizeof event), ATTA_STATUS_PENDING);
    OK(atta_model_set_heat(model, ATTA_HEAT_NOMINAL));
    OK(atta_next(generation, &event, sizeof event));
    atta_generation_free(generation);
    atta_session_free(session);
}

static const atta_model *shared_model;

static void *write_text(void *unused) {
    atta_session *session = new_session(shared_model);
    char text[4096];
    collect(begin(session, "{\"prompt\": \"" PROMPT "\", \"max_tokens\": 24, " GREEDY "}"), text, NULL);
    CHECK(strcmp(text, expected) == 0);
    atta_session_free(session);
    return unused;
}

static void *use_session(void *session) {
    int i;
    for (i = 0; i < 200; i++) {
        atta_buffer *buffer;
        int status = atta_session_tokens(session, &buffer);
        CHECK(status == ATTA_STATUS_OK || status == ATTA_STATUS_BUSY);
        atta_buffer_free(buffer);
    }
    return NULL;
}

static void in_threads(int n, void *(*work)(void *), void *argument) {
    pthread_t threads[8];
    int i;
    for (i = 0; i < n; i++) pthread_create(&threads[i], NULL, work, argument);
    for (i = 0; i < n; i++) pthread_join(threads[i], NULL);
}

static void threads_share_a_model_and_not_a_session(const atta_model *model) {
    atta_session *session = new_session(model);
    shared_model = model;
    in_threads(2, write_text, NULL);
    in_threads(8, use_session, session);
    atta_session_free(session);
}

static void set_lora(const atta_session *session, const char *json) {
    OK(atta_session_set_lora(session, json, strlen(json)));
}

static void adapters_belong_to_sessions_and_requests(void) {
    static const char STORY[] = "{\"prompt\": \"" PROMPT "\", \"max_tokens\": 24, " GREEDY "}";
    static const char BODY[] = "{\"prompt\": \"" PROMPT "\", \"max_tokens\": 24, " GREEDY
                               ", \"lora\": [{\"name\": \"tale\"}]}";
    atta_options *options;
    atta_model *model;
    atta_session *session;
    atta_generation *generation;
    atta_event event;
    char text[4096], tale[4096];
    OK(atta_options_new(&options));
    OK(atta_options_set_u64(options, "ctx", 128));
    IS(atta_options_set_text(options, "lora", "a.gguf", 6), ATTA_STATUS_INVALID);
    SAYS("path");
    OK(atta_options_set_text(options, "lora", lora, strlen(lora)));
    OK(atta_model_open(model_path, options, &model));
    OK(atta_options_set_text(options, "lora", "[{\"path\": \"/nowhere\"}]", 22));
    session = new_session(model);
    collect(begin(session, STORY), text, NULL);
    CHECK(strcmp(text, expected) == 0);
    set_lora(session, "[{\"name\": \"tale\", \"scale\": 2}]");
    collect(begin(session, STORY), tale, NULL);
    CHECK(strcmp(tale, expected) != 0);
    set_lora(session, "[{\"id\": 0}]");
    collect(begin(session, STORY), tale, NULL);
    CHECK(strcmp(tale, expected) != 0);
    set_lora(session, "[]");
    collect(begin(session, STORY), text, NULL);
    CHECK(strcmp(text, expected) == 0);
    IS(atta_session_set_lora(session, "[{\"name\": \"b\"}]", 15), ATTA_STATUS_REQUEST);
    SAYS("tale");
    IS(atta_session_set_lora(session, "{", 1), ATTA_STATUS_REQUEST);
    atta_session_free(session);
    generation = request(model, "/v1/completions", BODY);
    OK(atta_next(generation, &event, sizeof event));
    CHECK(strstr(event.text, "text_completion") != NULL);
    atta_generation_free(generation);
    atta_model_free(model);
    IS(atta_model_open(model_path, options, &model), ATTA_STATUS_MODEL);
    SAYS("nowhere");
    atta_options_free(options);
}

static void a_parent_may_be_freed_first(void) {
    atta_model *model = open_model();
    atta_session *session = new_session(model);
    atta_generation *generation;
    char text[4096];
    atta_model_free(model);
    generation = begin(session, "{\"prompt\": \"" PROMPT "\", \"max_tokens\": 24, " GREEDY "}");
    atta_session_free(session);
    collect(generation, text, NULL);
    CHECK(strcmp(text, expected) == 0);
}

/* Resident memory in pages; 0 where the system does not say. */
static long resident(void) {
    long total, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file) return 0;
    if (fscanf(file, "%ld %ld", &total, &pages) != 2) pages = 0;
    fclose(file);
    return pages;
}

static void cycle(int n) {
    int i;
    atta_model *model = open_model();
    for (i = 0; i < n; i++) {
        atta_session *session = new_session(model);
        atta_generation *generation = begin(session, "{\"prompt\": \"Once\", \"max_tokens\": 1}");
        atta_event event;
        OK(atta_next(generation, &event, sizeof event));
        OK(atta_next(generation, &event, sizeof event));
        atta_generation_free(generation);
        atta_session_free(session);
    }
    atta_model_free(model);
}

static void a_thousand_cycles_leave_nothing(void) {
    long before;
    int i;
    cycle(100);
    before = resident();
    for (i = 0; i < 10; i++) cycle(100);
    /* 1 MB: what an allocator keeps of its own. */
    CHECK(resident() - before < 256);
}

int main(int argc, char **argv) {
    atta_model *model;
    if (argc != 4) return 2;
    model_path = argv[1];
    expected = argv[2];
    lora = argv[3];
    versions_and_names();
    options_are_checked();
    nothing_takes_null_for_a_handle();
    model = open_model();
    a_model_has_numbers_and_texts(model);
    a_session_is_worked_by_hand(model);
    a_session_generates(model);
    a_model_answers_requests(model);
    any_thread_may_cancel(model);
    a_session_is_suspended_and_goes_on(model);
    requests_give_their_memory_back(model);
    heat_slows_and_pauses(model);
    threads_share_a_model_and_not_a_session(model);
    atta_model_free(model);
    adapters_belong_to_sessions_and_requests();
    a_parent_may_be_freed_first();
    a_thousand_cycles_leave_nothing();
    return 0;
}
