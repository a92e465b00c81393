//! Vocabularies: from the files of a directory to the ids that the programs give which those files
//! were made for.

mod byte_level;
mod goldens;
mod plain_files;
mod roles;
mod sentencepiece;
