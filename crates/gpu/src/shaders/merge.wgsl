// The partial results of the chunks that a row sees, merged in order of position, for one head.
//
//     m' = max(m, m_c),  a = exp(m − m'),  b = exp(m_c − m')
//     n = n·a + n_c·b,  o = o·a + o_c·b
//     sink: one more chunk without values;  out = o / n, rotated back, times powers of two

struct Params {
    zero: u32,
    n_heads: u32,
    d_head: u32,
    rows_at: u32,
    partials_at: u32,
    n_chunks: u32,
    sinks_at: u32,
    out_at: u32,
    rotation: u32,
    powers_at: u32,
    n_powers: u32,
    group: u32,
}

const CHUNK: u32 = 128u;

struct Peak {
    m: f32,
    n: f32,
    has: bool,
}

// Adds a chunk to the head, or makes it the head.
fn with_chunk(before: Peak, chunk: u32, t: u32) -> Peak {
    let m = bitcast<f32>(acts[chunk]);
    let n = bitcast<f32>(acts[chunk + 1u]);
    var after = Peak(m, n, true);
    var a = 0.0;
    var b = 1.0;
    if before.has {
        after.m = select(before.m, m, m > before.m);
        a = exp_weight(sub(before.m, after.m));
        b = exp_weight(sub(m, after.m));
        after.n = add(mul(before.n, a), mul(n, b));
    }
    for (var i = t; i < p.d_head; i += THREADS) {
        let x = bitcast<f32>(acts[chunk + 2u + i]);
        if before.has {
            head[i] = add(mul(head[i], a), mul(x, b));
        } else {
            head[i] = x;
        }
    }
    return after;
}

fn scale_head(factor: f32, t: u32) {
    for (var i = t; i < p.d_head; i += THREADS) {
        head[i] = mul(head[i], factor);
    }
}

fn with_sink(before: Peak, h: u32, t: u32) -> f32 {
    if p.sinks_at == NONE {
        return before.n;
    }
    let sink = vector(p.sinks_at + h);
    let m = select(before.m, sink, sink > before.m);
    let a = exp_weight(sub(before.m, m));
    scale_head(a, t);
    return add(mul(before.n, a), exp_weight(sub(sink, m)));
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let row = group.x;
    let h = group.y;
    let first = tables[p.rows_at + 4u * row] / CHUNK;
    let last = tables[p.rows_at + 4u * row + 1u] / CHUNK;
    let partials = p.partials_at + (row * p.n_heads + h) * p.n_chunks * (2u + p.d_head);
    var peak = Peak(0.0, 0.0, false);
    for (var c = first; c <= last; c++) {
        peak = with_chunk(peak, partials + c * (2u + p.d_head), t);
    }
    let n = with_sink(peak, h, t);
    scale_head(div(1.0, n), t);
    if p.rotation != 0u {
        rotate_head(p.d_head, p.rotation, t);
    }
    let powers = p.powers_at + ((h / p.group) % max(p.n_powers, 1u)) * p.d_head;
    for (var i = t; i < p.d_head; i += THREADS) {
        var x = head[i];
        if p.powers_at != NONE {
            x = mul(x, vector(powers + i));
        }
        values[p.out_at + (row * p.n_heads + h) * p.d_head + i] = x;
    }
}
