// What all products with weights share: which rows and columns a workgroup has. A column is a row of activations and of
// results; parameters, and what becomes of a product, are in `columns/`.

const COLUMNS: u32 = 8u;

// Rows of a matrix from `row` on, and columns from `first` on; no columns where there is nothing to do. First words of
// the matrix, of its bias, and of the results, their width, and what multiplies the weights.
struct Tile {
    row: u32,
    n_out: u32,
    first: u32,
    n: u32,
    w_at: u32,
    bias_at: u32,
    out_at: u32,
    d_out: u32,
    scale: f32,
}

fn dot_of_four(a: vec4<u32>, b: vec4<u32>) -> i32 {
    return dot4I8Packed(a.x, b.x) + dot4I8Packed(a.y, b.y) + dot4I8Packed(a.z, b.z) + dot4I8Packed(a.w, b.w);
}
