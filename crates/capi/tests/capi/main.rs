//! What a program in C sees: the symbols and structs of the library, and programs that use all of
//! it.

#[path = "../../../engine/tests/adapter_file/mod.rs"]
mod adapter_file;

mod abi;
mod programs;
