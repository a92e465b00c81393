// One row of a format with groups of 32 times up to eight activation rows of Q8_32.
//
//     for 64 groups at once: thread t has group t, and for each column
//         term = (d·dx)·isum                                  isum in integers
//     out = out + term, in order of groups                    one thread for each column

struct Codes {
    low: vec4<u32>,
    high: vec4<u32>,
}

var<workgroup> terms: array<f32, 512>;

fn dot_of_four(codes: vec4<u32>, x: u32) -> i32 {
    return dot4I8Packed(codes.x, acts[x]) + dot4I8Packed(codes.y, acts[x + 1u])
        + dot4I8Packed(codes.z, acts[x + 2u]) + dot4I8Packed(codes.w, acts[x + 3u]);
}

// Group `g` of a row whose codes are followed by their scales.
fn multiply(w: u32, columns: Columns, n_groups: u32, g: u32, t: u32) {
    let codes = codes_of(w + GROUP_WORDS * g);
    let both = weights[w + GROUP_WORDS * n_groups + (g >> 1u)];
    let d = from_f16((both >> (16u * (g & 1u))) & 0xffffu);
    let n_blocks = (p.d_in + 255u) / 256u;
    for (var c = 0u; c < columns.n; c++) {
        let x = p.x_at + (columns.first + c) * n_blocks * 72u;
        let dx = bitcast<f32>(acts[x + 64u * n_blocks + g]);
        let sum = dot_of_four(codes.low, x + 8u * g) + dot_of_four(codes.high, x + 8u * g + 4u);
        terms[64u * c + t] = mul(mul(d, dx), to_float(sum));
    }
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let row = group.y * 65535u + group.x;
    if row >= p.n_out {
        return;
    }
    let n_groups = p.d_in / 32u;
    let columns = columns_of(group);
    let w = p.w_at + row * (n_groups * GROUP_WORDS + (n_groups + 1u) / 2u);
    var out = 0.0;
    for (var first = 0u; first < n_groups; first += 64u) {
        if first + t < n_groups {
            multiply(w, columns, n_groups, first + t, t);
        }
        workgroupBarrier();
        if t < columns.n {
            for (var i = 0u; i < min(64u, n_groups - first); i++) {
                out = add(out, terms[64u * t + i]);
            }
        }
        workgroupBarrier();
    }
    if t < columns.n {
        finish(out, row, columns.first + t);
    }
}
