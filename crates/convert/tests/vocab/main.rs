//! Converted vocabularies give the ids of the tokenizers that the files were made for.

mod byte_level;
mod goldens;
mod plain_files;
mod sentencepiece;
mod special_tokens;
