//! Selects the files of a repository that a request asks for, by their names alone.

use std::{collections::BTreeMap, fmt};

/// The quantization selected if the request names none: the first of these that the repository has.
/// Four bits lose little quality and fit into most machines' memory.
const PREFERRED: [&str; 12] = [
    "Q4_K_M", "Q4_K_S", "Q4_0", "IQ4_XS", "Q5_K_M", "Q5_K_S", "Q6_K", "Q8_0", "Q3_K_M", "MXFP4",
    "BF16", "F16",
];
/// Files that a conversion reads besides the weights.
const BESIDE_WEIGHTS: [&str; 14] = [
    "config.json",
    "params.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer.model",
    "tekken.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
];
/// File names of weights in order of preference, since many repositories hold the same weights in
/// several formats.
const WEIGHTS: [WeightNames; 4] = [
    WeightNames::new("model", ".safetensors"),
    WeightNames::new("", ".safetensors"),
    WeightNames::new("pytorch_model", ".bin"),
    WeightNames::new("consolidated", ".pth"),
];
/// Directory of additional chat templates.
const TEMPLATES: &str = "additional_chat_templates/";
/// How many names an error lists.
const MAX_LISTED: usize = 20;

/// The names of weight files in one format.
struct WeightNames {
    prefix: &'static str,
    extension: &'static str,
}

impl WeightNames {
    const fn new(prefix: &'static str, extension: &'static str) -> Self {
        Self { prefix, extension }
    }
}

/// The files that a request selects.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Selection<'a> {
    /// One file, or all shards of one model in order.
    Files(Vec<&'a str>),
    /// A Hugging Face or Mistral checkpoint, to be converted.
    Checkpoint(Vec<&'a str>),
}

/// Why a request selects no files.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SelectionError {
    /// No file matches; `there` lists the GGUF files.
    Nothing {
        wanted: Option<String>,
        there: Vec<String>,
    },
    /// Several files match.
    Several(Vec<String>),
    /// Shards of the model are missing.
    Incomplete {
        name: String,
        n_there: usize,
        n_shards: usize,
    },
}

/// Selects among the paths of a repository.
pub(crate) fn select<'a>(
    paths: &[&'a str],
    wanted: Option<&str>,
) -> Result<Selection<'a>, SelectionError> {
    let models = models(paths);
    match wanted {
        Some(wanted) => named(paths, &models, wanted),
        None if models.is_empty() => checkpoint(paths),
        None => preferred(&models),
    }
}

/// A GGUF model: one file, or several shards.
struct GgufModel<'a> {
    /// Path without shard number and extension.
    stem: &'a str,
    /// Shard number (from 1) and path.
    shards: Vec<(usize, &'a str)>,
    n_shards: usize,
}

impl<'a> GgufModel<'a> {
    fn files(&self) -> Result<Selection<'a>, SelectionError> {
        complete(self.stem, &self.shards, self.n_shards).map(Selection::Files)
    }
}

/// All GGUF models of a repository, without multimodal projectors and importance matrices.
fn models<'a>(paths: &[&'a str]) -> Vec<GgufModel<'a>> {
    let mut models = BTreeMap::<(&str, usize), Vec<(usize, &str)>>::new();
    for path in paths {
        let Some(stem) = stem(path, ".gguf") else {
            continue;
        };
        let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
        if !name.contains("mmproj") && !name.contains("imatrix") {
            let (stem, shard, n_shards) = shard(stem).unwrap_or((stem, 1, 1));
            models
                .entry((stem, n_shards))
                .or_default()
                .push((shard, path));
        }
    }
    models
        .into_iter()
        .map(|((stem, n_shards), shards)| GgufModel {
            stem,
            shards,
            n_shards,
        })
        .collect()
}

/// A path without its extension, which matches in any case.
fn stem<'a>(path: &'a str, ending: &str) -> Option<&'a str> {
    let (stem, end) = path.split_at_checked(path.len().checked_sub(ending.len())?)?;
    end.eq_ignore_ascii_case(ending).then_some(stem)
}

/// Name, shard number and shard count of `name-00001-of-00003`.
fn shard(stem: &str) -> Option<(&str, usize, usize)> {
    let (rest, count) = stem.rsplit_once("-of-")?;
    let (name, number) = rest.rsplit_once('-')?;
    let parse = |text: &str| {
        text.parse()
            .ok()
            .filter(|_| text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit()))
    };
    let number = parse(number)?;
    let count = parse(count)?;
    (1..=count)
        .contains(&number)
        .then_some((name, number, count))
}

/// The paths of the shards in order, if none is missing.
fn complete<'a>(
    name: &str,
    shards: &[(usize, &'a str)],
    n_shards: usize,
) -> Result<Vec<&'a str>, SelectionError> {
    let mut shards = shards.to_vec();
    shards.sort_unstable();
    shards.dedup_by_key(|(number, _)| *number);
    if shards.len() != n_shards {
        return Err(SelectionError::Incomplete {
            name: name.to_owned(),
            n_there: shards.len(),
            n_shards,
        });
    }
    Ok(shards.into_iter().map(|(_, path)| path).collect())
}

/// The file of the path `wanted`, else the model whose name contains `wanted` as a word.
fn named<'a>(
    paths: &[&'a str],
    models: &[GgufModel<'a>],
    wanted: &str,
) -> Result<Selection<'a>, SelectionError> {
    if let Some(model) = models
        .iter()
        .find(|model| model.shards.iter().any(|(_, path)| *path == wanted))
    {
        return model.files();
    }
    if let Some(path) = paths.iter().find(|path| **path == wanted) {
        return Ok(Selection::Files(vec![*path]));
    }
    let nothing = || SelectionError::Nothing {
        wanted: Some(wanted.to_owned()),
        there: model_names(models),
    };
    one(models, wanted).unwrap_or_else(|| Err(nothing()))
}

fn preferred<'a>(models: &[GgufModel<'a>]) -> Result<Selection<'a>, SelectionError> {
    let found = PREFERRED.iter().find_map(|quant| one(models, quant));
    found.unwrap_or_else(|| match models {
        [model] => model.files(),
        _ => Err(SelectionError::Several(model_names(models))),
    })
}

/// The model of a quantization. A name that ends with it is preferred to one that contains it.
fn one<'a>(models: &[GgufModel<'a>], quant: &str) -> Option<Result<Selection<'a>, SelectionError>> {
    let having = |has: fn(&str, &str) -> bool| {
        models
            .iter()
            .filter(|m| has(m.stem, quant))
            .collect::<Vec<_>>()
    };
    let found = Some(having(ends_with_word))
        .filter(|found| !found.is_empty())
        .unwrap_or_else(|| having(has_word));
    match found.as_slice() {
        [] => None,
        [model] => Some(model.files()),
        _ => Some(Err(SelectionError::Several(
            found.iter().map(|model| first_file(model)).collect(),
        ))),
    }
}

fn ends_with_word(stem: &str, word: &str) -> bool {
    self::stem(stem, word)
        .is_some_and(|before| before.is_empty() || before.ends_with(['-', '.', '_', '/']))
}

/// Whether `word` is in `stem` between hyphens, dots or slashes: `Q4_K` is no word of `Q4_K_M`.
fn has_word(stem: &str, word: &str) -> bool {
    stem.split(['-', '.', '/'])
        .any(|part| part.eq_ignore_ascii_case(word))
}

fn model_names(models: &[GgufModel<'_>]) -> Vec<String> {
    models.iter().map(first_file).collect()
}

fn first_file(model: &GgufModel<'_>) -> String {
    model
        .shards
        .iter()
        .min()
        .map_or_else(String::new, |(_, path)| (*path).to_owned())
}

/// The files that a conversion reads: weights, configuration and tokenizer at the root of the
/// repository, and chat templates.
fn checkpoint<'a>(paths: &[&'a str]) -> Result<Selection<'a>, SelectionError> {
    let at_root: Vec<&str> = paths
        .iter()
        .copied()
        .filter(|path| !path.contains('/'))
        .collect();
    let has_config = at_root
        .iter()
        .any(|path| matches!(*path, "config.json" | "params.json"));
    let found = WEIGHTS
        .iter()
        .find_map(|names| weights(&at_root, names))
        .filter(|_| has_config);
    let nothing = || SelectionError::Nothing {
        wanted: None,
        there: Vec::new(),
    };
    let mut files = found.ok_or_else(nothing)??;
    let beside = |path: &&str| BESIDE_WEIGHTS.contains(path) || path.ends_with(".tiktoken");
    let is_template = |path: &&str| path.starts_with(TEMPLATES) && path.ends_with(".jinja");
    let templates = paths.iter().copied().filter(is_template);
    files.splice(
        0..0,
        at_root.iter().copied().filter(beside).chain(templates),
    );
    Ok(Selection::Checkpoint(files))
}

/// The weights with these names, with their index.
fn weights<'a>(
    at_root: &[&'a str],
    names: &WeightNames,
) -> Option<Result<Vec<&'a str>, SelectionError>> {
    let &WeightNames { prefix, extension } = names;
    let files = at_root
        .iter()
        .copied()
        .filter(|path| path.starts_with(prefix) && path.ends_with(extension));
    let numbered: Vec<_> = files
        .map(|path| (shard(path.strip_suffix(extension).unwrap_or(path)), path))
        .collect();
    let mut files: Vec<&str> = match numbered.iter().find_map(|(shard, _)| *shard) {
        Some((name, _, n_shards)) => {
            let ours = numbered
                .iter()
                .filter_map(|(shard, path)| Some(((*shard)?, *path)));
            let ours = ours.filter(|((stem, _, n), _)| (*stem, *n) == (name, n_shards));
            let shards: Vec<_> = ours.map(|((_, number, _), path)| (number, path)).collect();
            match complete(name, &shards, n_shards) {
                Ok(files) => files,
                Err(why) => return Some(Err(why)),
            }
        }
        None => numbered.into_iter().map(|(_, path)| path).collect(),
    };
    let is_index = |path: &&str| {
        path.starts_with(prefix) && path.ends_with(&format!("{extension}.index.json"))
    };
    let found = !files.is_empty();
    files.extend(at_root.iter().copied().filter(is_index));
    found.then_some(Ok(files))
}

impl fmt::Display for SelectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing {
                wanted: Some(wanted),
                there,
            } if there.is_empty() => {
                write!(f, "there is no file {wanted:?}, and no GGUF file")
            }
            Self::Nothing {
                wanted: Some(wanted),
                there,
            } => {
                write!(
                    f,
                    "there is no file {wanted:?}, and no GGUF file of that type; there are {}",
                    listed(there)
                )
            }
            Self::Nothing { wanted: None, .. } => f.write_str(
                "there is no GGUF file, nor config.json with weights that could be converted",
            ),
            Self::Several(there) => {
                write!(
                    f,
                    "several files match: {}; name one behind a colon",
                    listed(there)
                )
            }
            Self::Incomplete {
                name,
                n_there,
                n_shards,
            } => {
                write!(
                    f,
                    "of the {n_shards} files of {name:?} only {n_there} are there"
                )
            }
        }
    }
}

fn listed(names: &[String]) -> String {
    let more = names.len().saturating_sub(MAX_LISTED);
    let mut text = names
        .iter()
        .take(MAX_LISTED)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    if more > 0 {
        text += &format!(" and {more} more");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPO: [&str; 7] = [
        ".gitattributes",
        "README.md",
        "m-Q8_0.gguf",
        "m-Q4_K_M.gguf",
        "mmproj-m-F16.gguf",
        "m.imatrix.gguf",
        "big/m-F16-00002-of-00002.gguf",
    ];

    fn files(paths: &[&str], wanted: Option<&str>) -> String {
        match select(paths, wanted) {
            Ok(Selection::Files(files)) => files.join(" "),
            Ok(Selection::Checkpoint(files)) => format!("checkpoint {}", files.join(" ")),
            Err(why) => format!("error: {why}"),
        }
    }

    #[test]
    fn four_bits_are_selected_by_default() {
        assert_eq!(files(&REPO, None), "m-Q4_K_M.gguf");
        assert_eq!(
            files(&["m.q8_0.gguf", "m.iq4_xs.gguf"], None),
            "m.iq4_xs.gguf"
        );
        assert_eq!(files(&["model.gguf", "README.md"], None), "model.gguf");
        assert!(files(&["a.gguf", "b.gguf"], None).contains("a.gguf, b.gguf; name one"));
        assert!(files(&["a-Q4_0.gguf", "b-Q4_0.gguf"], None).contains("several"));
    }

    #[test]
    fn a_quantization_is_a_whole_word_in_any_case() {
        assert_eq!(files(&REPO, Some("q8_0")), "m-Q8_0.gguf");
        for wrong in ["Q4_K", "8_0", "Q4_K_", "IQ4_K_M"] {
            assert!(
                files(&REPO, Some(wrong)).starts_with("error: there is no file"),
                "{wrong}"
            );
        }
        assert_eq!(
            files(&["m-IQ4_XS.gguf", "m-Q4_XS.gguf"], Some("q4_xs")),
            "m-Q4_XS.gguf"
        );
        assert_eq!(
            files(&["m-Q4_0-imat.gguf"], Some("q4_0")),
            "m-Q4_0-imat.gguf"
        );
        assert_eq!(files(&["Q4_0/m.GGUF"], Some("q4_0")), "Q4_0/m.GGUF");
        assert_eq!(
            files(&["Q4_0"], Some("q4_0")),
            "error: there is no file \"q4_0\", and no GGUF file"
        );
    }

    #[test]
    fn a_file_by_its_name_may_be_any() {
        for name in ["README.md", "mmproj-m-F16.gguf", "m.imatrix.gguf"] {
            assert_eq!(files(&REPO, Some(name)), name);
        }
        assert!(files(&REPO, Some("Q4_K_M.gguf")).starts_with("error"));
    }

    #[test]
    fn shards_come_all_and_in_order_or_not_at_all() {
        let all = [
            "m-Q4_0-00002-of-00003.gguf",
            "m-Q4_0-00001-of-00003.gguf",
            "m-Q4_0-00003-of-00003.gguf",
        ];
        for wanted in [None, Some("q4_0"), Some(all[0])] {
            assert_eq!(
                files(&all, wanted),
                [all[1], all[0], all[2]].join(" "),
                "{wanted:?}"
            );
        }
        assert_eq!(
            files(&REPO, Some("f16")),
            "error: of the 2 files of \"big/m-F16\" only 1 are there"
        );
        assert_eq!(
            files(&["m-00009-of-00003.gguf"], None),
            "m-00009-of-00003.gguf"
        );
        assert!(files(&["m-00001-of-99999.gguf"], None).starts_with("error: of the 99999"));
    }

    #[test]
    fn without_a_gguf_file_all_that_a_conversion_reads_is_taken() {
        let paths = [
            "README.md",
            "config.json",
            "model-00002-of-00002.safetensors",
            "model-00001-of-00002.safetensors",
            "model.safetensors.index.json",
            "consolidated.safetensors",
            "pytorch_model.bin",
            "onnx/model.safetensors",
            "tokenizer.json",
            "tekken.json",
            "qwen.tiktoken",
            "additional_chat_templates/tool_use.jinja",
            "additional_chat_templates/README.md",
        ];
        assert_eq!(
            files(&paths, None),
            "checkpoint config.json tokenizer.json tekken.json qwen.tiktoken additional_chat_templates/tool_use.jinja \
             model-00001-of-00002.safetensors model-00002-of-00002.safetensors model.safetensors.index.json"
        );
        assert_eq!(
            files(&["config.json", "pytorch_model.bin"], None),
            "checkpoint config.json pytorch_model.bin"
        );
        assert_eq!(
            files(&["params.json", "consolidated.00.pth"], None),
            "checkpoint params.json consolidated.00.pth"
        );
        let nothing =
            "error: there is no GGUF file, nor config.json with weights that could be converted";
        for paths in [
            &["model.safetensors"][..],
            &["config.json"],
            &["mmproj.gguf"],
            &[],
        ] {
            assert_eq!(files(paths, None), nothing);
        }
        assert!(
            files(&["config.json", "model-00001-of-00002.safetensors"], None).contains("only 1")
        );
    }
}
