//! States of layers that follow each other, joined to one and divided again.
//!
//! ```text
//! state of all layers:  header | fields of all parts | data of all parts
//! ```
//! Knows the header of `state.rs`, and no cache. States with checkpoints of recurrent layers, whose
//! data does not lie part by part, are refused.

use std::ops::Range;

use super::{
    CacheSize,
    plan::{LayerPlaces, Place, StatePlan},
    state::{FIXED_BYTES, MAGIC, PART_BYTES, STATE_CODE},
};
use crate::Error;

const CUT: Error = Error::State("it is cut short, or of another model");

/// A state, taken apart.
struct Fields<'a> {
    first_layer: u32,
    rope_regime: u32,
    start: u32,
    n: u32,
    parts: &'a [[u8; PART_BYTES]],
    data: &'a [u8],
}

impl<'a> Fields<'a> {
    fn parse(state: &'a [u8]) -> Result<Self, Error> {
        let (head, rest) = state.split_at_checked(FIXED_BYTES).ok_or(CUT)?;
        let field = |i: usize| {
            let bytes = head[MAGIC.len() + 4 * i..].first_chunk();
            bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
        };
        let n_bytes = (field(0) as usize).checked_mul(PART_BYTES).ok_or(CUT)?;
        let (parts, data) = rest.split_at_checked(n_bytes).ok_or(CUT)?;
        let (parts, _) = parts.as_chunks();
        let is_state = |part: &[u8; PART_BYTES]| part[8..12] == STATE_CODE.to_le_bytes();
        if !head.starts_with(MAGIC) || parts.iter().any(is_state) {
            return Err(CUT);
        }
        Ok(Self {
            first_layer: field(1),
            rope_regime: field(2),
            start: field(3),
            n: field(4),
            parts,
            data,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        let n_parts = self.parts.len() as u32;
        out.extend_from_slice(MAGIC);
        for field in [
            n_parts,
            self.first_layer,
            self.rope_regime,
            self.start,
            self.n,
        ] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.extend_from_slice(self.parts.as_flattened());
        out.extend_from_slice(self.data);
    }
}

/// The state of all layers of states of the same positions.
///
/// # Errors
/// [`Error::State`] of layers with recurrent states.
pub(crate) fn join(states: &[Vec<u8>]) -> Result<Vec<u8>, Error> {
    let all = states.iter().map(|state| Fields::parse(state));
    let all = all.collect::<Result<Vec<_>, _>>()?;
    let first = all.first().ok_or(CUT)?;
    let parts: Vec<_> = all.iter().flat_map(|state| state.parts).copied().collect();
    let joined = Fields {
        rope_regime: all.iter().map(|s| s.rope_regime).max().unwrap_or(0),
        parts: &parts,
        data: &[],
        ..*first
    };
    let mut out = Vec::new();
    joined.write(&mut out);
    all.iter()
        .for_each(|state| out.extend_from_slice(state.data));
    Ok(out)
}

/// The states of these ranges of layers, which are together all layers of a cache of this size.
///
/// # Errors
/// [`Error::State`] for a state of others, or with recurrent states.
pub(crate) fn split(
    size: &CacheSize<'_>,
    ranges: impl Iterator<Item = Range<usize>>,
    state: &[u8],
) -> Result<Vec<Vec<u8>>, Error> {
    let all = Fields::parse(state)?;
    let plan = StatePlan::new(size.spec, size.layers.clone(), size.kv);
    let is_other = all.first_layer as usize != size.layers.start
        || all.rope_regime != size.rope_regime(size.layers.clone());
    if is_other || all.parts.len() != plan.places.len() {
        return Err(Error::State(
            "it is of another model, or of another kind of context",
        ));
    }
    let mut rest = (&plan.places[..], all.parts, all.data);
    let mut states = Vec::new();
    for layers in ranges {
        let local = layers.start - size.layers.start..layers.end - size.layers.start;
        let n = plan.layers[local].iter().map(LayerPlaces::n_places).sum();
        let (places, places_left) = rest.0.split_at(n);
        let (parts, parts_left) = rest.1.split_at(n);
        let n_bytes = data_bytes(places, parts, all.n).ok_or(CUT)?;
        let (data, data_left) = rest.2.split_at_checked(n_bytes).ok_or(CUT)?;
        rest = (places_left, parts_left, data_left);
        let own = Fields {
            first_layer: layers.start as u32,
            rope_regime: size.rope_regime(layers),
            parts,
            data,
            ..all
        };
        let mut out = Vec::new();
        own.write(&mut out);
        states.push(out);
    }
    match rest.2 {
        [] => Ok(states),
        _ => Err(Error::State("its length does not match its header")),
    }
}

/// Bytes of the data of some parts of `n` positions.
fn data_bytes(places: &[Place], parts: &[[u8; PART_BYTES]], n: u32) -> Option<usize> {
    let bytes = |(place, part): (&Place, &[u8; PART_BYTES])| {
        let n_missing = part.last_chunk().map_or(0, |n| u32::from_le_bytes(*n));
        let n_held = n.checked_sub(n_missing)? as usize;
        match place {
            Place::Kv(place) => place.bytes().checked_mul(n_held),
            Place::Shared(_) | Place::Recurrent(_) => Some(0),
        }
    };
    let mut all = places.iter().zip(parts).map(bytes);
    all.try_fold(0_usize, |sum, bytes| sum.checked_add(bytes?))
}
