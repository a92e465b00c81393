// A tile of a format with groups of 32 and Q8_32: four groups a step, each with its f32 steps.

struct Codes {
    low: vec4<u32>,
    high: vec4<u32>,
}

// Factors of the groups of a step, of each row; scales of each column.
var<workgroup> w_factors: array<vec2<f32>, 128>;
var<workgroup> x_scales: array<f32, 256>;

// Loads a row of weights by four threads, a group each; groups behind the last one are zeros.
fn load_row(w: u32, n_groups: u32, g: u32, t: u32) {
    var codes = Codes(vec4<u32>(0u), vec4<u32>(0u));
    var d = vec2<f32>(0.0);
    if g < n_groups {
        codes = codes_of(w + GROUP_WORDS * g);
        d = factors_of(w + GROUP_WORDS * n_groups, g);
    }
    for (var i = 0u; i < 4u; i++) {
        w_codes[8u * t + i] = codes.low[i];
        w_codes[8u * t + 4u + i] = codes.high[i];
    }
    w_factors[t] = d;
}

fn load_scales(tile: Tile, n_blocks: u32, g: u32, t: u32) {
    for (var i = t; i < TILE_COLUMNS * 4u; i += THREADS) {
        let x = acts_of(tile, i / 4u, n_blocks * 72u) + 64u * n_blocks;
        x_scales[i] = bitcast<f32>(acts[x + min(g + (i & 3u), 8u * n_blocks - 1u)]);
    }
}

// Group `g` of a step of one result.
fn terms_at(g: u32, row: u32, column: u32) -> vec2<f32> {
    let w = Codes(w_of(row, 2u * g), w_of(row, 2u * g + 1u));
    let x = Codes(x_codes[128u * g + column], x_codes[128u * g + 64u + column]);
    return terms_of(w, x, w_factors[4u * row + g], x_scales[4u * column + g]);
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let tile = tile_of(group, TILE_ROWS, TILE_COLUMNS, t);
    if tile.n == 0u {
        return;
    }
    let n_groups = groups_of(p.d_in);
    let n_blocks = (p.d_in + 255u) / 256u;
    let row = min(tile.row + t / 4u, tile.n_out - 1u);
    let w = tile.w_at + row * (n_groups * GROUP_WORDS + factor_words(n_groups));
    var results: array<f32, 16>;
    for (var g = 0u; g < n_groups; g += 4u) {
        workgroupBarrier();
        load_row(w, n_groups, g + (t & 3u), t);
        load_columns(tile, n_blocks * 72u, 8u * g, 64u * n_blocks, t);
        load_scales(tile, n_blocks, g, t);
        workgroupBarrier();
        for (var i = 0u; i < 16u; i++) {
            for (var j = 0u; j < 4u; j++) {
                let terms = terms_at(j, row_of_result(i, t), column_of_result(i, t));
                results[i] = with_terms(results[i], terms);
            }
        }
    }
    store_results(results, tile, t);
}
