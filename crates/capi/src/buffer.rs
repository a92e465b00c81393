//! Buffers: results that the library allocates and the program frees.
//!
//! Knows no meaning of the bytes. The one idea: what a function returns lies in one piece behind an
//! opaque handle, so that a program can use it where it is, without a copy.

use std::{ffi::c_void, ptr};

use crate::pointer::free;

/// A result: a text, tokens, numbers, or bytes.
#[derive(Debug)]
pub struct AttaBuffer(BufferBytes);

#[derive(Debug)]
enum BufferBytes {
    /// With a NUL behind it that does not count.
    Text(Vec<u8>),
    Tokens(Vec<u32>),
    Numbers(Vec<f32>),
    Bytes(Vec<u8>),
}

impl AttaBuffer {
    pub(crate) fn text(text: impl Into<Vec<u8>>) -> Self {
        let mut bytes = text.into();
        bytes.push(0);
        Self(BufferBytes::Text(bytes))
    }

    pub(crate) fn tokens(ids: Vec<u32>) -> Self {
        Self(BufferBytes::Tokens(ids))
    }

    pub(crate) fn numbers(numbers: Vec<f32>) -> Self {
        Self(BufferBytes::Numbers(numbers))
    }

    pub(crate) fn bytes(bytes: Vec<u8>) -> Self {
        Self(BufferBytes::Bytes(bytes))
    }

    fn start(&self) -> *const c_void {
        match &self.0 {
            BufferBytes::Text(bytes) | BufferBytes::Bytes(bytes) => bytes.as_ptr().cast(),
            BufferBytes::Tokens(ids) => ids.as_ptr().cast(),
            BufferBytes::Numbers(numbers) => numbers.as_ptr().cast(),
        }
    }

    fn n_bytes(&self) -> usize {
        match &self.0 {
            BufferBytes::Text(bytes) => bytes.len() - 1,
            BufferBytes::Bytes(bytes) => bytes.len(),
            BufferBytes::Tokens(ids) => size_of_val(&ids[..]),
            BufferBytes::Numbers(numbers) => size_of_val(&numbers[..]),
        }
    }
}

/// The values of a buffer: uint32_t of tokens, float of numbers, char of a text, which has a NUL
/// behind it. Valid until the buffer is freed. NULL for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn atta_buffer_data(buffer: Option<&AttaBuffer>) -> *const c_void {
    buffer.map_or(ptr::null(), AttaBuffer::start)
}

/// The size of a buffer in bytes, without the NUL behind a text. 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn atta_buffer_size(buffer: Option<&AttaBuffer>) -> usize {
    buffer.map_or(0, AttaBuffer::n_bytes)
}

/// Frees a buffer. NULL is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn atta_buffer_free(buffer: Option<Box<AttaBuffer>>) {
    free(buffer);
}
