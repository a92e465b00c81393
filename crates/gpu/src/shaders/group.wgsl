// The slots of a step sorted by expert, and lists of their columns: a workgroup in all.
//
//     number of entries of both lists
//     order: the slots of expert 0, then those of expert 1, …                    `n_slots` words
//     of each entry: expert, first column, number of columns                    two lists of `n_slots` entries
//
// Entries of the first list have at most 8 columns, those of the second one at most 64.

struct Params {
    zero: u32,
    routes_at: u32,
    n_slots: u32,
    n_experts: u32,
    groups_at: u32,
}

const THREADS: u32 = 64u;

// Slots of each expert; then its first column, and its first entry in both lists.
var<workgroup> counts: array<u32, 1024>;
var<workgroup> starts: array<u32, 1024>;
var<workgroup> entries: array<vec2<u32>, 1024>;

fn expert_of(slot: u32) -> u32 {
    return acts[p.routes_at + 2u * slot];
}

fn count_slots(expert: u32) -> u32 {
    var n = 0u;
    for (var slot = 0u; slot < p.n_slots; slot++) {
        n += select(0u, 1u, expert_of(slot) == expert);
    }
    return n;
}

fn add_up() {
    var column = 0u;
    var entry = vec2<u32>(0u);
    for (var e = 0u; e < p.n_experts; e++) {
        starts[e] = column;
        entries[e] = entry;
        column += counts[e];
        entry += vec2<u32>((counts[e] + 7u) / 8u, (counts[e] + 63u) / 64u);
    }
    acts[p.groups_at] = entry.x;
    acts[p.groups_at + 1u] = entry.y;
}

// Entries of at most `most` columns of an expert.
fn write_entries(at: u32, expert: u32, most: u32) {
    for (var i = 0u; i * most < counts[expert]; i++) {
        acts[at + 3u * i] = expert;
        acts[at + 3u * i + 1u] = starts[expert] + i * most;
        acts[at + 3u * i + 2u] = min(most, counts[expert] - i * most);
    }
}

fn write_slots(expert: u32) {
    var at = p.groups_at + 2u + starts[expert];
    for (var slot = 0u; slot < p.n_slots; slot++) {
        if expert_of(slot) == expert {
            acts[at] = slot;
            at++;
        }
    }
}

@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) t: u32) {
    for (var e = t; e < p.n_experts; e += THREADS) {
        counts[e] = count_slots(e);
    }
    workgroupBarrier();
    if t == 0u {
        add_up();
    }
    workgroupBarrier();
    let lists = p.groups_at + 2u + p.n_slots;
    for (var e = t; e < p.n_experts; e += THREADS) {
        write_slots(e);
        write_entries(lists + 3u * entries[e].x, e, 8u);
        write_entries(lists + 3u * (p.n_slots + entries[e].y), e, 64u);
    }
}
