// Heads divided by their length: `x = x·scale / √(Σ x² + eps)`. A workgroup has a head of a row.

struct Params {
    zero: u32,
    // Width of a head, and of a row.
    d: u32,
    d_row: u32,
    x_at: u32,
    eps: f32,
    scale: f32,
}

var<workgroup> lanes: array<f32, 16>;

fn total() -> f32 {
    var row: array<f32, 16>;
    for (var i = 0u; i < 16u; i++) {
        row[i] = lanes[i];
    }
    return sum_of_lanes(row);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let x = p.x_at + group.x * p.d_row + group.y * p.d;
    if t < 16u {
        var sum = 0.0;
        for (var i = t; i < p.d; i += 16u) {
            sum = add(sum, mul(values[x + i], values[x + i]));
        }
        lanes[t] = sum;
    }
    workgroupBarrier();
    let factor = div(p.scale, sqrt_of(add(total(), p.eps)));
    for (var i = t; i < p.d; i += 64u) {
        values[x + i] = mul(values[x + i], factor);
    }
}
