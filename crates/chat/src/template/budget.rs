//! Limits on values that a template builds, for costs that the interpreter does not count.
//!
//! The interpreter counts instructions and bytes, but not the cost of comparing or dropping a
//! value, which may be a list of lists that share their parts: cheap to build, very expensive to
//! visit. So every value is visited once before it is used, charging its fuel, down to a maximum
//! depth and number of parts, counting shared parts each time.

use std::sync::atomic::{AtomicI64, Ordering};

use minijinja::{Error, ErrorKind, Value, value::ValueKind};

/// Maximum nesting: dropping and printing recurse.
const MAX_DEPTH: usize = 100;
/// Maximum parts of one value, in addition to those of the conversation.
const MAX_PARTS: usize = 10_000;
/// Bytes of text that cost as much as one part.
const BYTES_PER_PART: usize = 1024;

/// The remaining allowance.
pub(super) struct Budget {
    left: AtomicI64,
    max_parts: usize,
}

/// Size of a template's input; the limits grow with it.
#[derive(Clone, Copy, Default)]
pub(super) struct InputSize {
    pub(super) n_bytes: usize,
    /// Pairs of messages, after the cap.
    pub(super) n_pairs: u64,
}

impl Budget {
    /// Enough to visit each part of the input a few dozen times, and each message once for every
    /// other message.
    pub(super) fn new(size: InputSize) -> Self {
        let max_parts = MAX_PARTS + size.n_bytes / 8;
        let left = (max_parts as u64)
            .saturating_mul(100)
            .saturating_add(size.n_pairs);
        Self {
            left: AtomicI64::new(i64::try_from(left).unwrap_or(i64::MAX)),
            max_parts,
        }
    }

    /// Visits a value; returns whether it contains a namespace.
    pub(super) fn weigh(&self, value: &Value) -> Result<bool, Error> {
        if value.as_object().is_none() {
            return self.spend(own_parts(value)).map(|()| false);
        }
        let mut has_namespace = false;
        let mut todo = vec![(value.clone(), 0)];
        let mut n_parts = 0;
        while let Some((value, depth)) = todo.pop() {
            n_parts += own_parts(&value);
            if n_parts > self.max_parts || depth > MAX_DEPTH {
                return Err(refused("the template makes a value that is too large"));
            }
            has_namespace |= is_namespace(&value);
            let room = self.max_parts - n_parts;
            todo.extend(
                parts(&value, room.saturating_add(1))
                    .into_iter()
                    .map(|part| (part, depth + 1)),
            );
        }
        self.spend(n_parts)?;
        Ok(has_namespace)
    }

    fn spend(&self, n: usize) -> Result<(), Error> {
        let n = i64::try_from(n).unwrap_or(i64::MAX);
        let left = self.left.fetch_sub(n, Ordering::Relaxed);
        if left > n {
            Ok(())
        } else {
            Err(Error::from(ErrorKind::OutOfFuel))
        }
    }
}

/// Cost of a value without its items.
fn own_parts(value: &Value) -> usize {
    1 + value.as_str().map_or(0, |text| text.len() / BYTES_PER_PART)
}

/// The direct parts of a value, including keys.
fn parts(value: &Value, n: usize) -> Vec<Value> {
    let Some(object) = value.as_object() else {
        return Vec::new();
    };
    match value.kind() {
        ValueKind::Map => {
            let pairs = object.try_iter_pairs().into_iter().flatten();
            pairs.flat_map(|(key, part)| [key, part]).take(n).collect()
        }
        ValueKind::Seq | ValueKind::Iterable => {
            object.try_iter().into_iter().flatten().take(n).collect()
        }
        _ => Vec::new(),
    }
}

/// Namespaces of Jinja: the only values that can contain themselves.
pub(super) fn is_namespace(value: &Value) -> bool {
    value
        .as_object()
        .is_some_and(|object| object.type_name().ends_with("::Namespace"))
}

pub(super) fn refused(why: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, why)
}
