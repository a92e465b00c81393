//! Which executors can be made, and which rows they take: the same for all backends.
//!
//! It knows the spec, the part that an executor runs, and batches; it knows no memory and no
//! device. Whether a row continues its sequence is a matter of [`SeqTable`](crate::SeqTable).

use crate::{
    Batch, Error, ExecutorSize, Input, Row, Share, Want,
    spec::{Attention, ModelSpec, Outputs, Positions},
};

/// Fails for a row whose input the executor does not take, or whose result it does not compute.
///
/// # Errors
/// [`Error::Row`], [`Error::Token`], [`Error::NoLogits`].
pub fn check_row(
    spec: &ModelSpec,
    part: &Share,
    batch: &Batch,
    i: usize,
    row: &Row,
) -> Result<(), Error> {
    let refuse = |what| Err(Error::Row { row: i, what });
    if let Some(id) = row.token().filter(|&id| id as usize >= spec.n_vocab) {
        let n_vocab = spec.n_vocab;
        return Err(Error::Token { id, n_vocab });
    }
    check_joined(spec, batch, row).or_else(refuse)?;
    match row.input {
        Input::Token(_) if !part.embed => {
            return refuse("a token, but the embedding is elsewhere");
        }
        Input::Hidden(_) if part.embed => {
            return refuse("a hidden state, but this executor embeds tokens");
        }
        Input::Embedding(_) if !part.embed => {
            return refuse("an embedding, but the first layer is elsewhere");
        }
        Input::Embedding(i) if i >= batch.hidden.len() / spec.d_model => {
            return refuse("an embedding that the batch does not hold");
        }
        Input::Hidden(i) if i >= batch.hidden.len() / spec.d_residual() => {
            return refuse("a hidden state that the batch does not hold");
        }
        _ => {}
    }
    if matches!(row.input, Input::Embedding(_)) && spec.lacks_placeholder(&part.layers) {
        return refuse("an embedding, but n-grams have no token for it");
    }
    if row.want == Want::Logits && !part.head {
        return refuse("logits, but the head is elsewhere");
    }
    if row.want == Want::Logits && spec.head.outputs != Outputs::Logits {
        return Err(Error::NoLogits);
    }
    if spec.is_encoder() {
        check_text(batch, i, row)?;
    }
    Ok(())
}

/// Fails for a row of a text that does not stand whole in the batch, its rows one behind the other:
/// every row of an encoder's text sees all others.
fn check_text(batch: &Batch, i: usize, row: &Row) -> Result<(), Error> {
    let before = i.checked_sub(1).map(|i| &batch.rows[i]);
    let continues = before.is_some_and(|before| before.seq == row.seq && before.pos + 1 == row.pos);
    match row.pos == 0 || continues {
        true => Ok(()),
        false => Err(Error::Row {
            row: i,
            what: "a part of a text of an encoder, which sees each text whole",
        }),
    }
}

/// Fails for a part that is not there, not loaded, or cannot be computed alone.
fn check_part(spec: &ModelSpec, loaded: &Share, part: &Share) -> Result<(), Error> {
    let Share {
        layers,
        embed,
        head,
    } = part;
    let n_layers = spec.layers.len();
    let is_there = layers.start <= layers.end && layers.end <= n_layers;
    let fits = (!embed || layers.start == 0) && (!head || layers.end == n_layers);
    if !is_there || !fits || layers.is_empty() && !embed && !head {
        return Err(Error::Options(format!(
            "layers {layers:?} of a model of {n_layers}"
        )));
    }
    if !loaded.includes(part) {
        return Err(Error::Options(format!(
            "layers {layers:?} of a model of which only {:?} are loaded",
            loaded.layers
        )));
    }
    if layers.start == 0 && !embed && spec.ngrams().is_some() {
        return Err(Error::Options(format!(
            "layers {layers:?} without the tokens, of a model whose layers look them up"
        )));
    }
    spec.check_separable(layers)
}

/// Refuses sizes of 0, positions that the model has not learned, and shifts that it does not allow.
///
/// # Errors
/// [`Error::Options`], [`Error::NoShift`].
pub fn check_size(spec: &ModelSpec, loaded: &Share, size: &ExecutorSize) -> Result<(), Error> {
    let n_ctx = size.n_ctx;
    let n_shared = size.n_shared.unwrap_or(n_ctx);
    check_part(spec, loaded, &size.part_of(spec))?;
    check_counts(spec, [n_ctx, size.n_seqs, size.n_batch, n_shared])?;
    if size.n_recent.is_none() {
        return Ok(());
    }
    check_shifting(spec)?;
    match size.n_shared {
        None => Ok(()),
        Some(_) => Err(Error::Options(
            "sequences that share a KV pool, and are shifted".to_owned(),
        )),
    }
}

/// Refuses sizes of 0.
fn check_counts(spec: &ModelSpec, sizes: [usize; 4]) -> Result<(), Error> {
    if let Positions::Learned(n) = spec.positions
        && sizes[0] > n
    {
        return Err(Error::Options(format!(
            "{} positions of a model that has learned {n}",
            sizes[0]
        )));
    }
    // Positions are counted in u32 in states, blocks in u32 in tables.
    match sizes
        .iter()
        .find(|&&size| size == 0 || size > u32::MAX as usize / 2)
    {
        Some(size) => Err(Error::Options(format!(
            "{size} positions, sequences or rows"
        ))),
        None => Ok(()),
    }
}

/// Refuses models whose context cannot be shifted.
///
/// # Errors
/// [`Error::NoShift`].
pub fn check_shifting(spec: &ModelSpec) -> Result<(), Error> {
    why_unmovable(spec).map_or(Ok(()), |why| Err(Error::NoShift(why)))
}

/// Refuses models whose keys cannot be moved to other positions.
///
/// # Errors
/// [`Error::NoMove`].
pub fn check_moving(spec: &ModelSpec) -> Result<(), Error> {
    why_unmovable(spec).map_or(Ok(()), |why| Err(Error::NoMove(why)))
}

/// Why the state of a model cannot be moved to other positions; `None` if it can.
fn why_unmovable(spec: &ModelSpec) -> Option<&'static str> {
    if spec.is_recurrent() {
        Some("it has recurrent layers, whose states hold all positions together")
    } else if spec.is_encoder() {
        Some("it is an encoder, which sees a text whole")
    } else if matches!(spec.positions, Positions::Learned(_)) {
        Some("its positions are learned")
    } else if spec.indexers().next().is_some() {
        Some("the keys of its indexers hold several positions together")
    } else if spec.attentions().any(Attention::norms_rotated) {
        Some("its keys are normalized behind their rotation, which cannot be undone")
    } else {
        None
    }
}

/// Fails for a row that does not bring what a draft head reads, or brings it to another model.
fn check_joined(spec: &ModelSpec, batch: &Batch, row: &Row) -> Result<(), &'static str> {
    let is_joined = |row: &Row| matches!(row.input, Input::Tapped { .. } | Input::Carried { .. });
    let Some(join) = &spec.join else {
        return match is_joined(row) {
            true => Err("a hidden state beside a token, but this is no draft head"),
            false => Ok(()),
        };
    };
    let is_tapped = |row: &Row| matches!(row.input, Input::Tapped { .. });
    let d = match is_tapped(row) {
        true => join.taps.len() * join.d_target,
        false => spec.d_model,
    };
    match row.input {
        Input::Tapped { states: i, .. } | Input::Carried { state: i, .. }
            if i < batch.hidden.len() / d && is_tapped(row) == is_tapped(&batch.rows[0]) =>
        {
            Ok(())
        }
        _ => Err("no hidden state beside a token, which a draft head reads"),
    }
}
