//! Models whose embedding and head have their mean rows apart.

use std::sync::Arc;

use atta_formats::{TensorType, decode};
use atta_model::Model;
use atta_store::{Budget, ModelFiles};

use super::{Golden, GoldenFile};

/// The tables that have their mean rows apart, and the tensors of these.
const MEANS: [(&str, &str); 2] = [
    ("token_embd.weight", "token_embd.mean"),
    ("output.weight", "output.mean"),
];

/// The name, the dimensions and the bytes of a tensor, and its type.
type Made = (String, Vec<u64>, Vec<u8>, TensorType);

impl Golden {
    /// The same model without mean rows apart, where a test made its spec.
    pub(crate) fn without_means(mut self) -> Self {
        let is_mean = |name: &str| MEANS.iter().any(|(_, mean)| *mean == name);
        let bytes = self.altered_bytes(
            |_| {},
            |tensor| {
                let told = (tensor.name.to_string(), tensor.shape.dims().to_vec());
                (!is_mean(&told.0)).then_some(told)
            },
        );
        if let GoldenFile::Made(_, made) = &mut self.file {
            *made = bytes.leak();
        }
        self
    }

    /// The same model with the mean rows of its tables apart; `None` where a table is not F32, or
    /// a test made the spec.
    pub(crate) fn with_separate_means(&self) -> Option<Arc<Model>> {
        if self.is_made() {
            return None;
        }
        let files = self.files();
        let old = self.bytes();
        let mut tensors: Vec<Made> = Vec::new();
        for t in files.directory().tensors() {
            let bytes = old[t.offset as usize..][..t.n_bytes as usize].to_vec();
            let dims = t.shape.dims().to_vec();
            let mean = MEANS.iter().find(|(table, _)| *table == t.name.as_str());
            let Some((_, mean)) = mean else {
                tensors.push((t.name.to_string(), dims, bytes, t.ty));
                continue;
            };
            if t.ty != TensorType::F32 {
                return None;
            }
            let d = *dims.last().unwrap() as usize;
            let mut table = vec![0.0; bytes.len() / 4];
            decode(t.ty, &bytes, &mut table).unwrap();
            let row = take_mean(&mut table, d);
            tensors.push((t.name.to_string(), dims, bytes_of(&table), t.ty));
            tensors.push(((*mean).to_owned(), vec![d as u64], bytes_of(&row), t.ty));
        }
        let mut w = self.writer("", |_| {});
        for (name, dims, _, ty) in &tensors {
            w.add_tensor(name, dims, *ty).unwrap();
        }
        let layout = w.finish().unwrap();
        let mut file = layout.header.clone();
        file.resize(layout.file_bytes as usize, 0);
        for (info, (_, _, bytes, _)) in layout.tensors.iter().zip(&tensors) {
            file[info.offset as usize..][..bytes.len()].copy_from_slice(bytes);
        }
        let files = ModelFiles::from_static(&self.name, file.leak()).unwrap();
        Some(Arc::new(Model::load(files, &Budget::unlimited()).unwrap()))
    }
}

/// Subtracts the mean row of a table, and returns it.
fn take_mean(table: &mut [f32], d: usize) -> Vec<f32> {
    let n = (table.len() / d) as f32;
    let mean = |j| table.iter().skip(j).step_by(d).sum::<f32>() / n;
    let mean: Vec<f32> = (0..d).map(mean).collect();
    for row in table.chunks_mut(d) {
        row.iter_mut().zip(&mean).for_each(|(x, m)| *x -= m);
    }
    mean
}

fn bytes_of(x: &[f32]) -> Vec<u8> {
    x.iter().flat_map(|x| x.to_le_bytes()).collect()
}
