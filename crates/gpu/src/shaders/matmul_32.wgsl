// One row of a format with groups of 32 times up to eight activation rows of Q8_32.
//
//     for 64 groups at once: thread t has group t, and for each column its terms       `steps/`, isum in integers
//     out = out + terms, in order of groups                   one thread for each column

struct Codes {
    low: vec4<u32>,
    high: vec4<u32>,
}

var<workgroup> terms: array<vec2<f32>, 512>;

fn codes_of_acts(x: u32) -> Codes {
    return Codes(
        vec4<u32>(acts[x], acts[x + 1u], acts[x + 2u], acts[x + 3u]),
        vec4<u32>(acts[x + 4u], acts[x + 5u], acts[x + 6u], acts[x + 7u]),
    );
}

// Group `g` of a row whose codes are followed by their factors.
fn multiply(w: u32, tile: Tile, n_groups: u32, g: u32, t: u32) {
    let codes = codes_of(w + GROUP_WORDS * g);
    let d = factors_of(w + GROUP_WORDS * n_groups, g);
    let n_blocks = (p.d_in + 255u) / 256u;
    for (var c = 0u; c < tile.n; c++) {
        let x = p.x_at + row_of_acts(tile.first + c) * n_blocks * 72u;
        let dx = bitcast<f32>(acts[x + 64u * n_blocks + g]);
        terms[64u * c + t] = terms_of(codes, codes_of_acts(x + 8u * g), d, dx);
    }
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let n_groups = groups_of(p.d_in);
    let tile = tile_of(group, 1u, COLUMNS, t);
    if tile.n == 0u {
        return;
    }
    let w = tile.w_at + tile.row * (n_groups * GROUP_WORDS + factor_words(n_groups));
    var out = 0.0;
    for (var first = 0u; first < n_groups; first += 64u) {
        if first + t < n_groups {
            multiply(w, tile, n_groups, first + t, t);
        }
        workgroupBarrier();
        if t < tile.n {
            for (var i = 0u; i < min(64u, n_groups - first); i++) {
                out = with_terms(out, terms[64u * t + i]);
            }
        }
        workgroupBarrier();
    }
    if t < tile.n {
        finish(out, tile.row, tile.first + t, tile);
    }
}
