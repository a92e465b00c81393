// Keys and values of 16-bit codes: scores and weighted sums in integers (`scores16.rs`, `values16.rs` of atta-kernels).
//
//     query ≈ scale_q·x;   score = ((Σ code·x)·scale_0 + (Σ code·x)·scale_1 + …)·(scale·scale_q)
//     w = e·scale, below 2^-100: 0;   S = min(262112 / g, 32639 / max w),  g = the largest sum of 32 weights
//     Σ e·v ≈ (Σ of the groups of 32 in turn, of Σ rne(w·S)·code) / S

// Scales of values are lifted by 2^64, so that no weight is subnormal: that, what takes it back, and 2^-100 lifted.
const LIFT: f32 = 18446744073709551616.0;
const LOWER: f32 = 5.421010862427522e-20;
const LEAST: f32 = 1.4551915228366852e-11;

var<workgroup> query: array<f32, 1024>;
var<workgroup> codes: array<u32, 512>;
var<workgroup> query_scale: f32;
var<workgroup> weight_codes: array<i32, 128>;

fn sum_of_query_squares(t: u32) -> f32 {
    if t < 16u {
        var sum = 0.0;
        for (var i = t; i < p.d_head; i += 16u) {
            sum = add(sum, mul(query[i], query[i]));
        }
        lanes[t] = sum;
    }
    workgroupBarrier();
    return total();
}

fn load_query(at: u32, t: u32) {
    var peak = 0u;
    for (var i = t; i < p.d_head; i += THREADS) {
        query[i] = values[at + i];
        peak = max(peak, bitcast<u32>(query[i]) & 0x7fffffffu);
    }
    let largest = largest_of_all(peak, t);
    let scale = key_scale(largest, sum_of_query_squares(t));
    let inverse = inverse_of(scale);
    for (var i = t; i < p.d_head / 2u; i += THREADS) {
        codes[i] = pair(encoded(query[2u * i], inverse), encoded(query[2u * i + 1u], inverse));
    }
    if t == 0u {
        query_scale = mul(p.scale, scale);
    }
    workgroupBarrier();
}

// The rows of a head in the block of a position: codes of all positions, then the scales of each section.
fn rows_in_block(row: Row, first: u32, head: u32, position: u32, n_sections: u32) -> u32 {
    return block_of(row, position) + first + head * p.block_len * (p.d_head / 2u + n_sections);
}

fn n_key_sections() -> u32 {
    return (p.d_head + KEY_SECTION - 1u) / KEY_SECTION;
}

fn dot_of_codes(key: u32, first: u32, end: u32) -> i32 {
    var sum = 0;
    for (var i = first; i < end; i++) {
        let a = codes[i];
        let b = kv[key + i];
        sum += first_of(a) * first_of(b) + second_of(a) * second_of(b);
    }
    return sum;
}

fn score_of(row: Row, head: u32, position: u32) -> f32 {
    let width = p.d_head / 2u;
    let inside = position % p.block_len;
    let rows = rows_in_block(row, p.k_at, head, position, n_key_sections());
    var score = 0.0;
    for (var j = 0u; j < n_key_sections(); j++) {
        let end = min(width, (j + 1u) * KEY_SECTION / 2u);
        let sum = dot_of_codes(rows + inside * width, j * KEY_SECTION / 2u, end);
        let scale = bitcast<f32>(kv[rows + (width + j) * p.block_len + inside]);
        let part = mul(to_float(sum), scale);
        if j == 0u {
            score = part;
        } else {
            score = add(score, part);
        }
    }
    return mul(score, query_scale);
}

// The largest sum of the weights of 32 positions: of each, sixteen lanes of two.
fn largest_group() -> f32 {
    var largest = 0.0;
    for (var g = 0u; g < CHUNK; g += 32u) {
        var sums: array<f32, 16>;
        for (var i = 0u; i < 16u; i++) {
            sums[i] = add(weights_of[g + i], weights_of[g + 16u + i]);
        }
        let sum = sum_of_lanes(sums);
        largest = select(largest, sum, sum > largest);
    }
    return largest;
}

// Turns the weights into codes and returns what a code stands for.
fn encode_weights(row: Row, head: u32, position: u32, t: u32) -> f32 {
    var w = 0.0;
    if sees(row, position) {
        let rows = rows_in_block(row, p.v_at, head, position, 1u);
        let scale = bitcast<f32>(kv[rows + (p.d_head / 2u) * p.block_len + position % p.block_len]);
        w = mul(weights_of[t], mul(scale, LIFT));
        w = select(w, 0.0, w < LEAST);
    }
    let peak = largest_of_all(bitcast<u32>(w) & 0x7fffffffu, t);
    weights_of[t] = w;
    weight_codes[t] = 0;
    workgroupBarrier();
    if peak == 0u || peak > INFINITE {
        return bitcast<f32>(peak ^ p.zero);
    }
    let by_group = div(262112.0, largest_group());
    let by_peak = div(32639.0, bitcast<f32>(peak));
    let s = select(by_peak, by_group, by_group < by_peak);
    weight_codes[t] = code16(mul(w, s));
    return mul(div(1.0, s), LOWER);
}

fn add_values(row: Row, head: u32, start: u32, out: u32, t: u32) {
    let ratio = encode_weights(row, head, start + t, t);
    workgroupBarrier();
    let width = p.d_head / 2u;
    for (var i = t; i < width; i += THREADS) {
        var sums = vec2<f32>(0.0);
        for (var g = 0u; g < CHUNK; g += 32u) {
            var both = vec2<i32>(0);
            for (var j = g; j < g + 32u; j++) {
                let code = weight_codes[j];
                if code != 0 {
                    let position = start + j;
                    let rows = rows_in_block(row, p.v_at, head, position, 1u);
                    let word = kv[rows + (position % p.block_len) * width + i];
                    both += vec2<i32>(code * first_of(word), code * second_of(word));
                }
            }
            sums = vec2<f32>(add(sums.x, to_float(both.x)), add(sums.y, to_float(both.y)));
        }
        acts[out + 2u * i] = bitcast<u32>(mul(sums.x, ratio));
        acts[out + 2u * i + 1u] = bitcast<u32>(mul(sums.y, ratio));
    }
}
