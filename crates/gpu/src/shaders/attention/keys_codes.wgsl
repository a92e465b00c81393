// Keys of 16-bit codes: scores in integers (`scores16.rs` of atta-kernels).
//
//     query ≈ scale_q·x;   score = ((Σ code·x)·scale_0 + (Σ code·x)·scale_1 + …)·(scale·scale_q)

var<workgroup> query: array<f32, 1024>;
var<workgroup> codes: array<u32, 512>;
var<workgroup> query_scale: f32;

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
    let rows = code_rows(row, p.k_at, head, position, n_key_sections());
    var score = 0.0;
    for (var j = 0u; j < n_key_sections(); j++) {
        let section = key_section(j);
        let sum = dot_of_codes(rows + inside * width, section.x / 2u, section.y / 2u);
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
