// A conversation in C++17, in chunks: chat MODEL MESSAGE

#include <atta.h>

#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>

namespace {

// Frees a handle by the function of its type.
struct Free {
    void operator()(atta_model *model) const { atta_model_free(model); }
    void operator()(atta_options *options) const { atta_options_free(options); }
    void operator()(atta_generation *generation) const { atta_generation_free(generation); }
};

template <typename T> using Handle = std::unique_ptr<T, Free>;

void check(int status) {
    if (status != ATTA_STATUS_OK) throw std::runtime_error(atta_last_error());
}

Handle<atta_model> open(const char *path) {
    atta_options *options = nullptr;
    check(atta_options_new(&options));
    Handle<atta_options> guard(options);
    check(atta_options_set_u64(options, "ctx", 256));
    check(atta_options_set_text(options, "chat_template", "plain", 5));
    atta_model *model = nullptr;
    check(atta_model_open(path, options, &model));
    return Handle<atta_model>(model);
}

Handle<atta_generation> ask(atta_model *model, const std::string &message) {
    const std::string body = R"({"messages": [{"role": "user", "content": ")" + message +
                             R"("}], "max_tokens": 8, "temperature": 0, "stream": true})";
    atta_generation *generation = nullptr;
    check(atta_request(model, "/v1/chat/completions", body.data(), body.size(), &generation));
    return Handle<atta_generation>(generation);
}

} // namespace

int main(int argc, char **argv) try {
    if (argc != 3) return 2;
    const auto model = open(argv[1]);
    const auto answer = ask(model.get(), argv[2]);
    atta_event event;
    int n_chunks = 0;
    for (;;) {
        check(atta_next(answer.get(), &event, sizeof event));
        if (event.kind == ATTA_EVENT_KIND_DONE) break;
        if (event.kind == ATTA_EVENT_KIND_JSON) {
            ++n_chunks;
            std::cout << event.text << '\n';
        }
    }
    std::cout << n_chunks << " chunks, among them tokens\n";
    return n_chunks > 2 ? 0 : 1;
} catch (const std::exception &error) {
    std::cerr << error.what() << '\n';
    return 1;
}
