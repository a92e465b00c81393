/* Writes a text behind a prompt: first MODEL PROMPT */

#include <atta.h>
#include <stdio.h>
#include <string.h>

static const char REQUEST[] = "{\"prompt\": \"%s\", \"max_tokens\": 32, \"temperature\": 0}";

int main(int argc, char **argv) {
    atta_model *model;
    atta_session *session;
    atta_generation *generation;
    atta_event event;
    char request[1024];
    if (argc != 3) return 2;
    snprintf(request, sizeof request, REQUEST, argv[2]);
    if (atta_model_open(argv[1], NULL, &model) || atta_session_new(model, NULL, &session) ||
        atta_generate(session, request, strlen(request), &generation)) {
        fprintf(stderr, "%s\n", atta_last_error());
        return 1;
    }
    while (atta_next(generation, &event, sizeof event) == ATTA_STATUS_OK)
        if (event.kind == ATTA_EVENT_KIND_TEXT) fputs(event.text, stdout);
    puts("");
    atta_generation_free(generation);
    atta_session_free(session);
    atta_model_free(model);
    return 0;
}
