// One matrix, or those of experts, of one shape: `y = (W x)·scale + bias`, then `out = y` or `out = out + factor·y`.

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
    // Of products with experts: where their columns are listed, and how many columns share a row of activations; of those
    // with matrices of heads what `heads.wgsl` says.
    groups_at: u32,
    n_shared: u32,
}

// Of a workgroup with `rows` rows; the columns are added.
fn rows_of(group: vec3<u32>, rows: u32) -> Tile {
    let row = rows * (group.y * 65535u + group.x);
    return Tile(row, p.n_out, 0u, 0u, p.w_at, p.bias_at, p.out_at, p.d_out, p.scale);
}

fn finish(y: f32, row: u32, column: u32, tile: Tile) {
    var v = y;
    if tile.scale != 1.0 {
        v = mul(v, tile.scale);
    }
    if tile.bias_at != NONE {
        v = add(v, vector(tile.bias_at + row));
    }
    let at = tile.out_at + row_of_out(column) * tile.d_out + row;
    if p.adds != 0u {
        v = add(values[at], mul(p.factor, v));
    }
    values[at] = v;
}
