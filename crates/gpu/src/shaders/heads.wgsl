// Heads of queries, keys and values of a row: a norm, the rope, factors; then queries go back to the values, keys and
// values into the KV cache.
//
//     x = norm(x), rope(x)                        in this order, or the other
//     x = x·factor·power                          factor of the row, power of two of the channel
//     query: back;   key, value: stored as its type says, rotated before if rows of the type are
//
// A workgroup has one head of one row. What queries, keys and values differ in are words of the weights, a record each.

struct Params {
    zero: u32,
    records_at: u32,
    d_head: u32,
    block_len: u32,
    rope_at: u32,
    factors_at: u32,
    slots_at: u32,
    // Element types of keys and of values.
    keys: u32,
    values: u32,
    // The first element of the value in a key that is one; NONE: values are apart.
    value_from: u32,
}

fn elem_of(is_value: bool) -> u32 {
    return select(p.keys, p.values, is_value);
}

const RECORD_WORDS: u32 = 16u;
const QUERY: u32 = 0u;
const VALUE: u32 = 2u;
const NORM_FIRST: u32 = 1u;
const NORM_LAST: u32 = 2u;
const NORM_LAYER: u32 = 3u;

struct Record {
    role: u32,
    x_at: u32,
    n_heads: u32,
    norm: u32,
    norm_at: u32,
    eps: f32,
    d_rope: u32,
    pairs_are_neighbours: u32,
    powers_at: u32,
    // Heads with powers of their own, and heads that share them.
    n_powers: u32,
    group: u32,
    // First word of the rows of this layer in a block.
    stored_at: u32,
    // The largest power of two that divides the width of a head, where values are rotated; else 0.
    rotation: u32,
}

fn record_of(at: u32) -> Record {
    return Record(
        weights[at],
        weights[at + 1u],
        weights[at + 2u],
        weights[at + 3u],
        weights[at + 4u],
        vector(at + 5u),
        weights[at + 6u],
        weights[at + 7u],
        weights[at + 8u],
        weights[at + 9u],
        weights[at + 10u],
        weights[at + 11u],
        weights[at + 12u],
    );
}

fn normalize(record: Record, h: u32, t: u32) {
    let d = to_float(i32(p.d_head));
    var center = 0.0;
    var weight = record.norm_at;
    if record.norm == NORM_LAYER {
        center = div(sum_of_elements(p.d_head, t), d);
        weight += h * p.d_head;
    }
    let mean = div(sum_of_squares(0u, p.d_head, center, t), d);
    let scale = div(1.0, sqrt_of(add(mean, record.eps)));
    for (var i = t; i < p.d_head; i += THREADS) {
        let x = mul(sub(head[i], center), scale);
        if record.norm_at == NONE {
            head[i] = x;
        } else {
            head[i] = mul(x, vector(weight + i));
        }
    }
}

fn multiply(record: Record, row: u32, h: u32, t: u32) {
    let powers = record.powers_at + ((h / record.group) % max(record.n_powers, 1u)) * p.d_head;
    for (var i = t; i < p.d_head; i += THREADS) {
        if record.role == QUERY && p.factors_at != NONE {
            head[i] = mul(head[i], bitcast<f32>(tables[p.factors_at + row]));
        }
        if record.powers_at != NONE {
            head[i] = mul(head[i], vector(powers + i));
        }
    }
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let record = record_of(p.records_at + RECORD_WORDS * group.z);
    let row = group.x;
    let h = group.y;
    if h >= record.n_heads {
        return;
    }
    let x = record.x_at + (row * record.n_heads + h) * p.d_head;
    for (var i = t; i < p.d_head; i += THREADS) {
        head[i] = values[x + i];
    }
    if record.norm == NORM_FIRST || record.norm == NORM_LAYER {
        normalize(record, h, t);
    }
    if record.d_rope != 0u {
        turn(p.rope_at + row * record.d_rope, record.d_rope, record.pairs_are_neighbours != 0u, t);
    }
    if record.norm == NORM_LAST {
        normalize(record, h, t);
    }
    multiply(record, row, h, t);
    if record.role == QUERY {
        for (var i = t; i < p.d_head; i += THREADS) {
            values[x + i] = head[i];
        }
        return;
    }
    if record.rotation != 0u {
        rotate_head(p.d_head, record.rotation, t);
    }
    let slot = p.slots_at + 2u * row;
    let rows = tables[slot] + record.stored_at + h * head_words(record.role == VALUE);
    store_head(rows, tables[slot + 1u], record.role == VALUE, t);
}
