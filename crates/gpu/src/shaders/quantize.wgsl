// One row of activations: a function of the rows of `values`, as f32 and as int8 in the layouts that products read.
//
//     x = value | act(value) | act(gate)·up;   x = x | rms(x) | layer(x);   x = x | w·x
//     code = rne(x·(1/scale)),  scale = max |x| / 127      of each 256 elements (Q8_256), or of each 32 (Q8_32)
//
// A workgroup has a row, a thread four neighbours of each 256. Sums of squares have sixteen lanes, a thread each.

struct Params {
    zero: u32,
    // Of the norm, 0: none; 256 times the routes of a row of values, if each makes a row, multiplied by its weight.
    kind: u32,
    activation: u32,
    d: u32,
    x_at: u32,
    // The other factor, or the routes.
    up_at: u32,
    weight_at: u32,
    bias_at: u32,
    eps: f32,
    out_256: u32,
    out_32: u32,
    out_f32: u32,
    // Numbers of the activation.
    numbers_0: f32,
    numbers_1: f32,
    numbers_2: f32,
    numbers_3: f32,
}

// Blocks with magnitudes below 1e-35 are zeros: the bits of that.
const TINY: u32 = 0x0554ad2eu;

var<workgroup> peaks: array<u32, 64>;
var<workgroup> sums: array<i32, 64>;

fn numbers() -> vec4<f32> {
    return vec4<f32>(p.numbers_0, p.numbers_1, p.numbers_2, p.numbers_3);
}

fn input(row: u32, i: u32) -> f32 {
    let x = values[p.x_at + row * p.d + i];
    if p.activation == NONE {
        return x;
    }
    if p.up_at == NONE {
        return activate(p.activation, x, numbers());
    }
    return gated(p.activation, x, values[p.up_at + row * p.d + i], numbers());
}

fn row_of_values(row: u32) -> u32 {
    return row / max(p.kind >> 8u, 1u);
}

fn element(row: u32, i: u32, norm: Norm) -> f32 {
    if i >= p.d {
        return 0.0;
    }
    var x = input(row_of_values(row), i);
    if (p.kind & 255u) != 0u {
        x = normed(x, i, norm);
    }
    if p.kind < 256u {
        return x;
    }
    return mul(bitcast<f32>(acts[p.up_at + 2u * row + 1u]), x);
}

fn code(x: f32, inverse: f32) -> i32 {
    // A byte of it, as on the CPU: what is not finite may give any bits.
    return max((nearest(mul(x, inverse)) << 24u) >> 24u, -127);
}

fn packed(codes: vec4<i32>) -> u32 {
    let bytes = vec4<u32>(codes) & vec4<u32>(255u);
    return bytes.x | (bytes.y << 8u) | (bytes.z << 16u) | (bytes.w << 24u);
}

// The largest magnitude of some threads' elements, as bits: those of NaN and infinity are above all.
fn peak_of(first: u32, n: u32) -> u32 {
    var peak = 0u;
    for (var i = 0u; i < n; i++) {
        peak = max(peak, peaks[first + i]);
    }
    return peak;
}

fn scale_of(peak: u32) -> f32 {
    if peak < TINY {
        return 0.0;
    }
    return select(div(bitcast<f32>(peak), 127.0), bitcast<f32>(NAN ^ p.zero), peak >= INFINITE);
}

fn codes_of(x: vec4<f32>, scale: f32) -> vec4<i32> {
    if scale == 0.0 {
        return vec4<i32>(0);
    }
    let inverse = div(1.0, scale);
    return vec4<i32>(code(x.x, inverse), code(x.y, inverse), code(x.z, inverse), code(x.w, inverse));
}

// Of a row: codes, then a scale for each block, then sixteen sums of 16 codes for each block, two in a word.
fn store_256(row: u32, b: u32, t: u32, x: vec4<f32>) {
    let n_blocks = (p.d + 255u) / 256u;
    let out = p.out_256 + row * n_blocks * 73u;
    let scale = scale_of(peak_of(0u, 64u));
    let codes = codes_of(x, scale);
    acts[out + 64u * b + t] = packed(codes);
    sums[t] = codes.x + codes.y + codes.z + codes.w;
    workgroupBarrier();
    if t < 8u {
        var both = vec2<i32>(0);
        for (var i = 0u; i < 4u; i++) {
            both += vec2<i32>(sums[8u * t + i], sums[8u * t + 4u + i]);
        }
        let halves = vec2<u32>(both) & vec2<u32>(0xffffu);
        acts[out + 65u * n_blocks + 8u * b + t] = halves.x | (halves.y << 16u);
    }
    if t == 0u {
        acts[out + 64u * n_blocks + b] = bitcast<u32>(scale);
    }
}

// Of a row: codes, then eight scales for each block.
fn store_32(row: u32, b: u32, t: u32, x: vec4<f32>) {
    let n_blocks = (p.d + 255u) / 256u;
    let out = p.out_32 + row * n_blocks * 72u;
    let scale = scale_of(peak_of(t & 56u, 8u));
    acts[out + 64u * b + t] = packed(codes_of(x, scale));
    if (t & 7u) == 0u {
        acts[out + 64u * n_blocks + 8u * b + t / 8u] = bitcast<u32>(scale);
    }
}

fn store_floats(row: u32, first: u32, x: vec4<f32>) {
    for (var i = 0u; i < 4u; i++) {
        if first + i < p.d {
            acts[p.out_f32 + row * p.d + first + i] = bitcast<u32>(x[i]);
        }
    }
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let row = group.x;
    var norm = Norm(0.0, 1.0);
    if (p.kind & 255u) != 0u {
        norm = norm_of(row_of_values(row), p.kind & 255u, t);
    }
    for (var b = 0u; b < (p.d + 255u) / 256u; b++) {
        let first = 256u * b + 4u * t;
        let x = vec4<f32>(
            element(row, first, norm),
            element(row, first + 1u, norm),
            element(row, first + 2u, norm),
            element(row, first + 3u, norm),
        );
        let size = bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu);
        peaks[t] = max(max(size.x, size.y), max(size.z, size.w));
        workgroupBarrier();
        if p.out_f32 != NONE {
            store_floats(row, first, x);
        }
        if p.out_256 != NONE {
            store_256(row, b, t, x);
        }
        if p.out_32 != NONE {
            store_32(row, b, t, x);
        }
        workgroupBarrier();
    }
}
