// Tiles of products for many activation rows: 32 rows of weights times 64 columns, in steps of 128 weights whose codes
// are in the memory of the workgroup. A thread has 4 rows and 4 columns of the results: rows from 4·(t / 16) on, columns
// t % 16 + 16·j, so that neighbours read neighbours.

const TILE_ROWS: u32 = 32u;
const TILE_COLUMNS: u32 = 64u;
const THREADS: u32 = 128u;

// Words, because several threads write those of one vector.
var<workgroup> w_codes: array<u32, 1024>;
var<workgroup> x_codes: array<vec4<u32>, 512>;

// Four words of the codes of a row of the tile.
fn w_of(row: u32, i: u32) -> vec4<u32> {
    let at = 32u * row + 4u * i;
    return vec4<u32>(w_codes[at], w_codes[at + 1u], w_codes[at + 2u], w_codes[at + 3u]);
}

// The activations of a column; of the last one, if there are fewer.
fn acts_of(tile: Tile, i: u32, stride: u32) -> u32 {
    return p.x_at + row_of_acts(tile.first + min(i, tile.n - 1u)) * stride;
}

// Loads the codes of a step of all columns: 32 words of each, zeros behind the last word of a row of `n_words`.
fn load_columns(tile: Tile, stride: u32, word: u32, n_words: u32, t: u32) {
    for (var i = t; i < TILE_COLUMNS * 8u; i += THREADS) {
        let at = word + 4u * (i & 7u);
        let x = acts_of(tile, i / 8u, stride) + at;
        var codes = vec4<u32>(0u);
        if at < n_words {
            codes = vec4<u32>(acts[x], acts[x + 1u], acts[x + 2u], acts[x + 3u]);
        }
        x_codes[64u * (i & 7u) + i / 8u] = codes;
    }
}

fn row_of_result(i: u32, t: u32) -> u32 {
    return 4u * (t / 16u) + i / 4u;
}

fn column_of_result(i: u32, t: u32) -> u32 {
    return (t & 15u) + 16u * (i & 3u);
}

// Stores the results of a thread.
fn store_results(results: array<f32, 16>, tile: Tile, t: u32) {
    var all = results;
    for (var i = 0u; i < 16u; i++) {
        let row = tile.row + row_of_result(i, t);
        let column = column_of_result(i, t);
        if row < tile.n_out && column < tile.n {
            finish(all[i], row, tile.first + column, tile);
        }
    }
}
