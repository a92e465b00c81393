// Up to three matrices of one width that read the same activations, such as those of queries, keys and values: `y = W x +
// bias`. The rows of each begin at a multiple of those of the largest tile.

struct Params {
    zero: u32,
    d_in: u32,
    n_rows: u32,
    x_at: u32,
    // Of each matrix its rows, and the first words of weights, bias and results.
    n_0: u32,
    w_0: u32,
    bias_0: u32,
    out_0: u32,
    n_1: u32,
    w_1: u32,
    bias_1: u32,
    out_1: u32,
    n_2: u32,
    w_2: u32,
    bias_2: u32,
    out_2: u32,
}

const ROWS_OF_TILES: u32 = 32u;

fn whole(n: u32) -> u32 {
    return (n + ROWS_OF_TILES - 1u) / ROWS_OF_TILES * ROWS_OF_TILES;
}

fn rows_of(group: vec3<u32>, rows: u32) -> Tile {
    let row = rows * (group.y * 65535u + group.x);
    let second = whole(p.n_0);
    let third = second + whole(p.n_1);
    if row < second {
        return Tile(row, p.n_0, 0u, 0u, p.w_0, p.bias_0, p.out_0, p.n_0, 1.0);
    }
    if row < third {
        return Tile(row - second, p.n_1, 0u, 0u, p.w_1, p.bias_1, p.out_1, p.n_1, 1.0);
    }
    return Tile(row - third, p.n_2, 0u, 0u, p.w_2, p.bias_2, p.out_2, p.n_2, 1.0);
}

fn finish(y: f32, row: u32, column: u32, tile: Tile) {
    var v = y;
    if tile.bias_at != NONE {
        v = add(v, vector(tile.bias_at + row));
    }
    values[tile.out_at + column * tile.d_out + row] = v;
}
