//! Whether a host computes the CPU's bits: every kernel beside atta-kernels, on small buffers.
//!
//! A driver may break what the guard relies on, such as IEEE addition; then this says which kernel
//! and which element differ. It knows no model. Expected results come from the plain instruction
//! set of atta-kernels, or from definitions written out here, never from a GPU.

mod attention;
mod blocks;
mod experts;
mod factors;
mod heads;
mod joined;
mod latent;
mod operations;
mod products;
mod recurrent;
mod rows;
mod scans;

use crate::host::{Bindings, BufferId, Dispatch};
use crate::{Error, Host, Shader};
use atta_kernels::{Kernels, Pool};
use std::num::NonZeroUsize;

/// A comparison of one kernel with the CPU.
#[derive(Clone, Copy, Debug)]
pub struct SelfTest {
    /// The kernel, and its part.
    pub name: &'static str,
    run: fn(&mut Probe<'_>) -> Result<(), Error>,
}

/// All comparisons.
pub const CASES: &[SelfTest] = &[
    SelfTest {
        name: "operations",
        run: operations::check,
    },
    SelfTest {
        name: "rows: copies, norms and activations",
        run: rows::functions,
    },
    SelfTest {
        name: "rows: codes, scales and sums",
        run: rows::codes,
    },
    SelfTest {
        name: "rows: sums with norms",
        run: rows::sums,
    },
    SelfTest {
        name: "rows: weights of routes",
        run: factors::weighted,
    },
    SelfTest {
        name: "rows: numbers and gates",
        run: factors::multiplied,
    },
    SelfTest {
        name: "rows: what adapters add",
        run: factors::scaled,
    },
    SelfTest {
        name: "matmul: blocks of 256",
        run: products::blocks,
    },
    SelfTest {
        name: "matmul: groups of 32",
        run: products::groups,
    },
    SelfTest {
        name: "matmul: floats",
        run: products::floats,
    },
    SelfTest {
        name: "matmul: integers of other types",
        run: products::integers,
    },
    SelfTest {
        name: "matmul in slices",
        run: products::in_slices,
    },
    SelfTest {
        name: "matmul: several matrices",
        run: joined::check,
    },
    SelfTest {
        name: "heads",
        run: heads::check,
    },
    SelfTest {
        name: "blocks: copies",
        run: blocks::copies,
    },
    SelfTest {
        name: "blocks: moved keys",
        run: blocks::moved,
    },
    SelfTest {
        name: "attention f32",
        run: attention::floats,
    },
    SelfTest {
        name: "attention f16",
        run: attention::codes,
    },
    SelfTest {
        name: "attention q8",
        run: attention::bytes,
    },
    SelfTest {
        name: "attention q4",
        run: attention::nibbles,
    },
    SelfTest {
        name: "attention: keys and values of two types",
        run: attention::mixed,
    },
    SelfTest {
        name: "attention: keys that are values",
        run: attention::latent,
    },
    SelfTest {
        name: "heads: products with a matrix of each",
        run: latent::products,
    },
    SelfTest {
        name: "heads: products with transposed matrices",
        run: latent::transposed,
    },
    SelfTest {
        name: "heads: copied columns",
        run: latent::copies,
    },
    SelfTest {
        name: "experts: routes",
        run: experts::routes,
    },
    SelfTest {
        name: "experts: products",
        run: experts::products,
    },
    SelfTest {
        name: "experts: sums",
        run: experts::sums,
    },
    SelfTest {
        name: "recurrent: convolutions",
        run: recurrent::convolutions,
    },
    SelfTest {
        name: "recurrent: decays",
        run: recurrent::decays,
    },
    SelfTest {
        name: "recurrent: norms",
        run: recurrent::norms,
    },
    SelfTest {
        name: "recurrent: scans",
        run: scans::check,
    },
];

impl SelfTest {
    /// Runs the comparison.
    ///
    /// # Errors
    /// [`Error::Mismatch`], or those of the host.
    pub fn run(&self, host: &mut dyn Host) -> Result<(), Error> {
        let kernels = Kernels::named("scalar").expect("every machine has the plain kernels");
        let mut probe = Probe {
            name: self.name,
            host,
            kernels,
            pool: Pool::new(NonZeroUsize::MIN),
            buffers: Vec::new(),
        };
        let done = (self.run)(&mut probe);
        probe.clear();
        done
    }
}

/// Runs all comparisons, up to the first that fails.
///
/// # Errors
/// [`Error::Mismatch`], or those of the host.
pub fn self_test(host: &mut dyn Host) -> Result<(), Error> {
    CASES.iter().try_for_each(|case| case.run(host))
}

/// A host with buffers for one comparison at a time, and the CPU beside it.
struct Probe<'h> {
    name: &'static str,
    host: &'h mut dyn Host,
    kernels: Kernels,
    pool: Pool,
    buffers: Vec<BufferId>,
}

/// What lies in the buffers at first.
struct Contents<'a> {
    weights: &'a [u8],
    /// Words, zeros.
    n_acts: usize,
    values: &'a [f32],
    tables: &'a [u8],
    kv: &'a [u8],
}

impl Probe<'_> {
    /// Frees the buffers of the last comparison.
    fn clear(&mut self) {
        for buffer in self.buffers.drain(..) {
            self.host.free(buffer);
        }
    }

    fn buffer(&mut self, bytes: usize) -> Result<BufferId, Error> {
        let made = self.host.buffer(bytes as u64)?;
        self.buffers.push(made);
        Ok(made)
    }

    /// Buffers with these contents in place of the last ones.
    fn fill(&mut self, contents: &Contents<'_>) -> Result<Bindings, Error> {
        self.clear();
        let bindings = Bindings {
            weights: self.buffer(contents.weights.len())?,
            kv: self.buffer(contents.kv.len())?,
            tables: self.buffer(contents.tables.len())?,
            acts: self.buffer(4 * contents.n_acts)?,
            values: self.buffer(4 * contents.values.len())?,
        };
        self.host.write(bindings.weights, 0, contents.weights)?;
        self.host.write(bindings.kv, 0, contents.kv)?;
        self.host.write(bindings.tables, 0, contents.tables)?;
        self.host
            .write(bindings.values, 0, &bytes_of(contents.values))?;
        Ok(bindings)
    }

    /// Runs one kernel.
    fn run(
        &mut self,
        shader: &Shader,
        dispatch: impl FnOnce(crate::PipelineId) -> Dispatch,
    ) -> Result<(), Error> {
        let pipeline = self.host.pipeline(shader)?;
        self.host.submit(&[dispatch(pipeline)])
    }

    /// Words of a buffer.
    fn words(&mut self, buffer: BufferId, at: usize, n: usize) -> Result<Vec<u32>, Error> {
        let mut bytes = vec![0; 4 * n];
        self.host.read(buffer, 4 * at as u64, &mut bytes)?;
        let words = bytes.as_chunks().0.iter();
        Ok(words.map(|word| u32::from_le_bytes(*word)).collect())
    }

    /// Compares words with those of floats.
    fn same_floats(&self, what: &str, got: &[u32], expected: &[f32]) -> Result<(), Error> {
        self.same(what, got, expected.iter().map(|x| x.to_bits()))
    }

    /// Compares words, bit by bit.
    ///
    /// # Panics
    /// If there are not as many on both sides, which is no matter of the driver.
    fn same(
        &self,
        what: &str,
        got: &[u32],
        expected: impl IntoIterator<Item = u32>,
    ) -> Result<(), Error> {
        let expected: Vec<u32> = expected.into_iter().collect();
        assert_eq!(got.len(), expected.len(), "{}, {what}", self.name);
        let mut pairs = got.iter().zip(expected).enumerate();
        match pairs.find(|(_, (got, want))| *got != want) {
            None => Ok(()),
            Some((at, (&got, expected))) => Err(Error::Mismatch {
                case: format!("{}, {what}", self.name),
                at,
                got,
                expected,
            }),
        }
    }
}

/// The words of floats.
fn bytes_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}
