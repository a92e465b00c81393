//! Tiny models in T3 whose embedding and head have their mean rows apart, as `atta convert` writes
//! them: at disk blocks, in the order of execution, with checksums.

use std::{
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use atta_convert::{ConvertOptions, Mix, Plan, TypeSelection, convert, gguf, separate_means};

/// A file of its own, which goes with this value.
pub(crate) struct OwnTypes(PathBuf);

impl OwnTypes {
    /// A golden model in T3; `means` are the mean rows that it must have.
    pub(crate) fn new(name: &str, means: &[&str]) -> Self {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/golden/models")
            .join(format!("{name}.gguf"));
        let stem = module_path!().replace("::", "-");
        let path = std::env::temp_dir().join(format!("{stem}-{name}-{}.gguf", std::process::id()));
        let options = ConvertOptions {
            types: TypeSelection {
                mix: Mix::named("t3"),
                ..TypeSelection::default()
            },
            ..ConvertOptions::default()
        };
        let mut checkpoint = gguf::open(&golden).unwrap();
        let plan = Plan::new(&checkpoint, &options.types, None).unwrap();
        separate_means(&mut checkpoint, &plan).unwrap();
        for mean in means {
            assert!(
                checkpoint.tensors.iter().any(|t| t.name == *mean),
                "{name}: {mean}"
            );
        }
        let _ = fs::remove_file(&path);
        convert(&checkpoint, &path, &options, &mut |_| {
            ControlFlow::Continue(())
        })
        .unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for OwnTypes {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
