// The transposed matrices of heads times rows of values: `y_h = W_hᵀ x_h`, matrices of f32, `[heads, d_in, d_out]`.
//
//     y_j = 0 + x_0·w_0j + x_1·w_1j + …           in this order
//
// A workgroup has 64 columns of a head of a row.

struct Params {
    zero: u32,
    w_at: u32,
    d_in: u32,
    d_out: u32,
    // First words, and those from row to row and from head to head.
    x_at: u32,
    x_row: u32,
    x_head: u32,
    out_at: u32,
    out_row: u32,
    out_head: u32,
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let j = 64u * group.z + t;
    if j >= p.d_out {
        return;
    }
    let w = p.w_at + group.y * p.d_in * p.d_out + j;
    let x = p.x_at + group.x * p.x_row + group.y * p.x_head;
    var sum = 0.0;
    for (var i = 0u; i < p.d_in; i++) {
        sum = add(sum, mul(values[x + i], vector(w + i * p.d_out)));
    }
    values[p.out_at + group.x * p.out_row + group.y * p.out_head + j] = sum;
}
