//! The errors of this crate.

use atta_formats::{Explain, Names, Setting};

use crate::SeqId;

/// An error of this crate.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Metadata or a tensor type that we cannot read.
    #[error(transparent)]
    Format(#[from] atta_formats::Error),
    /// Weights that cannot be read, or memory that the budget does not grant.
    #[error(transparent)]
    Store(#[from] atta_store::Error),
    /// A matrix that the kernels refuse.
    #[error(transparent)]
    Kernel(#[from] atta_kernels::Error),
    /// A key that every model of this architecture has.
    #[error("metadata key {0} is missing")]
    MissingKey(String),
    /// A value that no real model has.
    #[error("metadata key {key} is {value}, expected {expected}")]
    OutOfRange {
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// The values that are accepted.
        expected: &'static str,
    },
    /// A model that needs something that is not implemented.
    #[error("unsupported model: {key} is {value}")]
    Unsupported {
        /// The key that says so.
        key: String,
        /// Its value.
        value: String,
    },
    /// An architecture without a row in the registry.
    #[error("unsupported architecture {name:?}, known: {known}")]
    UnknownArchitecture {
        /// Its name in the file.
        name: String,
        /// The architectures of the registry.
        known: String,
    },
    /// A file without layers that predict further tokens.
    #[error("no layers of multi-token prediction are in the file")]
    NoDraftHead,
    /// A draft head of another model.
    #[error("a draft head of another model: {0}")]
    OtherTarget(String),
    /// A tensor that the spec requires is not in the file.
    #[error("tensor {name} {shape:?} is missing")]
    MissingTensor {
        /// Its name.
        name: String,
        /// Its shape, outermost first.
        shape: Vec<usize>,
    },
    /// A tensor has another shape than the spec says.
    #[error("tensor {name}: expected {expected:?}, got {got}")]
    Shape {
        /// Its name.
        name: String,
        /// Outermost first.
        expected: Vec<usize>,
        /// Outermost first.
        got: String,
    },
    /// The file has a tensor that the spec does not use: the model computes more than the spec
    /// describes.
    #[error("tensor {0} is in the file, but this architecture has no use for it")]
    UnusedTensor(String),
    /// A spec that describes no model, or one that the kernels cannot run.
    #[error("unsupported model: {0}")]
    Spec(String),
    /// A layer that cannot be left out.
    #[error("layer {layer} cannot be left out: {why}")]
    Needed {
        /// The layer.
        layer: usize,
        /// The reason.
        why: String,
    },
    /// An adapter that does not fit the model, or adapters that do not work together.
    #[error("{0}")]
    Adapter(String),
    /// Another number of experts than a position can go to.
    #[error("{}", n_experts(*n, *most, Setting::words))]
    Experts {
        /// The number.
        n: usize,
        /// The experts that the model sends a position to; 0 without any.
        most: usize,
    },
    /// A norm, a bias or a rope factor that is no usable number.
    #[error("tensor {name}: a value is {value}")]
    Value {
        /// Its name.
        name: String,
        /// The first such value.
        value: f32,
    },
    /// An executor that cannot be made.
    #[error("an executor of {0}")]
    Options(String),
    /// A ring of machines that cannot be made.
    #[error("no ring: {0}")]
    Ring(String),
    /// Other machines that a ring cannot take.
    #[error("{0}; the ring is as it was")]
    RingKept(String),
    /// A sequence of a session that has no memory for its state at the moment.
    #[error("the session is suspended: it must be resumed first")]
    Suspended,
    /// Too many batches in flight, or a change to a sequence with rows in flight.
    #[error("batches are in flight and must be collected first")]
    Busy,
    /// An attempt to collect another batch than the oldest in flight.
    #[error("batch {0} is not the oldest in flight")]
    Ticket(u64),
    /// A token that the model does not have.
    #[error("token id {id} is out of range, the model has {n_vocab} tokens")]
    Token {
        /// The id.
        id: u32,
        /// Number of tokens.
        n_vocab: usize,
    },
    /// More rows than the executor was made for.
    #[error("a batch of {n_rows} rows, at most {max} fit")]
    BatchTooLarge {
        /// Rows in the batch.
        n_rows: usize,
        /// Rows that fit.
        max: usize,
    },
    /// A row does not continue its sequence.
    #[error("sequence {seq}: expected position {expected}, got {got}")]
    Position {
        /// The sequence.
        seq: SeqId,
        /// Its length so far.
        expected: usize,
        /// The row's position.
        got: usize,
    },
    /// A sequence that was never made, or was dropped.
    #[error("there is no sequence {0}")]
    NoSequence(SeqId),
    /// The executor was made for fewer sequences.
    #[error("all {0} sequences are in use")]
    NoRoomForSequence(usize),
    /// All blocks of the key-value cache are taken, by all sequences together.
    #[error("there is no more room for keys and values")]
    OutOfBlocks,
    /// A sequence has no room for more positions.
    #[error("{}", context_full(*n_ctx, Setting::words))]
    ContextFull {
        /// Positions that fit.
        n_ctx: usize,
    },
    /// A row with an input that this range of layers does not take, or that wants a result that it
    /// does not compute.
    #[error("row {row}: {what}")]
    Row {
        /// Index in the batch.
        row: usize,
        /// The problem.
        what: &'static str,
    },
    /// A shift of the context of a model that has none.
    #[error("the context of this model cannot be shifted: {0}")]
    NoShift(&'static str),
    /// A move of keys to other positions, of a model or an executor that cannot.
    #[error("prompts of this model cannot be reused approximately: {0}")]
    NoMove(&'static str),
    /// Positions without a text, of an executor that cannot fill them in.
    #[error("positions that are not computed cannot be appended here")]
    NoFill,
    /// Logits of an encoder, which predicts no next token.
    #[error("this model is an encoder: it makes vectors of texts and cannot write any")]
    NoLogits,
    /// Scores of a model without a head that computes them.
    #[error("this model has no head that scores texts: it is no reranker")]
    NoScores,
    /// An exported state of another model or of other element types, or a sequence without the
    /// state that an operation needs.
    #[error("this state cannot be taken: {0}")]
    State(&'static str),
    /// The state of a sequence, or the answer to a batch, is lost with another machine.
    #[error("{0}")]
    Lost(String),
    /// A device such as a GPU that cannot do what it is asked for.
    #[error("{0}")]
    Device(String),
    /// A state that could not be written.
    #[error("writing a state: {0}")]
    Export(#[source] std::io::Error),
}

impl Explain for Error {
    fn explain(&self, names: Names) -> String {
        match self {
            Self::ContextFull { n_ctx } => context_full(*n_ctx, names),
            Self::Store(error) => error.explain(names),
            Self::Experts { n, most } => n_experts(*n, *most, names),
            _ => self.to_string(),
        }
    }
}

fn context_full(n_ctx: usize, names: Names) -> String {
    let setting = names(Setting::NCtx);
    format!("the context is full: {n_ctx} positions; raise {setting} or shorten the prompt")
}

fn n_experts(n: usize, most: usize, names: Names) -> String {
    let setting = names(Setting::Experts);
    match most {
        0 => format!("{setting} is {n}, but the model has no experts"),
        _ => format!("{setting} is {n}, expected 1 to {most}"),
    }
}
