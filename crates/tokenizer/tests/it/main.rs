//! The tokenizer as its users see it: against goldens, against properties, and against bad
//! metadata.

mod encoding;
mod goldens;
mod metadata;
mod vocabularies;
mod wordpiece;
