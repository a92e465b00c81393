// What adapters add to rows: `x = x + s·y`, with a factor of the row among the tables; NONE: the row stays.

struct Params {
    zero: u32,
    d: u32,
    x_at: u32,
    y_at: u32,
    // Factors, and how many neighbouring rows share one.
    factors_at: u32,
    n_shared: u32,
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let row = group.x;
    let factor = tables[p.factors_at + row / p.n_shared];
    if factor == NONE {
        return;
    }
    for (var i = t; i < p.d; i += 64u) {
        let at = p.x_at + row * p.d + i;
        values[at] = add(values[at], mul(bitcast<f32>(factor), values[p.y_at + row * p.d + i]));
    }
}
