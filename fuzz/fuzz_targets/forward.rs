//! A tiny model of any architecture whose metadata and tensors are changed: it is refused, or three
//! tokens are evaluated. The bytes of an input choose the model and the changes.
#![no_main]

use std::{cell::OnceCell, fs, num::NonZeroUsize, path::Path, sync::Arc};

use atta_formats::{Gguf, TensorInfo, TensorType, Value, Writer};
use atta_kernels::{Kernels, Pool};
use atta_model::{
    Batch, Cpu, Error, Executor, ExecutorSize, Model, Output, Want,
    spec::{ModelSpec, Outputs},
};
use atta_store::{Budget, ModelFiles, ModelSource};
use libfuzzer_sys::{
    arbitrary::{Result, Unstructured},
    fuzz_target,
};

/// Memory for weights and for the executor, each.
const BUDGET_BYTES: u64 = 32 << 20;

/// Longer files are cut.
const MAX_FILE_BYTES: u64 = 4 << 20;

const MAX_CHANGES: usize = 6;

/// Numbers at the bounds of the accepted ranges.
const NUMBERS: [u32; 16] = [
    0,
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    16,
    63,
    64,
    4096,
    1 << 24,
    (1 << 24) + 1,
    i32::MAX as u32,
    u32::MAX,
];

const FLOATS: [f32; 10] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    1e-45,
    1e30,
    f32::MAX,
    f32::NAN,
    f32::INFINITY,
    f32::NEG_INFINITY,
];

/// All tiny models, and what the changes choose from.
struct Goldens {
    files: Vec<(Gguf, Vec<u8>)>,
    architectures: Vec<String>,
    /// Keys of all architectures, without their prefix.
    keys: Vec<String>,
    /// Names of tensors of all architectures, without the layer.
    tensors: Vec<String>,
}

impl Goldens {
    fn read() -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/models");
        let mut paths: Vec<_> = fs::read_dir(folder)
            .expect("the folder of tiny models")
            .map(|entry| entry.expect("an entry of that folder").path())
            .filter(|path| path.extension().is_some_and(|e| e == "gguf"))
            .collect();
        paths.sort();
        let files = paths
            .iter()
            .map(|path| parsed(fs::read(path).expect("it was listed")));
        let mut goldens = Self {
            files: files.collect(),
            architectures: Vec::new(),
            keys: Vec::new(),
            tensors: Vec::new(),
        };
        for (file, _) in &goldens.files {
            let arch = architecture(file);
            goldens.keys.extend(keys_of(file, &arch).map(str::to_owned));
            let names = file.tensors.iter().map(|t| suffix(&t.name).to_owned());
            goldens.tensors.extend(names);
            goldens.architectures.push(arch);
        }
        sort(&mut goldens.architectures);
        sort(&mut goldens.keys);
        sort(&mut goldens.tensors);
        goldens
    }
}

fn sort(list: &mut Vec<String>) {
    list.sort();
    list.dedup();
}

fn parsed(bytes: Vec<u8>) -> (Gguf, Vec<u8>) {
    let n = bytes.len() as u64;
    let file = Gguf::parse(Arc::new(bytes.clone()), n).expect("a golden file");
    (file, bytes)
}

fn architecture(file: &Gguf) -> String {
    let name = file.metadata.str("general.architecture");
    name.ok()
        .flatten()
        .expect("a golden file has it")
        .to_owned()
}

/// The keys of an architecture, without its name.
fn keys_of<'a>(file: &'a Gguf, arch: &'a str) -> impl Iterator<Item = &'a str> {
    let keys = file.metadata.iter();
    keys.filter_map(move |(key, _)| key.strip_prefix(arch)?.strip_prefix('.'))
}

/// The metadata of a file as that of another architecture.
fn renamed(file: &Gguf, arch: &str) -> Writer {
    let own = architecture(file);
    let mut writer = Writer::new();
    for (key, value) in file.metadata.iter() {
        let rest = key
            .strip_prefix(&own)
            .and_then(|rest| rest.strip_prefix('.'));
        match rest {
            Some(rest) => writer.set_value(&format!("{arch}.{rest}"), value),
            None => writer.set_value(key, value),
        }
    }
    writer.set_str("general.architecture", arch);
    writer
}

/// The name of a tensor without its layer.
fn suffix(name: &str) -> &str {
    let of_layer = name.strip_prefix("blk.");
    of_layer
        .and_then(|rest| Some(rest.split_once('.')?.1))
        .unwrap_or(name)
}

/// What an altered file says of a tensor, and the golden one whose bytes it has.
struct Told {
    name: String,
    dims: Vec<u64>,
    ty: TensorType,
    of: TensorInfo,
}

impl Told {
    /// Gives it the name of another tensor of its layer.
    fn rename(&mut self, other: &str) {
        self.name = self.name.replace(suffix(&self.name), other);
    }
}

/// A file that is being changed.
struct Altered<'a> {
    goldens: &'a Goldens,
    file: &'a Gguf,
    bytes: &'a [u8],
    arch: String,
    writer: Writer,
    tensors: Vec<Told>,
}

impl<'a> Altered<'a> {
    /// One of the files as another architecture, or as it is.
    fn choose(goldens: &'a Goldens, u: &mut Unstructured<'_>) -> Result<Self> {
        let (file, bytes) = u.choose(&goldens.files)?;
        let arch = match u.ratio(1, 4)? {
            true => u.choose(&goldens.architectures)?.clone(),
            false => architecture(file),
        };
        let writer = renamed(file, &arch);
        let told = |t: &TensorInfo| Told {
            name: t.name.clone(),
            dims: t.shape.dims().to_vec(),
            ty: t.ty,
            of: t.clone(),
        };
        Ok(Self {
            tensors: file.tensors.iter().map(told).collect(),
            goldens,
            file,
            bytes,
            arch,
            writer,
        })
    }

    fn change(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        match u.int_in_range(0..=9)? {
            0 => {
                let key = self.key(u)?;
                self.writer.remove(&key);
                Ok(())
            }
            1..=3 => self.set_number(u),
            4..=6 => self.set_list(u),
            _ => self.change_tensor(u),
        }
    }

    /// A key of the file, or one that some architecture reads.
    fn key(&self, u: &mut Unstructured<'_>) -> Result<String> {
        if u.ratio(1, 2)? {
            let own = architecture(self.file);
            let keys: Vec<&str> = keys_of(self.file, &own).collect();
            return Ok(format!("{}.{}", self.arch, u.choose(&keys)?));
        }
        Ok(format!("{}.{}", self.arch, u.choose(&self.goldens.keys)?))
    }

    fn set_number(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let key = self.key(u)?;
        match u.int_in_range(0..=6)? {
            0..=2 => self.writer.set_u32(&key, number(u)?),
            3 => self.writer.set_f32(&key, float(u)?),
            4 => self.writer.set_i64(&key, u.arbitrary()?),
            5 => self.writer.set_bool(&key, u.arbitrary()?),
            _ => {
                let text = u.choose(&["", "none", "linear", "yarn", "longrope", "dynamic"])?;
                self.writer.set_str(&key, text);
            }
        }
        Ok(())
    }

    fn set_list(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let key = self.key(u)?;
        let n = (self.len_of(&key) + u.int_in_range(0..=3)?).saturating_sub(1);
        match u.int_in_range(0..=3)? {
            0 => self.writer.set_u32s(&key, &list(n, || number(u))?),
            1 => self.writer.set_f32s(&key, &list(n, || float(u))?),
            2 => self.writer.set_bools(&key, &list(n, || u.arbitrary())?),
            _ => self.writer.set_strs(&key, &vec!["a"; n]),
        }
        Ok(())
    }

    fn len_of(&self, key: &str) -> usize {
        match self.file.metadata.get(key) {
            Some(Value::Array(list)) => list.len(),
            _ => 2,
        }
    }

    fn change_tensor(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        if self.tensors.is_empty() {
            return Ok(());
        }
        let i = u.choose_index(self.tensors.len())?;
        let tensor = &mut self.tensors[i];
        match u.int_in_range(0..=5)? {
            0 => drop(self.tensors.remove(i)),
            1 => {
                tensor.rename(u.choose(&self.goldens.tensors)?);
            }
            2 => tensor.ty = *u.choose(TensorType::ALL)?,
            3 => tensor.dims.reverse(),
            4 => tensor.dims.push(u.int_in_range(0..=3)?),
            _ => change_dim(u.choose_iter(tensor.dims.iter_mut())?, u)?,
        }
        Ok(())
    }

    /// The bytes of the file, if it can be written at all.
    fn finish(mut self) -> Option<Vec<u8>> {
        for t in &self.tensors {
            self.writer.add_tensor(&t.name, &t.dims, t.ty).ok()?;
        }
        let layout = self.writer.finish().ok()?;
        let mut bytes = layout.header;
        bytes.resize(layout.file_bytes.min(MAX_FILE_BYTES) as usize, 0);
        for (new, Told { of, .. }) in layout.tensors.iter().zip(&self.tensors) {
            let n = new.n_bytes.min(of.n_bytes) as usize;
            let from = &self.bytes[of.offset as usize..][..n];
            let start = usize::try_from(new.offset).ok()?;
            if let Some(to) = bytes.get_mut(start..start + n) {
                to.copy_from_slice(from);
            }
        }
        Some(bytes)
    }
}

fn change_dim(dim: &mut u64, u: &mut Unstructured<'_>) -> Result<()> {
    *dim = match u.arbitrary()? {
        true => u64::from(number(u)?),
        false => (*dim + u.int_in_range(0..=2)?).saturating_sub(1),
    };
    Ok(())
}

fn number(u: &mut Unstructured<'_>) -> Result<u32> {
    match u.ratio(1, 4)? {
        true => u.arbitrary(),
        false => u.choose(&NUMBERS).copied(),
    }
}

fn float(u: &mut Unstructured<'_>) -> Result<f32> {
    match u.ratio(1, 4)? {
        true => u.arbitrary(),
        false => u.choose(&FLOATS).copied(),
    }
}

fn list<T>(n: usize, one: impl FnMut() -> Result<T>) -> Result<Vec<T>> {
    std::iter::repeat_with(one).take(n).collect()
}

fn altered(goldens: &Goldens, u: &mut Unstructured<'_>) -> Result<Option<Vec<u8>>> {
    let mut file = Altered::choose(goldens, u)?;
    for _ in 0..u.int_in_range(1..=MAX_CHANGES)? {
        file.change(u)?;
    }
    Ok(file.finish())
}

fn load(bytes: Vec<u8>) -> std::result::Result<Model, Error> {
    let budget = Budget::limited(BUDGET_BYTES);
    let source = ModelSource {
        name: "altered".to_owned(),
        bytes: Arc::new(bytes),
    };
    Model::load(ModelFiles::from_sources(vec![source], &budget)?, &budget)
}

/// Evaluates three tokens at once, and a fourth alone.
fn evaluate(model: Arc<Model>, pool: Arc<Pool>) -> std::result::Result<(), Error> {
    let size = ExecutorSize {
        n_ctx: 32,
        n_batch: 4,
        ..ExecutorSize::default()
    };
    let want = want(model.spec());
    let n_vocab = model.spec().n_vocab as u32;
    let budget = Budget::limited(BUDGET_BYTES);
    let mut cpu = Cpu::new(model, Kernels::detect(), pool, &budget, size)?;
    let seq = cpu.new_seq()?;
    let mut out = Output::default();
    let mut batch = Batch::default();
    for positions in [0..3, 3..4] {
        batch.clear();
        positions.for_each(|pos| batch.push_token(seq, pos, 7 * pos as u32 % n_vocab, want));
        cpu.step(&batch, &mut out)?;
    }
    Ok(())
}

fn want(spec: &ModelSpec) -> Want {
    match spec.head.outputs {
        Outputs::Logits => Want::Logits,
        _ => Want::Hidden,
    }
}

thread_local! {
    static STATE: OnceCell<(Goldens, Arc<Pool>)> = const { OnceCell::new() };
}

fuzz_target!(|input: &[u8]| {
    STATE.with(|state| {
        let (goldens, pool) =
            state.get_or_init(|| (Goldens::read(), Arc::new(Pool::new(NonZeroUsize::MIN))));
        let Ok(Some(bytes)) = altered(goldens, &mut Unstructured::new(input)) else {
            return;
        };
        if let Ok(model) = load(bytes) {
            let _ = evaluate(Arc::new(model), Arc::clone(pool));
        }
    });
});
