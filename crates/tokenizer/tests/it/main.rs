//! The tokenizer through its public interface: goldens, properties, and bad metadata.

mod encoding;
mod goldens;
mod metadata;
mod vocabularies;
mod wordpiece;
