// Norms of rows of values, by a workgroup of 64 threads. Parameters have `d`, `weight_at`,
// `bias_at` and `eps`. A shader that includes this has `input`, the element of a row.

const RMS: u32 = 1u;
const LAYER: u32 = 2u;

var<workgroup> lanes: array<f32, 16>;

// What a norm subtracts and multiplies.
struct Norm {
    center: f32,
    scale: f32,
}

fn total() -> f32 {
    var row: array<f32, 16>;
    for (var i = 0u; i < 16u; i++) {
        row[i] = lanes[i];
    }
    return sum_of_lanes(row);
}

fn sum_of_inputs(row: u32, lane: u32) -> f32 {
    var sum = 0.0;
    for (var i = lane; i < p.d; i += 16u) {
        sum = add(sum, input(row, i));
    }
    return sum;
}

fn sum_of_squares(row: u32, center: f32, lane: u32) -> f32 {
    var sum = 0.0;
    for (var i = lane; i < p.d; i += 16u) {
        let x = sub(input(row, i), center);
        sum = add(sum, mul(x, x));
    }
    return sum;
}

fn mean_of(row: u32, t: u32) -> f32 {
    if t < 16u {
        lanes[t] = sum_of_inputs(row, t);
    }
    workgroupBarrier();
    let sum = total();
    workgroupBarrier();
    return div(sum, to_float(i32(p.d)));
}

// All threads call it.
fn norm_of(row: u32, kind: u32, t: u32) -> Norm {
    var center = 0.0;
    if kind == LAYER {
        center = mean_of(row, t);
    }
    if t < 16u {
        lanes[t] = sum_of_squares(row, center, t);
    }
    workgroupBarrier();
    let variance = div(total(), to_float(i32(p.d)));
    return Norm(center, div(1.0, sqrt_of(add(variance, p.eps))));
}

fn normed(x: f32, i: u32, norm: Norm) -> f32 {
    let y = mul(mul(sub(x, norm.center), norm.scale), vector(p.weight_at + i));
    if p.bias_at == NONE {
        return y;
    }
    return add(y, vector(p.bias_at + i));
}
