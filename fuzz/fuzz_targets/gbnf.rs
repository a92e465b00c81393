//! Arbitrary text as a GBNF grammar: translated or refused, in bounded time, with the same result
//! each time.
#![no_main]

use atta_constrain::gbnf;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|source: &str| {
    let lark = gbnf::to_lark(source);
    if let Ok(lark) = &lark {
        assert!(lark.starts_with("start: r"), "{lark}");
        assert!(
            lark.lines().all(|line| line.contains(": ")),
            "a rule per line: {lark}"
        );
    }
    assert_eq!(lark, gbnf::to_lark(source));
});
