//! Kernels that are wrong on purpose, as drivers may make them, which the self-test has to find.

use atta_gpu::{
    BufferId, CASES, Dispatch, Error, GpuStats, Host, HostInfo, NativeHost, PipelineId, Shader,
};
use std::ops::Range;

/// A piece of kernels, the piece in its place, and the comparison that finds it.
struct Mutation {
    case: &'static str,
    from: &'static str,
    to: &'static str,
}

const FUSED_FLOATS: Mutation = Mutation {
    case: "matmul: floats",
    from: "add(mul(weight(w, i), bitcast<f32>(acts[x + i])), sum)",
    to: "fused(weight(w, i), bitcast<f32>(acts[x + i]), sum)",
};
const FUSED_BLOCKS: Mutation = Mutation {
    case: "matmul: blocks of 256",
    from: "sub(mul(d.x, to_float(sums.x)), mul(d.y, to_float(sums.y)))",
    to: "fused(d.x, to_float(sums.x), negative(mul(d.y, to_float(sums.y))))",
};
const FUSED_MERGE: Mutation = Mutation {
    case: "attention f16",
    from: "add(mul(head[i], a), mul(x, b))",
    to: "fused(head[i], a, mul(x, b))",
};
/// As if the threads of a workgroup were one subgroup, and there are eight in one.
const SUBGROUP_PEAK: Mutation = Mutation {
    case: "attention f16",
    from: "for (var i = 0u; i < THREADS; i++) {\n        largest",
    to: "for (var i = t / 8u * 8u; i < t / 8u * 8u + 8u; i++) {\n        largest",
};
/// As if sums of eight threads were those of subgroups of four.
const SUBGROUP_SUM: Mutation = Mutation {
    case: "matmul: blocks of 256",
    from: "for (var i = 0u; i < 8u; i++) {\n        sums += parts[first + i];",
    to: "for (var i = 0u; i < 4u; i++) {\n        sums += parts[first + i];",
};
/// As WGSL allows a division to be.
const QUOTIENT: &str = "rounded(digits, rest != 0u, exponent)";
const QUOTIENT_OFF: &str = "(rounded(digits, rest != 0u, exponent) + 3u)";
const DIVISION: Mutation = Mutation {
    case: "operations",
    from: QUOTIENT,
    to: QUOTIENT_OFF,
};
const SCALES: Mutation = Mutation {
    case: "rows: codes, scales and sums",
    from: QUOTIENT,
    to: QUOTIENT_OFF,
};
const ROOT: Mutation = Mutation {
    case: "rows: copies, norms and activations",
    from: "rounded(root, rest != 0u, i32((exponent + 127u) >> 1u))",
    to: "(rounded(root, rest != 0u, i32((exponent + 127u) >> 1u)) + 3u)",
};
const EXPONENTIAL: Mutation = Mutation {
    case: "attention f16",
    from: "mul(add(parts.m, 1.0), power_of_two(parts.n))",
    to: "bitcast<f32>(bitcast<u32>(mul(add(parts.m, 1.0), power_of_two(parts.n))) + 3u)",
};

const FUSED_CONV: Mutation = Mutation {
    case: "recurrent: convolutions",
    from: "add(y, mul(element_of(source, i), vector(p.taps_at + j * p.d + i)))",
    to: "fused(element_of(source, i), vector(p.taps_at + j * p.d + i), y)",
};
/// A power of two is exact, so the other one has the error.
const DECAY: Mutation = Mutation {
    case: "recurrent: decays",
    from: "mul(add(parts.m, 1.0), power_of_two(both))",
    to: "bitcast<f32>(bitcast<u32>(mul(add(parts.m, 1.0), power_of_two(both))) + 3u)",
};
const LENGTH: Mutation = Mutation {
    case: "recurrent: norms",
    from: "sum = add(sum, mul(values[x + i], values[x + i]))",
    to: "sum = fused(values[x + i], values[x + i], sum)",
};
const FUSED_STATE: Mutation = Mutation {
    case: "recurrent: scans",
    from: "add(mul(state[i / 16u], decay_of(here, of_head, i)), mul(values[here.k + i], u))",
    to: "fused(state[i / 16u], decay_of(here, of_head, i), mul(values[here.k + i], u))",
};
/// As if a row had eight lanes, those of a subgroup.
const SUBGROUP_STATE: Mutation = Mutation {
    case: "recurrent: scans",
    from: "row[i] = lanes[(t & 48u) + i]",
    to: "row[i] = lanes[(t & 56u) + (i & 7u)]",
};
const FUSED_ADAPTERS: Mutation = Mutation {
    case: "rows: what adapters add",
    from: "add(values[at], mul(bitcast<f32>(factor), values[p.y_at + row * p.d + i]))",
    to: "fused(bitcast<f32>(factor), values[p.y_at + row * p.d + i], values[at])",
};

const FUSED_TRANSPOSED: Mutation = Mutation {
    case: "heads: products with transposed matrices",
    from: "add(sum, mul(values[x + i], vector(w + i * p.d_out)))",
    to: "fused(values[x + i], vector(w + i * p.d_out), sum)",
};
/// As if codes were shifted without being rounded.
const SHIFTED: Mutation = Mutation {
    case: "attention: keys that are values",
    from: "(code + ((1 << shift) >> 1u)) >> shift",
    to: "code >> shift",
};

const MUTATIONS: [Mutation; 17] = [
    FUSED_FLOATS,
    FUSED_BLOCKS,
    FUSED_MERGE,
    SUBGROUP_PEAK,
    SUBGROUP_SUM,
    DIVISION,
    SCALES,
    ROOT,
    EXPONENTIAL,
    FUSED_CONV,
    DECAY,
    LENGTH,
    FUSED_STATE,
    SUBGROUP_STATE,
    FUSED_ADAPTERS,
    FUSED_TRANSPOSED,
    SHIFTED,
];

/// `a·b + c`, rounded once (Dekker 1971), on drivers that have no such operation.
const FUSED: &str = "
fn fused(a: f32, b: f32, c: f32) -> f32 {
    let a_high = sub(mul(4097.0, a), sub(mul(4097.0, a), a));
    let b_high = sub(mul(4097.0, b), sub(mul(4097.0, b), b));
    let a_low = sub(a, a_high);
    let b_low = sub(b, b_high);
    let product = mul(a, b);
    let high = add(sub(mul(a_high, b_high), product), mul(a_high, b_low));
    let lost = add(add(high, mul(a_low, b_high)), mul(a_low, b_low));
    let sum = add(product, c);
    let part = sub(sum, product);
    let lost_of_sum = add(sub(product, sub(sum, part)), sub(c, part));
    return add(sum, add(lost, lost_of_sum));
}
";

/// Fails for a mutation that no kernel has, or that its comparison does not find.
pub(crate) fn are_found(host: &mut NativeHost) {
    for mutation in &MUTATIONS {
        let Mutation { case, from, .. } = mutation;
        let test = CASES.iter().find(|test| test.name == *case).unwrap();
        let mut mutant = Mutant {
            host: &mut *host,
            mutation,
            n_kernels: 0,
        };
        let found = test.run(&mut mutant);
        assert!(mutant.n_kernels > 0, "{case}: no kernel has {from:?}");
        let is_found = matches!(found, Err(Error::Mismatch { .. }));
        assert!(is_found, "{case}, without {from:?}: {found:?}");
    }
}

/// A host that compiles other kernels than it is given.
struct Mutant<'h> {
    host: &'h mut NativeHost,
    mutation: &'h Mutation,
    n_kernels: usize,
}

impl Mutant<'_> {
    fn mutated(&mut self, shader: &Shader) -> Shader {
        let Mutation { from, to, .. } = self.mutation;
        if !shader.text.contains(from) {
            return shader.clone();
        }
        self.n_kernels += 1;
        let text = shader.text.replace(from, to) + FUSED;
        let name = shader.name.clone();
        Shader { name, text }
    }
}

impl Host for Mutant<'_> {
    fn info(&self) -> &HostInfo {
        self.host.info()
    }

    fn stats(&self) -> GpuStats {
        self.host.stats()
    }

    fn buffer(&mut self, bytes: u64) -> Result<BufferId, Error> {
        self.host.buffer(bytes)
    }

    fn free(&mut self, buffer: BufferId) {
        self.host.free(buffer);
    }

    fn write(&mut self, buffer: BufferId, at: u64, bytes: &[u8]) -> Result<(), Error> {
        self.host.write(buffer, at, bytes)
    }

    fn pipelines(&mut self, shaders: &[Shader]) -> Result<Vec<PipelineId>, Error> {
        let mutated: Vec<Shader> = shaders.iter().map(|shader| self.mutated(shader)).collect();
        self.host.pipelines(&mutated)
    }

    fn submit(&mut self, dispatches: &[Dispatch]) -> Result<(), Error> {
        self.host.submit(dispatches)
    }

    fn destroy(&mut self) {
        self.host.destroy();
    }

    fn read_ranges(
        &mut self,
        buffer: BufferId,
        ranges: &[Range<u64>],
        out: &mut [u8],
    ) -> Result<(), Error> {
        self.host.read_ranges(buffer, ranges, out)
    }
}
