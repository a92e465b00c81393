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
    // Of products with experts: where their columns are listed, and how many columns share a row of activations.
    groups_at: u32,
    n_shared: u32,
}

// Columns of a workgroup from the first one on, and the first words of their matrix and of its bias. A column is a row
// of activations and of results: `columns/` says which.
struct Columns {
    first: u32,
    n: u32,
    w_at: u32,
    bias_at: u32,
}

fn finish(y: f32, row: u32, column: u32, bias_at: u32) {
    var v = y;
    if p.scale != 1.0 {
        v = mul(v, p.scale);
    }
    if bias_at != NONE {
        v = add(v, vector(bias_at + row));
    }
    let at = p.out_at + row_of_out(column) * p.d_out + row;
    if p.adds != 0u {
        v = add(values[at], mul(p.factor, v));
    }
    values[at] = v;
}

fn dot_of_four(a: vec4<u32>, b: vec4<u32>) -> i32 {
    return dot4I8Packed(a.x, b.x) + dot4I8Packed(a.y, b.y) + dot4I8Packed(a.z, b.z) + dot4I8Packed(a.w, b.w);
}
