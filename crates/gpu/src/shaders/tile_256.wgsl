// A tile of a K-quant and Q8_256: integer sums over two steps of 128 weights, then the f32 steps of a block.
//
// A part of a block (`part_of_block`) is an eighth of it; four neighbours are a half, which is a step.

struct Part {
    low: vec4<u32>,
    high: vec4<u32>,
    at: vec4<u32>,
    scale: vec4<i32>,
    min: vec2<i32>,
}

// Of each row of a step: scales and minima of 16 weights, both factors. Of each column: sums of 16 codes, the scale;
// minima and sums two in a word.
var<workgroup> w_scales: array<i32, 256>;
var<workgroup> w_minima: array<u32, 128>;
var<workgroup> w_factors: array<vec2<f32>, 32>;
var<workgroup> x_sums: array<u32, 256>;
var<workgroup> x_scales: array<f32, 64>;

fn pair_of(both: vec2<i32>) -> u32 {
    return (bitcast<u32>(both.x) & 0xffffu) | (bitcast<u32>(both.y) << 16u);
}

fn dot_of_pairs(a: u32, b: u32) -> i32 {
    let x = vec2<i32>(bitcast<i32>(a << 16u), bitcast<i32>(a)) >> vec2<u32>(16u);
    let y = vec2<i32>(bitcast<i32>(b << 16u), bitcast<i32>(b)) >> vec2<u32>(16u);
    return x.x * y.x + x.y * y.y;
}

fn set_pair(row: u32, codes: vec2<u32>, at: u32, scale: i32) {
    let i = at & 31u;
    w_codes[32u * row + i] = codes.x;
    w_codes[32u * row + i + 1u] = codes.y;
    if (i & 2u) == 0u {
        w_scales[8u * row + i / 4u] = scale;
    }
}

// Loads a row of weights by four threads.
fn load_row(w: u32, step: u32, t: u32) {
    let row = t / 4u;
    let part = part_of_block(w, 4u * step + (t & 3u));
    set_pair(row, part.low.xy, part.at.x, part.scale.x);
    set_pair(row, part.low.zw, part.at.y, part.scale.y);
    set_pair(row, part.high.xy, part.at.z, part.scale.z);
    set_pair(row, part.high.zw, part.at.w, part.scale.w);
    w_minima[4u * row + (t & 3u)] = pair_of(part.min);
    if (t & 3u) == 0u {
        w_factors[row] = factors(w);
    }
}

// Loads the sums of a step and the scale of the block of each column.
fn load_sums(tile: Tile, n_blocks: u32, b: u32, step: u32, t: u32) {
    for (var i = t; i < TILE_COLUMNS * 4u; i += THREADS) {
        let x = acts_of(tile, i / 4u, n_blocks * 73u);
        x_sums[i] = acts[x + 65u * n_blocks + 8u * b + 4u * step + (i & 3u)];
        if (i & 3u) == 0u {
            x_scales[i / 4u] = bitcast<f32>(acts[x + 64u * n_blocks + b]);
        }
    }
}

// Σ scale·code·x and Σ min·Σx of one result in a step.
fn sums_of(row: u32, column: u32) -> vec2<i32> {
    var sum = 0;
    for (var s = 0u; s < 8u; s++) {
        let dot = dot_of_four(w_of(row, s), x_codes[64u * s + column]);
        sum += w_scales[8u * row + s] * dot;
    }
    var bias = 0;
    for (var s = 0u; s < 4u; s++) {
        bias += dot_of_pairs(w_minima[4u * row + s], x_sums[4u * column + s]);
    }
    return vec2<i32>(sum, bias);
}

fn term_of(sums: vec2<i32>, row: u32, column: u32) -> f32 {
    let d = w_factors[row];
    let v = sub(mul(d.x, to_float(sums.x)), mul(d.y, to_float(sums.y)));
    return mul(x_scales[column], v);
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let tile = tile_of(group, TILE_ROWS, TILE_COLUMNS, t);
    if tile.n == 0u {
        return;
    }
    let n_blocks = (p.d_in + 255u) / 256u;
    let row = min(tile.row + t / 4u, tile.n_out - 1u);
    let w = tile.w_at + row * n_blocks * BLOCK_WORDS;
    var results: array<f32, 16>;
    for (var b = 0u; b < n_blocks; b++) {
        var sums = array<vec2<i32>, 16>();
        for (var step = 0u; step < 2u; step++) {
            workgroupBarrier();
            load_row(w + b * BLOCK_WORDS, step, t);
            load_columns(tile, n_blocks * 73u, 64u * b + 32u * step, 64u * n_blocks, t);
            load_sums(tile, n_blocks, b, step, t);
            workgroupBarrier();
            for (var i = 0u; i < 16u; i++) {
                sums[i] += sums_of(row_of_result(i, t), column_of_result(i, t));
            }
        }
        for (var i = 0u; i < 16u; i++) {
            let term = term_of(sums[i], row_of_result(i, t), column_of_result(i, t));
            results[i] = add(results[i], term);
        }
    }
    store_results(results, tile, t);
}
