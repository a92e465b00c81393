// What all products with weights share: their parameters, which rows and columns a workgroup has, and what becomes of a
// product: `y = (W x)·scale + bias`, then `out = y` or `out = out + factor·y`.

const COLUMNS: u32 = 8u;

struct Params {
    zero: u32,
    w_at: u32,
    n_out: u32,
    d_in: u32,
    n_rows: u32,
    x_at: u32,
    out_at: u32,
    d_out: u32,
    bias_at: u32,
    scale: f32,
    adds: u32,
    factor: f32,
}

// Columns of this workgroup, those of activation rows from the first one on.
struct Columns {
    first: u32,
    n: u32,
}

fn columns_of(group: vec3<u32>) -> Columns {
    let first = COLUMNS * group.z;
    return Columns(first, min(COLUMNS, p.n_rows - first));
}

fn finish(y: f32, row: u32, column: u32) {
    var v = y;
    if p.scale != 1.0 {
        v = mul(v, p.scale);
    }
    if p.bias_at != NONE {
        v = add(v, vector(p.bias_at + row));
    }
    let at = p.out_at + column * p.d_out + row;
    if p.adds != 0u {
        v = add(values[at], mul(p.factor, v));
    }
    values[at] = v;
}

fn dot_of_four(a: vec4<u32>, b: vec4<u32>) -> i32 {
    return dot4I8Packed(a.x, b.x) + dot4I8Packed(a.y, b.y) + dot4I8Packed(a.z, b.z) + dot4I8Packed(a.w, b.w);
}
