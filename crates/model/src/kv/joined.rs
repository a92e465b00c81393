//! States of layers that follow each other, joined to one and divided again.
//!
//! ```text
//! state of all layers:  header | fields of all parts | checkpoints | keys and values of all parts
//!                       | of each checkpoint the recurrent states of all parts
//! ```
//! Knows the header of `state.rs`, and no cache. States with recurrent layers are joined if all
//! have the same checkpoints.

use std::ops::Range;

use super::{
    CacheSize,
    plan::{LayerPlaces, Place, StatePlan},
    state::{FIXED_BYTES, MAGIC, PART_BYTES, STATE_CODE, floats_of},
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
    /// Positions of checkpoints; none without recurrent layers.
    checkpoints: &'a [[u8; 4]],
    data: &'a [u8],
}

/// The checkpoints behind the fields of parts, and the data.
fn checkpoints_of(rest: &[u8]) -> Result<(&[[u8; 4]], &[u8]), Error> {
    let (n, rest) = rest.split_first_chunk().ok_or(CUT)?;
    let n_bytes = (u32::from_le_bytes(*n) as usize).checked_mul(4);
    let (checkpoints, data) = rest.split_at_checked(n_bytes.ok_or(CUT)?).ok_or(CUT)?;
    Ok((checkpoints.as_chunks().0, data))
}

/// Bytes of a part behind each checkpoint.
fn bytes_of_state(part: &[u8; PART_BYTES]) -> usize {
    match is_state(part) {
        true => 4 * u32::from_le_bytes([part[4], part[5], part[6], part[7]]) as usize,
        false => 0,
    }
}

/// Whether a part is a recurrent state.
fn is_state(part: &[u8; PART_BYTES]) -> bool {
    part[8..12] == STATE_CODE.to_le_bytes()
}

impl<'a> Fields<'a> {
    fn parse(state: &'a [u8]) -> Result<Self, Error> {
        let (head, rest) = state.split_at_checked(FIXED_BYTES).ok_or(CUT)?;
        let field = |i: usize| {
            let bytes = head[MAGIC.len() + 4 * i..].first_chunk();
            bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
        };
        let n_bytes = (field(0) as usize).checked_mul(PART_BYTES).ok_or(CUT)?;
        let (parts, rest) = rest.split_at_checked(n_bytes).ok_or(CUT)?;
        let (parts, _) = parts.as_chunks();
        if !head.starts_with(MAGIC) {
            return Err(CUT);
        }
        let (checkpoints, data) = match parts.iter().any(is_state) {
            true => checkpoints_of(rest)?,
            false => (&[][..], rest),
        };
        Ok(Self {
            first_layer: field(1),
            rope_regime: field(2),
            start: field(3),
            n: field(4),
            parts,
            checkpoints,
            data,
        })
    }

    fn is_recurrent(&self) -> bool {
        self.parts.iter().any(is_state)
    }

    /// Keys and values, and the recurrent states of each checkpoint.
    fn halves(&self) -> Result<(&'a [u8], Vec<&'a [u8]>), Error> {
        let of_one = self.parts.iter().map(bytes_of_state).sum::<usize>();
        let of_all = of_one.checked_mul(self.checkpoints.len()).ok_or(CUT)?;
        let of_kv = self.data.len().checked_sub(of_all).ok_or(CUT)?;
        let (kv, states) = self.data.split_at(of_kv);
        let of_checkpoint = |i: usize| &states[i * of_one..][..of_one];
        Ok((kv, (0..self.checkpoints.len()).map(of_checkpoint).collect()))
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
        if self.is_recurrent() {
            out.extend_from_slice(&(self.checkpoints.len() as u32).to_le_bytes());
            out.extend_from_slice(self.checkpoints.as_flattened());
        }
        out.extend_from_slice(self.data);
    }
}

/// The state of all layers of states of the same positions.
///
/// # Errors
/// [`Error::State`] of recurrent layers with different checkpoints.
pub(crate) fn join(states: &[Vec<u8>]) -> Result<Vec<u8>, Error> {
    let all = states.iter().map(|state| Fields::parse(state));
    let all = all.collect::<Result<Vec<_>, _>>()?;
    let first = all.first().ok_or(CUT)?;
    let parts: Vec<_> = all.iter().flat_map(|state| state.parts).copied().collect();
    let checkpoints = common_checkpoints(&all)?;
    let joined = Fields {
        rope_regime: all.iter().map(|s| s.rope_regime).max().unwrap_or(0),
        parts: &parts,
        checkpoints,
        data: &[],
        ..*first
    };
    let mut out = Vec::new();
    joined.write(&mut out);
    let halves = all.iter().map(Fields::halves);
    let halves = halves.collect::<Result<Vec<_>, _>>()?;
    halves.iter().for_each(|(kv, _)| out.extend_from_slice(kv));
    for i in 0..checkpoints.len() {
        let states = halves.iter().filter_map(|(_, states)| states.get(i));
        states.for_each(|state| out.extend_from_slice(state));
    }
    Ok(out)
}

/// The checkpoints of all states with recurrent layers; none without such.
fn common_checkpoints<'a>(states: &[Fields<'a>]) -> Result<&'a [[u8; 4]], Error> {
    let mut recurrent = states.iter().filter(|state| state.is_recurrent());
    let checkpoints = recurrent.next().map_or(&[][..], |state| state.checkpoints);
    match recurrent.all(|state| state.checkpoints == checkpoints) {
        true => Ok(checkpoints),
        false => Err(Error::State("its layers have different checkpoints")),
    }
}

/// The states of these ranges of layers, which are together all layers of a cache of this size.
///
/// # Errors
/// [`Error::State`] for a state of others.
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
    let n_bytes = data_bytes(&plan.places, all.parts, all.n).ok_or(CUT)?;
    let (kv, recurrent) = all.data.split_at_checked(n_bytes).ok_or(CUT)?;
    let of_one = state_bytes(&plan.places);
    if of_one.checked_mul(all.checkpoints.len()) != Some(recurrent.len()) {
        return Err(Error::State("its length does not match its header"));
    }
    let mut rest = Undivided {
        places: &plan.places,
        parts: all.parts,
        kv,
        states: (0..all.checkpoints.len())
            .map(|i| &recurrent[i * of_one..][..of_one])
            .collect(),
    };
    let mut states = Vec::new();
    for layers in ranges {
        let local = layers.start - size.layers.start..layers.end - size.layers.start;
        let n = plan.layers[local].iter().map(LayerPlaces::n_places).sum();
        let own = Fields {
            first_layer: layers.start as u32,
            rope_regime: size.rope_regime(layers),
            ..all
        };
        states.push(rest.take(n, own)?);
    }
    Ok(states)
}

/// Parts that are not divided yet: their fields, keys and values, and states of each checkpoint.
struct Undivided<'a> {
    places: &'a [Place],
    parts: &'a [[u8; PART_BYTES]],
    kv: &'a [u8],
    states: Vec<&'a [u8]>,
}

impl<'a> Undivided<'a> {
    /// The state of the next `n` parts, with other fields as in `own`.
    fn take(&mut self, n: usize, own: Fields<'a>) -> Result<Vec<u8>, Error> {
        let (places, places_left) = self.places.split_at(n);
        let (parts, parts_left) = self.parts.split_at(n);
        let n_bytes = data_bytes(places, parts, own.n).ok_or(CUT)?;
        let (data, kv_left) = self.kv.split_at_checked(n_bytes).ok_or(CUT)?;
        let mut out = Vec::new();
        Fields { parts, data, ..own }.write(&mut out);
        let n_bytes = state_bytes(places);
        for state in &mut self.states {
            let (own, left) = state.split_at_checked(n_bytes).ok_or(CUT)?;
            out.extend_from_slice(own);
            *state = left;
        }
        (self.places, self.parts, self.kv) = (places_left, parts_left, kv_left);
        Ok(out)
    }
}

/// Bytes of the recurrent states of some parts behind one position.
fn state_bytes(places: &[Place]) -> usize {
    4 * floats_of(places).map(|floats| floats.len()).sum::<usize>()
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
