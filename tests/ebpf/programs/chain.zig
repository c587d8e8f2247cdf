// A static program without a C library; the numbers change so that nothing can be left out.

noinline fn leaf(start: u64) u64 {
    var state = start;
    var i: usize = 0;
    while (i < 10000) : (i += 1) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    return state;
}

noinline fn inner(state: u64) u64 {
    return leaf(state) ^ (state *% 3) ^ (state *% 5);
}

noinline fn outer(state: u64) u64 {
    var large: [100]u64 = undefined;
    const memory: *volatile [100]u64 = &large;
    memory[state % 100] = state;
    return inner(state | 1) +% memory[state % 100];
}

// Some minutes at most.
pub fn main() void {
    var state: u64 = 1;
    var turns: usize = 0;
    while (turns < 10_000_000) : (turns += 1) state = outer(state);
    if (state == 0) unreachable;
}
