//! Options of a generation.

use atta_tokenizer::Control;

use crate::Sampling;

/// Options of a generation.
#[derive(Clone, Debug)]
pub struct GenerateOptions {
    /// Maximum number of tokens.
    pub n_predict: usize,
    /// How the next token is sampled.
    pub sampling: Sampling,
    /// Stop strings; they are not part of the text. One that ends in the spelling of a control
    /// token, such as `<|user|>`, ends the text at that token.
    pub stop: Vec<String>,
    /// Number of most probable tokens whose log-probabilities come with each token, beside that of
    /// the chosen one. They cost a pass over the vocabulary. Tokens that a constraint forces have
    /// none.
    pub n_logprobs: Option<usize>,
    /// Whether control tokens are shown in the text.
    pub control: Control,
    /// The grammar that the text must match. A stop string ends the text all the same.
    pub constraint: Option<crate::Constraint>,
    /// How a text that reaches its length before it matches its constraint ends.
    pub on_length: crate::OnLength,
    /// How the first tool call of a constrained text begins, which may be rolled back. Each token
    /// of its name takes a step of its own then, even where the constraint forces it.
    pub call_start: Option<crate::CallStart>,
    /// Drafts that may make the text faster; they never change it.
    pub speculation: Option<crate::Speculation>,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self {
            n_predict: 256,
            sampling: Sampling::default(),
            stop: Vec::new(),
            n_logprobs: None,
            control: Control::default(),
            constraint: None,
            on_length: crate::OnLength::default(),
            call_start: None,
            speculation: None,
        }
    }
}
