// What an app does with the package. ATTA_TEST_MODEL names a model, such as tests/golden/stories.gguf.

import Foundation
import XCTest

@testable import Atta

final class AttaTests: XCTestCase {
    private let greedy: [String: Any] = ["max_tokens": 24, "temperature": 0]

    private func model() throws -> Model {
        let path = ProcessInfo.processInfo.environment["ATTA_TEST_MODEL"]
        var options = Options()
        options.ctx = 256
        options.threads = 1
        return try Model(path: XCTUnwrap(path, "ATTA_TEST_MODEL"), options: options)
    }

    private func text(_ stream: AsyncThrowingStream<String, Error>) async throws -> String {
        var all = ""
        for try await piece in stream { all += piece }
        return all
    }

    private func text(of model: Model) async throws -> String {
        try await text(model.session().generate("Once upon a time", greedy).texts)
    }

    func testATextIsThatOfARequest() async throws {
        let model = try model()
        let body = try json(greedy.merging(["prompt": "Once upon a time"]) { $1 })
        let response = try await model.request("/v1/completions", body: body)
        let expected = try await text(of: model)
        let object = try JSONSerialization.jsonObject(with: Data(response.utf8)) as? [String: Any]
        let choices = object?["choices"] as? [[String: Any]]
        XCTAssertEqual(choices?.first?["text"] as? String, expected)
    }

    func testTokensBecomeTextAgain() throws {
        let model = try model()
        XCTAssertEqual(try model.detokenize(model.tokenize("Once upon a time")), "Once upon a time")
    }

    func testAMissingFileIsAnError() {
        XCTAssertThrowsError(try Model(path: "/nowhere.gguf")) { error in
            XCTAssertEqual((error as? AttaError)?.status, .model)
        }
    }

    func testAConversationIsStreamed() async throws {
        let messages = [["role": "user", "content": "Tell me a story."]]
        let answer = try await text(model().chat(messages, greedy))
        XCTAssertFalse(answer.isEmpty)
    }

    func testASuspendedSessionGoesOnWithTheSameText() async throws {
        let model = try model()
        let expected = try await text(of: model)
        let path = NSTemporaryDirectory() + "atta-test.state"
        for file in [nil, path] {
            let session = try model.session()
            let generation = try session.generate("Once upon a time", greedy)
            var start = ""
            for _ in 0..<9 {
                if let event = try generation.next(), event.kind == .text { start += event.text }
            }
            try generation.suspend(to: file)
            XCTAssertThrowsError(try generation.next()) { error in
                XCTAssertEqual((error as? AttaError)?.status, .suspended)
            }
            try generation.resume()
            let rest = try await text(generation.texts)
            XCTAssertEqual(start + rest, expected)
        }
    }

    func testACancelledTaskEndsItsGeneration() async throws {
        let session = try model().session()
        let task = Task {
            let endless: [String: Any] = ["temperature": 0, "logit_bias": ["2": -100]]
            for try await _ in try session.generate("Once upon a time", endless).texts {}
        }
        task.cancel()
        _ = try? await task.value
        XCTAssertNoThrow(try session.tokens())
    }
}
