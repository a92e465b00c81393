// One row of a K-quant times up to eight activation rows of Q8_256.
//
//     for 8 blocks at once: thread t has an eighth of block t / 8, and multiplies it with each column
//         isum, bias = sums of the eighths                    in integers
//         term = dx·(d·isum − dmin·bias)                      one thread for each block and column
//         out = out + term, in order of blocks                one thread for each column

struct Part {
    low: vec4<u32>,
    high: vec4<u32>,
    // Words of activations that the pairs of words are multiplied with, and what scales the products.
    at: vec4<u32>,
    scale: vec4<i32>,
    // Minima of both halves of sub-block `t`.
    min: vec2<i32>,
}

var<workgroup> parts: array<vec2<i32>, 512>;
var<workgroup> terms: array<f32, 64>;

fn dot_of_pair(codes: vec2<u32>, x: u32) -> i32 {
    return dot4I8Packed(codes.x, acts[x]) + dot4I8Packed(codes.y, acts[x + 1u]);
}

// Both minima times both sums of a word.
fn bias_of(min: vec2<i32>, sums: u32) -> i32 {
    let both = bitcast<i32>(sums);
    return min.x * ((both << 16u) >> 16u) + min.y * (both >> 16u);
}

fn dots(part: Part, x: u32) -> i32 {
    return part.scale.x * dot_of_pair(part.low.xy, x + part.at.x)
        + part.scale.y * dot_of_pair(part.low.zw, x + part.at.y)
        + part.scale.z * dot_of_pair(part.high.xy, x + part.at.z)
        + part.scale.w * dot_of_pair(part.high.zw, x + part.at.w);
}

// Codes of a row are followed by its scales, one a block, and by its sums of 16, eight words a block.
fn acts_of(column: u32, n_blocks: u32) -> u32 {
    return p.x_at + row_of_acts(column) * n_blocks * 73u;
}

fn multiply(w: u32, tile: Tile, n_blocks: u32, b: u32, t: u32) {
    let part = part_of_block(w, t & 7u);
    for (var c = 0u; c < tile.n; c++) {
        let x = acts_of(tile.first + c, n_blocks);
        let sums = acts[x + 65u * n_blocks + 8u * b + (t & 7u)];
        parts[64u * c + t] = vec2<i32>(dots(part, x + 64u * b), bias_of(part.min, sums));
    }
}

fn term_of(w: u32, column: u32, n_blocks: u32, b: u32, first: u32) -> f32 {
    var sums = vec2<i32>(0);
    for (var i = 0u; i < 8u; i++) {
        sums += parts[first + i];
    }
    let d = factors(w);
    let v = sub(mul(d.x, to_float(sums.x)), mul(d.y, to_float(sums.y)));
    let x = acts_of(column, n_blocks);
    return mul(bitcast<f32>(acts[x + 64u * n_blocks + b]), v);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let n_blocks = (p.d_in + 255u) / 256u;
    let tile = tile_of(group, 1u, COLUMNS, t);
    if tile.n == 0u {
        return;
    }
    let w = tile.w_at + tile.row * n_blocks * BLOCK_WORDS;
    var out = 0.0;
    for (var first = 0u; first < n_blocks; first += 8u) {
        let b = first + t / 8u;
        if b < n_blocks {
            multiply(w + b * BLOCK_WORDS, tile, n_blocks, b, t);
        }
        workgroupBarrier();
        let c = t / 8u;
        let block = first + (t & 7u);
        if c < tile.n && block < n_blocks {
            let of_block = 64u * c + 8u * (t & 7u);
            terms[t] = term_of(w + block * BLOCK_WORDS, tile.first + c, n_blocks, block, of_block);
        }
        workgroupBarrier();
        if t < tile.n {
            for (var i = 0u; i < min(8u, n_blocks - first); i++) {
                out = add(out, terms[8u * t + i]);
            }
        }
    }
    if t < tile.n {
        finish(out, tile.row, tile.first + t, tile);
    }
}
