//! GBNF, the grammar language of llama.cpp, to Lark as llguidance reads it: text in, text out. No
//! grammar engine is known here.
//!
//! GBNF means characters one after another; llguidance reads terminals, each as long as possible,
//! and only then asks the grammar. One terminal per character would keep the meaning and be far too
//! slow. So regular parts become terminals, the largest possible (`reduce`, `loops`, `plan`); where
//! the longest match could lose a text they are divided, down to single characters if need be
//! (`refine`). A grammar that is regular as a whole is one terminal, and exact at once.

mod automaton;
mod charset;
mod emit;
mod error;
mod expr;
mod flow;
mod loops;
mod parse;
mod places;
mod plan;
mod reduce;
mod refine;

pub use error::GbnfError;

use expr::Expr;

/// Translates a grammar, which begins with the rule `root`, to Lark for llguidance with the same
/// texts.
///
/// A rule that is defined twice is what its last definition says, as in llama.cpp. Rules may begin
/// with themselves. What can never end is left out. A token that is negated by name (`!<name>`) is
/// refused, by number it is not.
///
/// Where a token (`<name>`, `<[id]>`, `!<[id]>`) and characters may stand in the same place, and
/// the token spells the beginning of what the characters may be, llguidance takes the token and
/// forgets the characters: texts may be lost there, none is added. Without tokens the texts are the
/// same.
///
/// # Errors
/// If the text is not GBNF, a rule is missing, no text is finite, or the grammar is larger or
/// deeper than can be translated in bounded time.
pub fn to_lark(source: &str) -> Result<String, GbnfError> {
    let mut grammar = parse::parse(source)?;
    reduce::reduce(&mut grammar)?;
    let bodies = loops::open_loops(&grammar.bodies);
    let mut planned: Vec<Expr> = bodies.iter().map(plan::plan).collect();
    if !plan::is_one_terminal(&planned[grammar.root]) {
        refine::refine(&mut planned, grammar.root)?;
    }
    emit::emit(&planned, grammar.root)
}
