//! Numbers that are tensors of each layer in the checkpoint and arrays in GGUF's metadata.

use super::{config::Config, family::Family, keys::Keys};
use crate::{Error, raw::RawTensors};

/// Takes the numbers of all layers out of a checkpoint and writes their keys.
pub(super) fn write(
    c: &Config,
    family: &Family,
    raw: &mut RawTensors,
    keys: &mut Keys,
) -> Result<(), Error> {
    if family.numbers.is_empty() {
        return Ok(());
    }
    let n_layers = family.windows(c)?.len();
    for (name, key) in family.numbers {
        let of_layer = |l| take(raw, &family.in_layer(name, Some(l)));
        let all: Vec<f32> = (0..n_layers).map(of_layer).collect::<Result<_, _>>()?;
        keys.writer.set_f32s(key, &all);
    }
    Ok(())
}

/// Takes a tensor of one element.
fn take(raw: &mut RawTensors, name: &str) -> Result<f32, Error> {
    let tensor = raw.take(name).ok_or_else(|| Error::Missing.of(name))?;
    let mut number = [0.0];
    match tensor.dims() {
        [] | [1] => tensor.floats(0, &mut number).map(|()| number[0]),
        dims => Err(Error::Dims {
            expected: vec![1],
            got: dims.to_vec(),
        }
        .of(name)),
    }
}
