// Linear attention: the states of heads, taken through the positions of runs (`scan.rs` of atta-kernels).
//
//     u = gain·(v − decay·(S k))     delta rule;  gain·v  without it
//     S = decay·S + u kᵀ,  y = S q + skip·v
//
// A workgroup has four rows of a head's state, sixteen lanes each, a thread a lane; rows do not depend on each other.
// A shader that includes this has IS_DELTA, and decays (`decay/`).

struct Params {
    zero: u32,
    // Queries, keys and values of row 0, the width of a row of queries or keys, and that of a row of values.
    q_at: u32,
    k_at: u32,
    v_at: u32,
    d_row: u32,
    v_row: u32,
    // Of decays, or their rates.
    decays_at: u32,
    gains_at: u32,
    d_key: u32,
    d_value: u32,
    n_heads: u32,
    // Heads that share a key, neighbours; with the highest bit the number of keys, which heads have in turn.
    sharing: u32,
    skip_at: u32,
    // First float of the states of heads in a block.
    state_at: u32,
    // Of each run: first words of the blocks before and behind it, first word and number of its rows.
    runs_at: u32,
    out_at: u32,
}

const IN_TURN: u32 = 0x80000000u;

// A row of a head's state at a position: its number among those of all heads, and first words of key and query.
struct Here {
    row: u32,
    head: u32,
    own: u32,
    k: u32,
    q: u32,
}

var<workgroup> lanes: array<f32, 64>;
var<private> state: array<f32, 16>;

// The sum of the lanes of a row; all threads call it.
fn total(own: f32, t: u32) -> f32 {
    lanes[t] = own;
    workgroupBarrier();
    var row: array<f32, 16>;
    for (var i = 0u; i < 16u; i++) {
        row[i] = lanes[(t & 48u) + i];
    }
    let sum = sum_of_lanes(row);
    workgroupBarrier();
    return sum;
}

fn key_of(head: u32) -> u32 {
    if (p.sharing & IN_TURN) != 0u {
        return head % (p.sharing & ~IN_TURN);
    }
    return head / p.sharing;
}

fn load_state(block: u32, at: u32, lane: u32, is_here: bool) {
    for (var j = 0u; j < 16u; j++) {
        let i = lane + 16u * j;
        state[j] = 0.0;
        if is_here && block != NONE && i < p.d_key {
            state[j] = bitcast<f32>(kv[block + at + i]);
        }
    }
}

fn store_state(block: u32, at: u32, lane: u32) {
    for (var i = lane; i < p.d_key; i += 16u) {
        kv[block + at + i] = bitcast<u32>(state[i / 16u]);
    }
}

// `S k` of the lane.
fn told(here: Here, lane: u32, of_head: f32) -> f32 {
    var sum = 0.0;
    for (var i = lane; i < p.d_key; i += 16u) {
        sum = add(sum, mul(state[i / 16u], asked(here, of_head, i)));
    }
    return sum;
}

// `S = decay·S + u kᵀ`; returns `S q` of the lane.
fn changed(here: Here, lane: u32, of_head: f32, u: f32) -> f32 {
    var sum = 0.0;
    for (var i = lane; i < p.d_key; i += 16u) {
        let x = add(mul(state[i / 16u], decay_of(here, of_head, i)), mul(values[here.k + i], u));
        state[i / 16u] = x;
        sum = add(sum, mul(x, values[here.q + i]));
    }
    return sum;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let n_tiles = (p.d_value + 3u) / 4u;
    let head = group.x / n_tiles;
    let of_head = 4u * (group.x % n_tiles) + t / 16u;
    let is_here = of_head < p.d_value;
    let own = head * p.d_value + min(of_head, p.d_value - 1u);
    let lane = t & 15u;
    let run = p.runs_at + 4u * group.y;
    let at = p.state_at + own * p.d_key;
    load_state(tables[run], at, lane, is_here);
    for (var n = 0u; n < tables[run + 3u]; n++) {
        let row = tables[tables[run + 2u] + n];
        let key = row * p.d_row + key_of(head) * p.d_key;
        let here = Here(row, head, own, p.k_at + key, p.q_at + key);
        let v = values[p.v_at + row * p.v_row + own];
        let decay = decay_of_head(here);
        var update = v;
        if IS_DELTA {
            let before = total(told(here, lane, decay), t);
            update = add(v, mul(mul(decay, -1.0), before));
        }
        let sum = changed(here, lane, decay, mul(gain_of(here), update));
        var y = total(sum, t);
        if p.skip_at != NONE {
            y = add(y, mul(skip_of(here), v));
        }
        if is_here && lane == 0u {
            values[p.out_at + row * p.n_heads * p.d_value + own] = y;
        }
    }
    if is_here {
        store_state(tables[run + 1u], at, lane);
    }
}
