//! The journal of `--resume`: the scores of finished chunks, from which an interrupted measurement
//! resumes.
//!
//! A line of JSON describes the measurement. A record of fixed length follows for each chunk: −ln p
//! of its scored tokens as f32, little-endian; with `--kld` also the baseline's −ln p and the
//! divergences as f32, and a byte per token for an equal top token. A record is synced to disk
//! before its chunk counts as done. An incomplete record at the end is dropped, and its chunk
//! scored again.

use std::{
    fs::{self, File},
    io::{Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use atta::perplexity::{BaseScores, Scores};
use serde_json::{Value, json};

use super::{Measurement, PerplexityArgs};
use crate::{
    args::{ModelFlags, model::KvName},
    failure::Failure,
    json, load,
};

pub(super) struct Journal {
    file: File,
    path: PathBuf,
    /// Scored tokens per record.
    n_scored: usize,
}

impl Journal {
    /// Opens or creates the journal, and takes its scores over into `to`.
    pub(super) fn open(
        path: &Path,
        args: &PerplexityArgs,
        to: &mut Measurement,
    ) -> Result<Self, Failure> {
        let blame = |error| Failure::at(path, error);
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(blame)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(blame)?;
        let mut journal = Self {
            file,
            path: path.to_owned(),
            n_scored: to.chunks.n_scored(),
        };
        let head = head(args, to)?;
        if bytes.is_empty() {
            journal.write((json::line(&head) + "\n").as_bytes())?;
            return Ok(journal);
        }
        let n_head = 1 + bytes
            .iter()
            .position(|&byte| byte == b'\n')
            .ok_or_else(|| journal.foreign())?;
        journal.check(&bytes[..n_head], &head)?;
        let n_records = journal
            .read_records(&bytes[n_head..], &mut to.scores)
            .min(to.chunks.len());
        let n_kept = (n_head + n_records * journal.record_bytes(&to.scores)) as u64;
        journal.file.set_len(n_kept).map_err(blame)?;
        journal.file.seek(SeekFrom::End(0)).map_err(blame)?;
        Ok(journal)
    }

    /// Adds the record of the last chunk of `scores`.
    pub(super) fn append(&mut self, scores: &Scores) -> Result<(), Failure> {
        let from = scores.nll.len() - self.n_scored;
        let mut record: Vec<u8> = scores.nll[from..]
            .iter()
            .flat_map(|x| x.to_le_bytes())
            .collect();
        if let Some(BaseScores { nll, kld, same_top }) = &scores.base {
            record.extend(
                nll[from..]
                    .iter()
                    .chain(&kld[from..])
                    .flat_map(|x| x.to_le_bytes()),
            );
            record.extend(same_top[from..].iter().map(|&same| u8::from(same)));
        }
        self.write(&record)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let written = self
            .file
            .write_all(bytes)
            .and_then(|()| self.file.sync_data());
        written.map_err(|error| Failure::at(&self.path, format_args!("cannot write: {error}")))
    }

    fn record_bytes(&self, scores: &Scores) -> usize {
        self.n_scored * if scores.base.is_some() { 13 } else { 4 }
    }

    /// Adds whole records to the scores, and returns their number.
    fn read_records(&self, bytes: &[u8], scores: &mut Scores) -> usize {
        let records = bytes.chunks_exact(self.record_bytes(scores));
        let n = records.len();
        for record in records {
            let (floats, flags) =
                record.split_at(4 * self.n_scored * if scores.base.is_some() { 3 } else { 1 });
            let mut parts = floats.chunks_exact(4 * self.n_scored).map(|part| {
                part.chunks_exact(4)
                    .map(|x| f32::from_le_bytes(x.try_into().expect("chunks of 4")))
            });
            scores.nll.extend(parts.next().into_iter().flatten());
            if let Some(BaseScores { nll, kld, same_top }) = &mut scores.base {
                nll.extend(parts.next().into_iter().flatten());
                kld.extend(parts.next().into_iter().flatten());
                same_top.extend(flags.iter().map(|&flag| flag != 0));
            }
        }
        n
    }

    fn check(&self, line: &[u8], head: &Value) -> Result<(), Failure> {
        let there: Value = serde_json::from_slice(line).map_err(|_| self.foreign())?;
        let keys = head
            .as_object()
            .into_iter()
            .flat_map(|object| object.keys());
        match keys
            .into_iter()
            .find(|key| there[key.as_str()] != head[key.as_str()])
        {
            None => Ok(()),
            Some(_) if there["atta_perplexity"] != 1 => Err(self.foreign()),
            Some(key) => Err(Failure::at(
                &self.path,
                format_args!(
                    "it belongs to another measurement: {key} is {} there and {} here; remove it \
                     to begin again",
                    there[key.as_str()],
                    head[key.as_str()]
                ),
            )),
        }
    }

    fn foreign(&self) -> Failure {
        Failure::at(&self.path, "it is no file of --resume")
    }
}

/// The description of a measurement: everything that its scores depend on. Threads and batches are
/// not part of it.
fn head(args: &PerplexityArgs, of: &Measurement) -> Result<Value, Failure> {
    let engine = of.session.engine();
    let files = engine.model().weights().files();
    let mut content = FNV_START;
    files
        .fingerprint(|bytes| content = fnv(content, bytes))
        .map_err(atta::Error::from)?;
    let text = of
        .chunks
        .ids()
        .iter()
        .fold(FNV_START, |hash, id| fnv(hash, &id.to_le_bytes()));
    let kld_modified = args
        .kld
        .as_deref()
        .and_then(|path| fs::metadata(path).ok()?.modified().ok())
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok())
        .map(|time| format!("{}.{:09}", time.as_secs(), time.subsec_nanos()));
    let mut head = json!({
        "atta_perplexity": 1,
        "model": load::path_name(args.model.as_deref()),
        "model_bytes": files.file_bytes(),
        "model_content": format!("{content:016x}"),
        "isa": engine.kernels().isa(),
        "n_ctx": of.chunks.n_ctx(),
        "n_chunks": of.chunks.len(),
        "text": format!("{text:016x}"),
        "kv": kv_name(&args.model_flags),
        "kld": args.kld.as_ref().map(|path| path.to_string_lossy()),
        "kld_modified": kld_modified,
        "save_logits": args.save_logits.as_ref().map(|path| path.to_string_lossy()),
    });
    // Journals of whole models stay as they were.
    if let Some(reduced) = engine.reduced() {
        head["without_layers"] = json!(reduced.layers);
        head["n_experts"] = json!(reduced.n_experts);
    }
    Ok(head)
}

/// The KV cache types as they were asked for, f16 by default.
fn kv_name(flags: &ModelFlags) -> String {
    let name = |half: Option<KvName>| match half.or(flags.kv) {
        Some(KvName::F32) => "f32",
        Some(KvName::F16) | None => "f16",
        Some(KvName::Q8) => "q8",
        Some(KvName::Q4) => "q4",
    };
    let edges = flags
        .kv_edges
        .map(|n| format!(" edges {n}"))
        .unwrap_or_default();
    format!("{} {}{edges}", name(flags.kv_k), name(flags.kv_v))
}

const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a, continued from `hash`: tells contents apart, but not against an attacker.
fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
