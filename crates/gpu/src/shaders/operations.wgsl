// Single operations of exact floats, for the self-test: of three arrays of words into a fourth.

struct Params {
    zero: u32,
    kind: u32,
    n: u32,
}

fn result_of(a: u32, b: u32, c: u32) -> u32 {
    let x = bitcast<f32>(a ^ p.zero);
    let y = bitcast<f32>(b ^ p.zero);
    let z = bitcast<f32>(c ^ p.zero);
    switch p.kind {
        case 0u: { return bitcast<u32>(div(x, y)); }
        case 1u: { return bitcast<u32>(sqrt_of(x)); }
        case 2u: { return bitcast<u32>(to_float(bitcast<i32>(a))); }
        case 3u: { return bitcast<u32>(from_f16(a)); }
        case 4u: { return bitcast<u32>(add(mul(x, y), z)); }
        case 5u: { return bitcast<u32>(sub(add(x, y), z)); }
        case 6u: { return bitcast<u32>(nearest(x)); }
        case 7u: { return bitcast<u32>(exp_of(x)); }
        case 8u: { return bitcast<u32>(tanh_of(x)); }
        case 9u: { return bitcast<u32>(sigmoid(x)); }
        default: { return bitcast<u32>(erf_of(x)); }
    }
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let i = 64u * group.x + t;
    if i < p.n {
        acts[3u * p.n + i] = result_of(acts[i], acts[p.n + i], acts[2u * p.n + i]);
    }
}
