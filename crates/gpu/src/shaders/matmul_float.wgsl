// Four rows of float weights times up to eight activation rows: sixteen lanes each, a thread a lane, and one tree.

var<workgroup> lanes: array<f32, 64>;

fn lane_of(w: u32, x: u32, lane: u32) -> f32 {
    var sum = 0.0;
    for (var i = lane; i < p.d_in; i += 16u) {
        sum = add(mul(weight(w, i), bitcast<f32>(acts[x + i])), sum);
    }
    return sum;
}

fn total_of(first: u32) -> f32 {
    var row: array<f32, 16>;
    for (var i = 0u; i < 16u; i++) {
        row[i] = lanes[first + i];
    }
    return sum_of_lanes(row);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let tile = tile_of(group, 4u, COLUMNS, t);
    if tile.n == 0u {
        return;
    }
    let row = tile.row + t / 16u;
    let w = tile.w_at + min(row, tile.n_out - 1u) * row_words(p.d_in);
    for (var c = tile.first; c < tile.first + tile.n; c++) {
        lanes[t] = lane_of(w, p.x_at + row_of_acts(c) * p.d_in, t & 15u);
        workgroupBarrier();
        if (t & 15u) == 0u && row < tile.n_out {
            finish(total_of(t), row, c, tile);
        }
        workgroupBarrier();
    }
}
