//! What a program in C sees: the symbols and structs of the library, and programs that use all of
//! it.

mod abi;
mod programs;
