//! The sections of a plain file: layers, the embedding, and the final norm with the head.

use super::{
    expect,
    header::{Header, fields},
    reader::{ReadBytes, SectionReader},
    wrong,
};
use crate::{
    Error, Shape, TensorType,
    container::{TensorInfo, tensor::check_tensors},
    gguf::{type_id, type_of_id},
};

fields! {
    /// A layer in the index.
    LayerEntry, 32: {
        /// Where its section is.
        offset set_offset: u64 = 0;
        /// Bytes of the section in the file.
        stored_bytes set_stored_bytes: u32 = 8;
        /// Bytes of the section once decompressed.
        raw_bytes set_raw_bytes: u32 = 12;
        /// The code of the type of its tensors, or 5 for several.
        quant set_quant: u8 = 16;
        /// How the section is compressed, see [`Compression`].
        compression set_compression: u8 = 17;
        /// Tensors in the section.
        n_tensors set_n_tensors: u16 = 18;
        /// CRC-32 of the section as it is stored.
        checksum set_checksum: u32 = 20;
        /// What leaving the layer out costs, in the writer's measure; 0 if it was not measured.
        importance set_importance: f32 = 24;
    }
}

fields! {
    /// The bytes before a tensor of a layer.
    TensorHeader, 16: {
        /// The tensor's role, see [`role_name`].
        role set_role: u32 = 0;
        /// Outputs.
        n_rows set_n_rows: u32 = 4;
        /// Inputs.
        n_cols set_n_cols: u32 = 8;
        /// The code of its type, or [`LAYER_DEFAULT`].
        quant set_quant: u8 = 12;
    }
}

fields! {
    /// The bytes before the embedding.
    EmbeddingHeader, 16: {
        /// The code of its type.
        quant set_quant: u32 = 0;
        /// Bytes of its data.
        stored_bytes set_stored_bytes: u32 = 4;
        /// Tokens.
        n_rows set_n_rows: u32 = 8;
        /// Width of the model.
        d set_d: u32 = 12;
    }
}

/// The type code of a tensor that has its layer's type; of vectors that is F16.
pub const LAYER_DEFAULT: u8 = 0xff;
/// The role of a tensor that has a name only in the extension.
pub const UNNAMED_ROLE: u32 = u32::MAX;
/// Roles of vectors: norms and biases.
pub const VECTOR_ROLES: std::ops::RangeInclusive<u32> = 7..=12;
/// The role that a plain file cannot say two things by: biases of gate, up or down.
const FFN_BIASES: u32 = 13;
/// Behind the final norm: the head is the embedding.
const TIED: u8 = 0xff;

/// How a section is compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compression {
    /// Not at all.
    None,
    /// A block of LZ4, by either of its compressors.
    Lz4,
    /// A frame of Zstandard.
    Zstd,
}

impl Compression {
    /// The compression with this code.
    pub fn of(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::None),
            1 | 2 => Some(Self::Lz4),
            3 => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// The type that a code of QSF stands for: its own types below 5, T2 to T4 from 16 on, and those of
/// ggml from 32 on.
pub fn type_of_code(code: u8) -> Option<TensorType> {
    use TensorType::{QSF2, QSF2S, QSF3, QSF4, QSFT, T2, T3, T4};
    match code {
        0..=4 => Some([QSF2S, QSF2, QSF3, QSF4, QSFT][usize::from(code)]),
        16..=18 => Some([T2, T3, T4][usize::from(code - 16)]),
        32..=254 => type_of_id(u32::from(code) - 32),
        _ => None,
    }
}

/// The code of a type.
pub fn code_of_type(ty: TensorType) -> Option<u8> {
    let id = type_id(ty);
    let own = (0..=18).find(|&code| type_of_code(code) == Some(ty));
    let ggml = u8::try_from(id).ok().and_then(|id| id.checked_add(32));
    own.or(ggml).filter(|&code| type_of_code(code) == Some(ty))
}

/// GGUF's name of a role of a layer's tensor, without `blk.N.`.
pub fn role_name(role: u32) -> Option<&'static str> {
    const NAMES: [&str; 13] = [
        "attn_q.weight",
        "attn_k.weight",
        "attn_v.weight",
        "attn_output.weight",
        "ffn_gate.weight",
        "ffn_up.weight",
        "ffn_down.weight",
        "attn_norm.weight",
        "ffn_norm.weight",
        "attn_q.bias",
        "attn_k.bias",
        "attn_v.bias",
        "attn_output.bias",
    ];
    NAMES.get(role as usize).copied()
}

/// A tensor of a layer's section.
#[derive(Clone, Debug)]
pub struct SectionTensor {
    /// The bytes before it.
    pub header: TensorHeader,
    /// Index in [`Sections::tensors`].
    pub tensor: usize,
}

/// A region of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Section {
    /// First byte.
    pub at: u64,
    /// Length, bytes.
    pub n_bytes: u64,
}

impl Section {
    /// The byte behind it.
    pub fn end(self) -> u64 {
        self.at.saturating_add(self.n_bytes)
    }
}

/// All sections of a plain file.
#[derive(Clone, Debug)]
pub struct Sections {
    /// The header of the file.
    pub header: Header,
    /// The tensors under GGUF's names, in the order of the sections: embedding, layers, final norm,
    /// head.
    pub tensors: Vec<TensorInfo>,
    /// The tensors of each layer.
    pub layers: Vec<Vec<SectionTensor>>,
    /// The bytes before the embedding.
    pub embedding: EmbeddingHeader,
    /// Whether the head is the embedding.
    pub is_tied: bool,
}

impl Sections {
    /// Reads the headers of all sections of a file that `read` returns. `stored` is its index of
    /// layers; by `expanded` tensors are found. They differ where the caller has decompressed
    /// layers, which `read` then returns behind the end of the file; `file_bytes` counts them.
    ///
    /// # Errors
    /// As [`Container::contents`](crate::Container::contents).
    pub fn read(
        file_bytes: u64,
        read: &mut ReadBytes<'_>,
        header: Header,
        [stored, expanded]: [&[LayerEntry]; 2],
    ) -> Result<Self, Error> {
        Self::new(
            &mut SectionReader::new(file_bytes, read),
            header,
            stored,
            expanded,
        )
    }

    pub(super) fn new(
        file: &mut SectionReader<'_, '_>,
        header: Header,
        stored: &[LayerEntry],
        expanded: &[LayerEntry],
    ) -> Result<Self, Error> {
        let end = stored_end(file, expanded, stored);
        let embedding = EmbeddingHeader(file.array(header.embedding_at(), "the embedding")?);
        let mut regions = regions(&header, &embedding, stored);
        let last = section_at(header.final_at(), &regions, end);
        regions.push(last);
        check_regions(regions, end)?;
        let mut sections = Self {
            header,
            tensors: Vec::new(),
            layers: Vec::new(),
            embedding,
            is_tied: false,
        };
        sections.push_embedding()?;
        for (layer, entry) in expanded.iter().enumerate() {
            sections.push_layer(file, layer, entry)?;
        }
        sections.push_final(file, last)?;
        check_tensors(&sections.tensors, file.file_bytes())?;
        Ok(sections)
    }

    /// Adds a tensor, and returns its length in bytes.
    fn push(&mut self, name: String, dims: &[u64], ty: TensorType, at: u64) -> Result<u64, Error> {
        let tensor = placed(name, dims, ty, at)?;
        let n_bytes = tensor.n_bytes;
        self.tensors.push(tensor);
        Ok(n_bytes)
    }

    fn push_embedding(&mut self) -> Result<(), Error> {
        let embedding = self.embedding;
        let at = self.header.embedding_at();
        let code = u8::try_from(embedding.quant()).ok();
        let Some(ty) = code.and_then(type_of_code) else {
            return wrong(at, format!("the embedding has type {}", embedding.quant()));
        };
        let sizes = [embedding.n_rows(), embedding.d()];
        let expected = [self.header.n_vocab(), self.header.d_model()];
        expect(at + 8, "the embedding", expected, sizes)?;
        let start = EmbeddingHeader::BYTES as u64;
        let name = "token_embd.weight".to_owned();
        let n_bytes = self.push(name, &sizes.map(u64::from), ty, at + start)?;
        let got = embedding.stored_bytes().into();
        expect(at + 4, "bytes of the embedding", n_bytes, got)
    }

    fn push_layer(
        &mut self,
        file: &mut SectionReader<'_, '_>,
        layer: usize,
        entry: &LayerEntry,
    ) -> Result<(), Error> {
        let mut at = entry.offset();
        let quant = entry.quant();
        if quant != Header::MIXED && type_of_code(quant).is_none() {
            return wrong(at, format!("layer {layer}: unknown type {quant}"));
        }
        let [stored, raw] = [entry.stored_bytes(), entry.raw_bytes()];
        expect(at, &format!("bytes of layer {layer}"), raw, stored)?;
        let end = at.saturating_add(raw.into());
        let mut tensors = Vec::new();
        for _ in 0..entry.n_tensors() {
            if end.saturating_sub(at) < TensorHeader::BYTES as u64 {
                return wrong(at, format!("layer {layer} ends before its tensors do"));
            }
            let header = TensorHeader(file.array(at, "a tensor's header")?);
            let tensor = self.tensors.len();
            tensors.push(SectionTensor { header, tensor });
            at += TensorHeader::BYTES as u64;
            let n_bytes = self.push_tensor(layer, entry, header, at)?;
            at = at.saturating_add(n_bytes);
        }
        self.layers.push(tensors);
        expect(at, &format!("the end of layer {layer}"), end, at)
    }

    /// Adds the tensor behind `header`, whose data is at byte `at`.
    fn push_tensor(
        &mut self,
        layer: usize,
        entry: &LayerEntry,
        header: TensorHeader,
        at: u64,
    ) -> Result<u64, Error> {
        let start = at - TensorHeader::BYTES as u64;
        let Some(role) = role_name(header.role()) else {
            return wrong(start, format!("layer {layer}: {}", unknown(header.role())));
        };
        let name = format!("blk.{layer}.{role}");
        let Some(ty) = tensor_type(entry, header) else {
            return wrong(
                start + 12,
                format!("{name}: unknown type {}", header.quant()),
            );
        };
        let dims = [header.n_rows(), header.n_cols()].map(u64::from);
        match (VECTOR_ROLES.contains(&header.role()), dims) {
            (true, [1, d] | [d, 1]) => self.push(name, &[d], ty, at),
            (true, _) => wrong(
                start + 4,
                format!("{name}: expected a vector, got {dims:?}"),
            ),
            (false, _) => self.push(name, &dims, ty, at),
        }
    }

    fn push_final(
        &mut self,
        file: &mut SectionReader<'_, '_>,
        section: Section,
    ) -> Result<(), Error> {
        let norm = "output_norm.weight".to_owned();
        let d = u64::from(self.header.d_model());
        let norm = self.push(norm, &[d], TensorType::F16, section.at)?;
        let at = section.at.saturating_add(norm);
        let behind = section.n_bytes.checked_sub(norm);
        if behind == Some(1) && file.array(at, "the head")? == [TIED] {
            self.is_tied = true;
            return Ok(());
        }
        let head = self.push_head(at)?;
        match behind == Some(head) {
            true => Ok(()),
            false => wrong(at, format!("expected {TIED:#x} or a head of {head} bytes")),
        }
    }

    fn push_head(&mut self, at: u64) -> Result<u64, Error> {
        let code = match self.header.quant() {
            Header::MIXED => self.embedding.quant() as u8,
            code => code,
        };
        let Some(ty) = type_of_code(code) else {
            return wrong(48, format!("unknown type {code}"));
        };
        let dims = [self.header.n_vocab(), self.header.d_model()].map(u64::from);
        self.push("output.weight".to_owned(), &dims, ty, at)
    }
}

/// A tensor at byte `at`.
pub(super) fn placed(
    name: String,
    dims: &[u64],
    ty: TensorType,
    at: u64,
) -> Result<TensorInfo, Error> {
    let Some(shape) = Shape::new(dims) else {
        let dims = dims.to_vec();
        return Err(Error::ShapeOverflow { tensor: name, dims });
    };
    Ok(TensorInfo {
        offset: at,
        ..TensorInfo::new(name, shape, ty)?
    })
}

/// Why a role has no name.
fn unknown(role: u32) -> String {
    match role {
        FFN_BIASES => "biases of feed-forward blocks are not told apart".to_owned(),
        role => format!("unknown tensor {role}"),
    }
}

/// The section at byte `at`, up to the next one or the end of the file.
fn section_at(at: u64, others: &[Section], end: u64) -> Section {
    let next = others
        .iter()
        .map(|other| other.at)
        .filter(|&next| next > at);
    let end = next.min().unwrap_or(end);
    Section {
        at,
        n_bytes: end.saturating_sub(at),
    }
}

/// The type of a tensor of a layer.
fn tensor_type(entry: &LayerEntry, header: TensorHeader) -> Option<TensorType> {
    match header.quant() {
        LAYER_DEFAULT if VECTOR_ROLES.contains(&header.role()) => Some(TensorType::F16),
        LAYER_DEFAULT => type_of_code(entry.quant()),
        code => type_of_code(code),
    }
}

/// Where the file ends, without what the caller has put behind it.
fn stored_end(file: &SectionReader<'_, '_>, expanded: &[LayerEntry], stored: &[LayerEntry]) -> u64 {
    let pairs = expanded.iter().zip(stored);
    let moved = pairs.filter(|(expanded, stored)| expanded.offset() != stored.offset());
    let first = moved.map(|(expanded, _)| expanded.offset()).min();
    first.unwrap_or(file.file_bytes())
}

/// Header, index, embedding and the sections of layers, as they are in the file.
fn regions(header: &Header, embedding: &EmbeddingHeader, stored: &[LayerEntry]) -> Vec<Section> {
    let index = Section {
        at: header.index_at(),
        n_bytes: (stored.len() * LayerEntry::BYTES) as u64,
    };
    let first = Section {
        at: 0,
        n_bytes: Header::BYTES as u64,
    };
    let layers = stored.iter().map(|entry| Section {
        at: entry.offset(),
        n_bytes: entry.stored_bytes().into(),
    });
    let embedding = Section {
        at: header.embedding_at(),
        n_bytes: EmbeddingHeader::BYTES as u64 + u64::from(embedding.stored_bytes()),
    };
    [first, index, embedding]
        .into_iter()
        .chain(layers)
        .collect()
}

/// Checks that regions lie in the file and that no two of them share a byte.
fn check_regions(mut regions: Vec<Section>, end: u64) -> Result<(), Error> {
    regions.retain(|region| region.n_bytes > 0);
    regions.sort_by_key(|region| region.at);
    for pair in regions.windows(2) {
        if pair[0].end() > pair[1].at {
            return wrong(pair[1].at, "two sections overlap");
        }
    }
    match regions.last().filter(|last| last.end() > end) {
        Some(last) => wrong(
            last.at,
            format!("a section ends at {}, the file at {end}", last.end()),
        ),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_lead_back_to_their_types() {
        for &ty in TensorType::ALL {
            let code = code_of_type(ty).unwrap();
            assert_eq!(type_of_code(code), Some(ty), "{ty}");
        }
        for code in [5, 15, 19, 31, 36, LAYER_DEFAULT] {
            assert_eq!(type_of_code(code), None, "{code}");
        }
    }

    #[test]
    fn sizes_are_those_of_the_plan() {
        let sizes = [Header::BYTES, LayerEntry::BYTES, TensorHeader::BYTES];
        assert_eq!(sizes, [128, 32, 16]);
        assert_eq!(EmbeddingHeader::BYTES, 16);
    }
}
