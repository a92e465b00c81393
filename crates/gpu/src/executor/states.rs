//! Recurrent states on a GPU, in the blocks that the cache gives them, as f32.

use super::buffer::OwnBuffer;
use crate::{BufferId, Error, SharedHost};
use atta_model::{Error as ModelError, StateBlocks};
use std::io::Write;
use std::ops::Range;

/// The blocks of the states of all recurrent layers.
#[derive(Debug)]
pub(super) struct GpuStates {
    host: SharedHost,
    buffer: OwnBuffer,
    block_floats: usize,
}

impl GpuStates {
    /// Blocks of zeros.
    pub(super) fn new(
        host: &SharedHost,
        n_blocks: usize,
        block_floats: usize,
    ) -> Result<Self, Error> {
        let bytes = 4 * (n_blocks as u64).saturating_mul(block_floats as u64);
        if bytes / 4 > u64::from(u32::MAX) {
            let most = 4 * u64::from(u32::MAX);
            return Err(Error::BufferSize { bytes, most });
        }
        Ok(Self {
            host: host.clone(),
            // A model without recurrent layers has a buffer that nothing reads.
            buffer: OwnBuffer::new(host, bytes.max(4))?,
            block_floats,
        })
    }

    /// The buffer of all blocks.
    pub(super) fn buffer(&self) -> BufferId {
        self.buffer.id()
    }

    /// Words of a block.
    pub(super) fn block_words(&self) -> u32 {
        self.block_floats as u32
    }

    /// The first byte of a float of a block.
    fn byte(&self, block: u32, at: usize) -> u64 {
        4 * (u64::from(block) * self.block_floats as u64 + at as u64)
    }
}

impl StateBlocks for GpuStates {
    fn export(
        &self,
        block: u32,
        floats: Range<usize>,
        out: &mut dyn Write,
    ) -> Result<(), ModelError> {
        let mut bytes = vec![0; 4 * floats.len()];
        let at = self.byte(block, floats.start);
        let read = self.host.lock().read(self.buffer.id(), at, &mut bytes);
        read.map_err(ModelError::from)?;
        out.write_all(&bytes).map_err(ModelError::Export)
    }

    fn fill(&mut self, block: u32, at: usize, bytes: &[u8]) -> Result<(), ModelError> {
        let at = self.byte(block, at);
        let written = self.host.lock().write(self.buffer.id(), at, bytes);
        Ok(written?)
    }
}
