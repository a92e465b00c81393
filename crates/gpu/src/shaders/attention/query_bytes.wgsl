// Queries for keys of 8 and 4 bits: rotated as the keys are, then int8 with one scale for the head (`scores.rs` of
// atta-kernels).

var<workgroup> query: array<f32, 1024>;
var<workgroup> codes: array<u32, 256>;
// Of each group of 32 codes.
var<workgroup> code_sums: array<i32, 32>;
var<workgroup> query_scale: f32;

// Blocks of the largest power of two that divides the width, times a Hadamard matrix; all threads call it.
fn rotate_query(t: u32) {
    let n = p.d_head & (~p.d_head + 1u);
    for (var reach = 1u; reach < n; reach = reach << 1u) {
        workgroupBarrier();
        for (var i = t; i < p.d_head / 2u; i += THREADS) {
            let low = ((i & ~(reach - 1u)) << 1u) | (i & (reach - 1u));
            let a = query[low];
            let b = query[low + reach];
            query[low] = add(a, b);
            query[low + reach] = sub(a, b);
        }
    }
    workgroupBarrier();
    let factor = div(1.0, sqrt_of(to_float(i32(n))));
    for (var i = t; i < p.d_head; i += THREADS) {
        query[i] = mul(query[i], factor);
    }
}

fn query_code(i: u32, inverse: f32) -> i32 {
    return code_within(mul(query[i], inverse), -127.0, 127.0);
}

fn load_query(at: u32, t: u32) {
    for (var i = t; i < p.d_head; i += THREADS) {
        query[i] = values[at + i];
    }
    rotate_query(t);
    var peak = 0u;
    for (var i = t; i < p.d_head; i += THREADS) {
        peak = max(peak, bitcast<u32>(query[i]) & 0x7fffffffu);
    }
    let largest = largest_of_all(peak, t);
    let scale = select(div(bitcast<f32>(largest), 127.0), 0.0, largest < LEAST_QUERY);
    let inverse = inverse_of(scale);
    for (var i = t; i < p.d_head / 4u; i += THREADS) {
        let first = 4u * i;
        codes[i] = packed_bytes(vec4<i32>(
            query_code(first, inverse),
            query_code(first + 1u, inverse),
            query_code(first + 2u, inverse),
            query_code(first + 3u, inverse),
        ));
    }
    if t == 0u {
        query_scale = scale;
    }
    workgroupBarrier();
    sum_codes(t);
    workgroupBarrier();
}

fn sum_codes(t: u32) {
    if t * NIBBLE_GROUP < p.d_head {
        var sum = 0;
        for (var i = 0u; i < group_len(p.d_head, t) / 4u; i++) {
            sum += dot4I8Packed(codes[8u * t + i], 0x01010101u);
        }
        code_sums[t] = sum;
    }
}
