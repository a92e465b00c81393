//! Arbitrary bytes as a question, a wish or an answer between nodes, as they are and as the body of
//! a message of this version. A message that is read is written back, and read again as the same.
#![no_main]

use atta_cluster::wire::message::{Answer, PartRequest, Question};
use libfuzzer_sys::fuzz_target;

fn check(bytes: &[u8]) {
    if let Ok(question) = Question::parse(bytes) {
        // The same message can be longer where numbers are written out.
        if let Ok(again) = question.to_bytes() {
            assert_eq!(Question::parse(&again), Ok(question));
        }
    }
    if let Ok(request) = PartRequest::parse(bytes)
        && let Ok(again) = request.to_bytes()
    {
        assert_eq!(PartRequest::parse(&again), Ok(request));
    }
    if let Ok(answer) = Answer::parse(bytes)
        && let Ok(again) = answer.to_bytes()
    {
        // A speed may be read as its neighbour.
        assert!(Answer::parse(&again).is_ok());
    }
}

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    check(&[b"{\"version\":1,\"body\":", bytes, b"}"].concat());
});
