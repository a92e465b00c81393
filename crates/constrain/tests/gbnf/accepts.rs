//! What llguidance makes of a translation, over a vocabulary of single bytes.

pub(crate) use atta_constrain::gbnf::to_lark;

use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities};
use llguidance::{Matcher, ParserFactory};

thread_local! {
    static FACTORY: ParserFactory = factory();
}

fn factory() -> ParserFactory {
    let env = ApproximateTokEnv::single_byte_env();
    let mut factory = ParserFactory::new(&env, InferenceCapabilities::default(), &[]).unwrap();
    factory.quiet();
    factory
}

fn matcher(lark: &str) -> Matcher {
    Matcher::new(
        FACTORY.with(|factory| factory.create_parser(TopLevelGrammar::from_lark(lark.to_owned()))),
    )
}

/// Why llguidance does not take the grammar, if it does not.
pub(crate) fn error_of(lark: &str) -> Option<String> {
    matcher(lark).get_error()
}

/// Whether the grammar takes the whole text and may end after it.
pub(crate) fn accepts(lark: &str, text: &[u8]) -> bool {
    let mut matcher = matcher(lark);
    if let Some(error) = matcher.get_error() {
        panic!("{error}\n{lark}");
    }
    let tokens: Vec<u32> = text.iter().map(|&byte| u32::from(byte)).collect();
    let n_taken = matcher
        .try_consume_tokens(&tokens)
        .unwrap_or_else(|error| panic!("{error} for {text:?}\n{lark}"));
    n_taken == tokens.len() && matcher.is_accepting().unwrap()
}
