//! The header of a QSF file: the sizes of the model, and where its sections are.

use super::{Qsf, crc32, expect, reader::SectionReader, sections::LayerEntry, wrong};
use crate::{Error, container::Container};

/// A struct of little-endian fields at fixed offsets, each with a getter and a setter.
macro_rules! fields {
    ($(#[$doc:meta])* $name:ident, $bytes:literal: {
        $($(#[$field_doc:meta])* $get:ident $set:ident: $ty:ty = $at:literal;)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct $name(pub [u8; $bytes]);

        impl $name {
            /// Bytes in the file.
            pub const BYTES: usize = $bytes;
            $(
                $(#[$field_doc])*
                pub fn $get(&self) -> $ty {
                    let field = self.0[$at..].first_chunk();
                    <$ty>::from_le_bytes(*field.expect("the field lies inside"))
                }

                #[doc = concat!("Sets [`", stringify!($get), "`](Self::", stringify!($get), ").")]
                pub fn $set(&mut self, value: $ty) {
                    let bytes = value.to_le_bytes();
                    self.0[$at..][..bytes.len()].copy_from_slice(&bytes);
                }
            )*
        }

        impl Default for $name {
            fn default() -> Self {
                Self([0; $bytes])
            }
        }
    };
}
pub(super) use fields;

fields! {
    /// The first 128 bytes of a file.
    Header, 128: {
        /// The version of the format, 1.
        version set_version: u32 = 4;
        /// Length of the header, 128.
        header_bytes set_header_bytes: u32 = 8;
        /// Architecture, see [`Header::LLAMA`].
        arch set_arch: u32 = 12;
        /// Layers.
        n_layers set_n_layers: u32 = 16;
        /// Width of the model.
        d_model set_d_model: u32 = 20;
        /// Query heads.
        n_heads set_n_heads: u32 = 24;
        /// Key-value heads; 0: as many as query heads.
        n_kv_heads set_n_kv_heads: u32 = 28;
        /// Tokens of the vocabulary.
        n_vocab set_n_vocab: u32 = 32;
        /// The longest sequence, tokens.
        n_ctx set_n_ctx: u32 = 36;
        /// Width of feed-forward blocks.
        d_ff set_d_ff: u32 = 40;
        /// Width of a head; 0: that of the model divided by the heads.
        d_head set_d_head: u32 = 44;
        /// The code of the type of most weights, or 5 for several.
        quant set_quant: u8 = 48;
        /// Activation: 0 GELU, 1 SiLU, 2 ReLU.
        activation set_activation: u8 = 49;
        /// Norm: 0 LayerNorm, 1 RMS.
        norm set_norm: u8 = 50;
        /// Positions: 0 learned, 1 rope, 2 ALiBi.
        positions set_positions: u8 = 51;
        /// Base of the rope's frequencies.
        rope_base set_rope_base: f32 = 52;
        /// Where the index of layers is.
        index_at set_index_at: u64 = 56;
        /// Where the section of the embedding is.
        embedding_at set_embedding_at: u64 = 64;
        /// Where the section of the final norm and the head is.
        final_at set_final_at: u64 = 72;
        /// The token that begins a text.
        bos set_bos: u32 = 80;
        /// The token that ends a text.
        eos set_eos: u32 = 84;
        /// The token that fills up batches.
        pad set_pad: u32 = 88;
        /// The low 32 bits of the length of the file.
        file_bytes_low set_file_bytes_low: u32 = 92;
        /// CRC-32 of bytes 0 to 95.
        checksum set_checksum: u32 = 96;
        /// Where the extension table is; with the next two, 0 in a plain file.
        table_at set_table_at: u64 = 100;
        /// Length of the extension table.
        table_bytes set_table_bytes: u32 = 108;
        /// CRC-32C of the extension table.
        table_checksum set_table_checksum: u32 = 112;
    }
}

impl Header {
    /// The architecture code of Llama.
    pub const LLAMA: u32 = 1;
    /// The architecture code of Mistral, which is computed the same.
    pub const MISTRAL: u32 = 2;
    /// The architecture code of models that only the extension describes.
    pub const CUSTOM: u32 = 4;
    /// The activation code of SiLU.
    pub const SILU: u8 = 1;
    /// The norm code of RMS norms.
    pub const RMS: u8 = 1;
    /// The positions code of a rope.
    pub const ROPE: u8 = 1;
    /// The type code of several types.
    pub const MIXED: u8 = 5;

    /// A header with the constants of the format, and all else 0.
    pub fn new() -> Self {
        let mut header = Self::default();
        header.0[..4].copy_from_slice(&Qsf::MAGIC);
        header.set_version(1);
        header.set_header_bytes(Self::BYTES as u32);
        header
    }

    /// Whether the file has an extension table.
    pub fn has_table(&self) -> bool {
        self.0[100..116] != [0; 16]
    }

    /// Writes the length of the file and the checksum of the header.
    pub fn seal(&mut self, file_bytes: u64) {
        self.set_file_bytes_low(file_bytes as u32);
        self.set_checksum(crc32(&self.0[..96]));
    }

    pub(super) fn read(file: &mut SectionReader<'_, '_>) -> Result<Self, Error> {
        let header = Self(file.array(0, "the header")?);
        header.check(file.file_bytes())?;
        Ok(header)
    }

    /// Checks everything that does not depend on other bytes of the file.
    ///
    /// # Errors
    /// [`Error::Qsf`] with the first thing that is wrong.
    pub fn check(&self, file_bytes: u64) -> Result<(), Error> {
        expect(4, "the version", 1, self.version())?;
        expect(8, "the length of the header", 128, self.header_bytes())?;
        if self.0[..4] != Qsf::MAGIC || self.checksum() != crc32(&self.0[..96]) {
            return wrong(96, "the checksum of the header does not fit it");
        }
        let low = self.file_bytes_low();
        expect(92, "the length of the file", low, file_bytes as u32)?;
        match self.0[116..] == [0; 12] {
            true => Ok(()),
            false => wrong(116, "the reserved bytes of the header are not zeros"),
        }
    }

    /// Key-value heads.
    pub fn n_kv_heads_or_heads(&self) -> u32 {
        match self.n_kv_heads() {
            0 => self.n_heads(),
            n => n,
        }
    }

    /// The entries of the index of layers.
    pub(super) fn entries(
        &self,
        file: &mut SectionReader<'_, '_>,
    ) -> Result<Vec<LayerEntry>, Error> {
        let n_bytes = u64::from(self.n_layers()) * LayerEntry::BYTES as u64;
        let index = file.bytes(self.index_at(), n_bytes, "the index of layers")?;
        let entries = (*index).as_ref().as_chunks().0;
        Ok(entries.iter().map(|&entry| LayerEntry(entry)).collect())
    }
}
