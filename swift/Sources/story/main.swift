// The program of docs/embedding.md: story MODEL

import Atta

let model = try Model(path: CommandLine.arguments[1])
let session = try model.session()
for try await text in try session.generate("Once upon a time", ["max_tokens": 32]).texts {
    print(text, terminator: "")
}
