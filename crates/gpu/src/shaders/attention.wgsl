// Softmax attention of one head of a row over one chunk of 128 absolute positions: a partial result.
//
//     s = cap(score) − slope·distance             scores: `attention/keys_*`, sums of values: `attention/values_*`
//     m = max s,  e = exp(s − m),  n = Σ e        sums in sixteen lanes
//     partial = m, n, Σ e·v
//
// A thread has a position, then some elements of the values. Keys and values of positions that the row does not see are
// not read: their blocks may not exist.

struct Params {
    zero: u32,
    q_at: u32,
    n_heads: u32,
    n_kv_heads: u32,
    d_head: u32,
    rows_at: u32,
    block_len: u32,
    k_at: u32,
    v_at: u32,
    partials_at: u32,
    n_chunks: u32,
    slopes_at: u32,
    scale: f32,
    // 0: none.
    softcap: f32,
    block_words: u32,
    // The first element of the value in a key that is one; NONE: values are apart.
    value_from: u32,
}

const CHUNK: u32 = 128u;
const THREADS: u32 = 128u;

// What a row sees, and where its block table begins.
struct Row {
    first: u32,
    last: u32,
    position: u32,
    table: u32,
}

var<workgroup> lanes: array<f32, 16>;
var<workgroup> peaks: array<u32, 128>;
var<workgroup> weights_of: array<f32, 128>;

fn row_of(row: u32) -> Row {
    let at = p.rows_at + 4u * row;
    return Row(tables[at], tables[at + 1u], tables[at + 2u], tables[at + 3u]);
}

// The first word of the block that has a position.
fn block_of(row: Row, position: u32) -> u32 {
    return tables[row.table + position / p.block_len] * p.block_words;
}

// The first word of a row of f32.
fn float_row(row: Row, first: u32, head: u32, position: u32) -> u32 {
    return block_of(row, position) + first + (head * p.block_len + position % p.block_len) * p.d_head;
}

// The rows of a head in the block of a position: codes of all positions, then the scales of each section.
fn code_rows(row: Row, first: u32, head: u32, position: u32, n_sections: u32) -> u32 {
    return block_of(row, position) + first + head * p.block_len * (p.d_head / 2u + n_sections);
}

fn sees(row: Row, position: u32) -> bool {
    return row.first <= position && position <= row.last;
}

fn total() -> f32 {
    var row: array<f32, 16>;
    for (var i = 0u; i < 16u; i++) {
        row[i] = lanes[i];
    }
    return sum_of_lanes(row);
}

// Sixteen lanes of the weights of some positions; all threads call it.
fn sum_of_weights(t: u32) -> f32 {
    workgroupBarrier();
    if t < 16u {
        var sum = 0.0;
        for (var i = t; i < CHUNK; i += 16u) {
            sum = add(sum, weights_of[i]);
        }
        lanes[t] = sum;
    }
    workgroupBarrier();
    return total();
}

// Numbers in the order of unsigned integers; 0 is below all.
fn ordered(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    return select(bits | 0x80000000u, ~bits, (bits & 0x80000000u) != 0u);
}

fn from_ordered(order: u32) -> f32 {
    return bitcast<f32>(select(~order, order & 0x7fffffffu, (order & 0x80000000u) != 0u));
}

// The largest of all threads' numbers; all threads call it.
fn largest_of_all(own: u32, t: u32) -> u32 {
    workgroupBarrier();
    peaks[t] = own;
    workgroupBarrier();
    var largest = own;
    for (var i = 0u; i < THREADS; i++) {
        largest = max(largest, peaks[i]);
    }
    return largest;
}

fn adjusted(score: f32, row: Row, h: u32, position: u32) -> f32 {
    var s = score;
    if p.softcap != 0.0 {
        s = mul(p.softcap, tanh_of(div(s, p.softcap)));
    }
    if p.slopes_at != NONE {
        let distance = max(row.position, position) - min(row.position, position);
        s = sub(s, mul(vector(p.slopes_at + h), to_float(i32(distance))));
    }
    return s;
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let row = row_of(group.x);
    let h = group.y;
    let start = CHUNK * group.z;
    if start > row.last || start + CHUNK <= row.first {
        return;
    }
    let head = h / (p.n_heads / p.n_kv_heads);
    load_query(p.q_at + (group.x * p.n_heads + h) * p.d_head, t);
    let is_seen = sees(row, start + t);
    var s = 0.0;
    if is_seen {
        s = adjusted(score_of(row, head, start + t), row, h, start + t);
    }
    let largest = largest_of_all(select(0u, ordered(s), is_seen), t);
    let m = from_ordered(largest);
    weights_of[t] = 0.0;
    if is_seen {
        weights_of[t] = exp_weight(sub(s, m));
    }
    let n = sum_of_weights(t);
    let partial = p.partials_at + ((group.x * p.n_heads + h) * p.n_chunks + group.z) * (2u + p.d_head);
    if t == 0u {
        acts[partial] = bitcast<u32>(m);
        acts[partial + 1u] = bitcast<u32>(n);
    }
    add_values(row, head, start, partial + 2u, t);
}
