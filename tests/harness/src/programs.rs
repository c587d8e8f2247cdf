//! The programs and their expected stacks: one line per program.

/// A program, its build command, and its call chains.
pub struct Program {
    pub name: &'static str,
    pub command: &'static str,
    /// Built before it; `@NAME` in the command links with such a library.
    pub parts: Vec<(&'static str, &'static str)>,
    /// Whether its arguments are the paths of its parts.
    pub takes_parts: bool,
    /// Innermost first. A `?` is one frame elsewhere, `..` any number of frames, `libgcc` one in libgcc, `plt` a PLT
    /// entry, `plt0` the PLT header.
    pub chains: Vec<&'static str>,
    /// The end reason, if not at the first frame.
    pub end: Option<&'static str>,
    /// The minimum share of stacks that match a chain exactly; the others must have an end reason.
    pub exact: f64,
    /// Whether each of the chains must occur.
    pub shows_each: bool,
}

/// For programs whose stacks can all be exact.
const EXACT: f64 = 0.99;

const PLAIN: &str = "leaf inner middle outer main .. _start";
pub const GIANT: &str = "leaf a b c d e f g h i j k l m n o p q r s t main .. _start";
const PLT: [&str; 2] = [
    "plt spin outer main .. _start",
    "step spin outer main .. _start",
];
const PLT_HEADER: [&str; 3] = [
    "plt0 spin outer main .. _start",
    "plt spin outer main .. _start",
    "stepped spin outer main .. _start",
];
/// Go's stack, then the thread's, on which C runs, then Go's again.
const CGO: [&str; 2] = [
    "c_leaf c_inner .. runtime.asmcgocall.abi0 runtime.cgocall main._Cfunc_c_inner.abi0 main.outer main.main runtime.main runtime.goexit.abi0",
    "main.leaf .. crosscall2 fromC c_back .. runtime.asmcgocall.abi0 runtime.cgocall main._Cfunc_c_back.abi0 main.outer main.main runtime.main runtime.goexit.abi0",
];

const LIBRARY: &str = "cc -O2 -shared -fPIC library.c";

pub fn program(name: &'static str, command: &'static str, chain: &'static str) -> Program {
    Program {
        name,
        command,
        parts: Vec::new(),
        takes_parts: false,
        chains: vec![chain],
        end: None,
        exact: EXACT,
        shows_each: true,
    }
}

impl Program {
    pub fn and(mut self, chain: &'static str) -> Self {
        self.chains.push(chain);
        self
    }

    /// The maximum number of wrong stacks without an end reason: none, except in programs whose stacks cannot all be
    /// exact, where a few others look whole by chance.
    pub fn max_wrong(&self, stacks: usize) -> usize {
        let not_exact = (EXACT - self.exact).max(0.0);
        if not_exact == 0.0 {
            return 0;
        }
        // Allows for chance with few stacks.
        3.max((not_exact / 20.0 * stacks as f64) as usize)
    }

    fn ends(mut self, reason: &'static str) -> Self {
        self.end = Some(reason);
        self
    }

    fn exact_in(mut self, share: f64) -> Self {
        self.exact = share;
        self
    }

    fn with(mut self, name: &'static str, command: &'static str) -> Self {
        self.parts.push((name, command));
        self.takes_parts = true;
        self
    }

    /// Adds a part that is not passed as an argument.
    pub fn needs(mut self, name: &'static str, command: &'static str) -> Self {
        self.parts.push((name, command));
        self
    }
}

/// Calls through the PLT header.
fn bound_lazily(name: &'static str, command: &'static str) -> Program {
    let [header, entry, behind] = PLT_HEADER;
    let program = program(name, command, header)
        .and(entry)
        .and(behind)
        .needs("library.so", LIBRARY);
    Program {
        // On some CPUs the few instructions of the other chains are hardly ever interrupted.
        shows_each: false,
        ..program
    }
}

/// Calls through a PLT.
fn linked(name: &'static str, command: &'static str) -> Program {
    program(name, command, PLT[0])
        .and(PLT[1])
        .needs("library.so", LIBRARY)
}

#[rustfmt::skip]
pub fn programs() -> Vec<Program> {
    vec![
        program("c", "cc -O2 -fomit-frame-pointer plain.c", PLAIN),
        program("c++", "c++ -O2 -fomit-frame-pointer chain.cc", PLAIN),
        program("unoptimized", "cc -O0 -fno-omit-frame-pointer plain.c", PLAIN),
        program("frame-pointers-only", "cc -O1 -fno-asynchronous-unwind-tables -fno-omit-frame-pointer plain.c", PLAIN),
        program("debug-frame", "cc -O2 -fomit-frame-pointer -fno-asynchronous-unwind-tables -g plain.c", PLAIN),
        program("compressed-debug-frame", "cc -O2 -fomit-frame-pointer -fno-asynchronous-unwind-tables -g -gz plain.c", PLAIN),
        program("no-pie", "cc -O2 -fomit-frame-pointer -no-pie plain.c", PLAIN),
        program("static", "cc -O2 -fomit-frame-pointer -static plain.c", PLAIN),
        program("static-pie", "cc -O2 -fomit-frame-pointer -static-pie plain.c", PLAIN),
        program("one-segment", "cc -O2 -fomit-frame-pointer -Wl,-z,noseparate-code plain.c", PLAIN),
        program("musl", "musl-gcc -O2 -fomit-frame-pointer plain.c", PLAIN),
        program("musl-static", "musl-gcc -O2 -fomit-frame-pointer -static plain.c", PLAIN),
        program("freestanding", "cc -O2 -fomit-frame-pointer -nostdlib -static -ffreestanding freestanding.c", "leaf inner _start"),
        program("freestanding-undescribed", "cc -O2 -fomit-frame-pointer -fno-asynchronous-unwind-tables -nostdlib -static -ffreestanding freestanding.c", "leaf inner _start"),
        program("freestanding-undescribed-fp", "cc -O1 -fno-omit-frame-pointer -fno-asynchronous-unwind-tables -nostdlib -static -ffreestanding freestanding.c", "leaf inner _start"),
        program("zig", "zig -OReleaseFast chain.zig", "chain.leaf chain.inner chain.outer chain.main .. start._start"),
        program("zig-safe", "zig -OReleaseSafe chain.zig", "chain.leaf chain.inner chain.outer chain.main .. start._start"),
        program("zig-undescribed", "zig -OReleaseFast -fno-unwind-tables chain.zig", "chain.leaf chain.inner chain.outer chain.main .. start._start"),
        program("realigned", "cc -O2 -fomit-frame-pointer realigned.c", "leaf aligned moved outer main .. _start"),
        program("realigned-unoptimized", "cc -O0 realigned.c", "leaf aligned moved outer main .. _start"),
        // When it jumps to the catch block, libgcc overwrites its saved registers with those of that frame, by an
        // instruction that is slow on some CPUs. The words then may be arbitrary, and may even end a stack.
        program("throws", "c++ -O2 throws.cc", "libgcc .. outer main .. _start").and("thrower inner outer main .. _start")
            .exact_in(0.90),
        program("throws-static", "c++ -O2 -static throws.cc", "uw_frame_state_for .. outer main .. _start")
            .and("uw_update_context_1 .. outer main .. _start").and("execute_cfa_program .. outer main .. _start")
            .and("_Unwind_Find_FDE .. outer main .. _start").and("__gxx_personality_v0 .. outer main .. _start"),
        program("rust", "rustc --edition 2024 -O chain.rs", "leaf inner outer work .. _start"),
        program("rust-abort", "rustc --edition 2024 -O -Cpanic=abort chain.rs", "leaf inner outer work .. _start"),
        program("rust-frame-pointers-only", "rustc --edition 2024 -O -Cpanic=abort -Cforce-unwind-tables=no -Cforce-frame-pointers=yes chain.rs", "leaf inner outer work .. _start"),
        program("go", "go chain.go", "main.leaf main.inner main.outer main.spin main.main runtime.main runtime.goexit.abi0")
            .and("main.leaf main.inner main.outer main.spin main.work runtime.goexit.abi0"),
        program("cgo", "go cgo.go", CGO[0]).and(CGO[1]),
        bound_lazily("plt-header-bfd", "cc -O2 plt_header.c @library.so -Wl,-z,norelro -fuse-ld=bfd -Wl,-z,lazy"),
        bound_lazily("plt-header-bfd-marked", "cc -O2 -fcf-protection plt_header.c @library.so -Wl,-z,norelro -fuse-ld=bfd -Wl,-z,lazy -Wl,-z,ibtplt"),
        bound_lazily("plt-header-gold", "cc -O2 plt_header.c @library.so -Wl,-z,norelro -fuse-ld=gold -Wl,-z,lazy"),
        bound_lazily("plt-header-lld", "cc -O2 plt_header.c @library.so -Wl,-z,norelro -fuse-ld=lld -Wl,-z,lazy"),
        bound_lazily("plt-header-mold", "cc -O2 plt_header.c @library.so -Wl,-z,norelro -fuse-ld=mold -Wl,-z,lazy"),
        linked("plt-bfd", "cc -O2 plt.c @library.so -fuse-ld=bfd -Wl,-z,lazy"),
        linked("plt-bfd-now", "cc -O2 plt.c @library.so -fuse-ld=bfd -Wl,-z,now"),
        linked("plt-bfd-marked", "cc -O2 -fcf-protection plt.c @library.so -fuse-ld=bfd -Wl,-z,ibtplt"),
        linked("plt-gold", "cc -O2 plt.c @library.so -fuse-ld=gold"),
        linked("plt-lld", "cc -O2 plt.c @library.so -fuse-ld=lld -Wl,-z,lazy"),
        linked("plt-lld-now", "cc -O2 plt.c @library.so -fuse-ld=lld -Wl,-z,now"),
        linked("plt-mold", "cc -O2 plt.c @library.so -fuse-ld=mold -Wl,-z,lazy"),
        linked("plt-mold-now", "cc -O2 plt.c @library.so -fuse-ld=mold -Wl,-z,now"),
        program("plt-static", "cc -O2 -static indirect.c", "plt spin main .. _start").and("chosen spin main .. _start"),
        program("signal", "cc -O2 -DON_STACK=0 signal.c", "hot on_signal ? fault inner outer main .. _start"),
        program("signal-stack-below", "cc -O2 -DON_STACK=-1 signal.c", "hot on_signal ? fault inner outer main .. _start"),
        program("signal-stack-above", "cc -O2 -DON_STACK=1 signal.c", "hot on_signal ? fault inner outer main .. _start"),
        program("signal-static", "cc -O2 -DON_STACK=1 -static signal.c", "hot on_signal __restore_rt fault inner outer main .. _start"),
        program("signal-musl", "musl-gcc -O2 -DON_STACK=1 signal.c", "hot on_signal ? fault inner outer main .. _start"),
        program("vdso", "cc -O2 vdso.c", "[vdso] ? ask main .. _start"),
        program("vdso-signal", "cc -O2 vdso_signal.c", "[vdso] ? ask on_signal ? .. outer main .. _start"),
        program("leaderless", "cc -O2 leaderless.c", "leaf inner thread ? ?"),
        program("starts", "cc -O2 starts.c", "leaf inner main .. _start")
            .and("leaf inner coroutine ?").and("leaf inner thread ? ?"),
        program("starts-frame-pointers", "cc -O1 -fno-omit-frame-pointer starts.c", "leaf inner main .. _start")
            .and("leaf inner coroutine ?").and("leaf inner thread ? ?"),
        program("starts-static", "cc -O2 -static starts.c", "leaf inner main .. _start")
            .and("leaf inner coroutine ..").and("leaf inner thread start_thread .."),
        program("thread-musl", "musl-gcc -O2 thread.c", "leaf inner thread ? ?"),
        program("plugins", "cc -O2 plugins.c", "leaf one use main .. _start")
            .and("leaf two use main .. _start")
            .with("one.so", "cc -O2 -shared -fPIC -DNAME=one -DWORDS=10 plugin.c")
            .with("two.so", "cc -O2 -shared -fPIC -DNAME=two -DWORDS=100 plugin.c"),
        program("plugins-slowly", "cc -O2 -DCALLS=20000 plugins.c", "leaf one use main .. _start")
            .and("leaf two use main .. _start")
            .with("one.so", "cc -O2 -shared -fPIC -DNAME=one -DWORDS=10 plugin.c")
            .with("two.so", "cc -O2 -shared -fPIC -DNAME=two -DWORDS=100 plugin.c"),
        program("execs", "cc -O2 -DNAME=one -DWORDS=10 execs.c", "leaf one main .. _start").and("leaf two main .. _start")
            .with("execs-two", "cc -O2 -DNAME=two -DWORDS=100 execs.c"),
        program("deleted", "cc -O2 -DDELETES_ITSELF plain.c", PLAIN),
        program("giant", "cc -O2 -fno-toplevel-reorder giant.c", GIANT),
        program("remapped", "cc -O2 remapped.c", "leaf inner outer main .. _start"),
        program("remapped-whole", "cc -O2 -DALL remapped.c", "leaf inner outer main .. _start"),
        program("remapped-lld", "cc -O2 remapped.c -fuse-ld=lld", "leaf inner outer main .. _start"),
        program("forks", "cc -O2 forks.c", "leaf parent main .. _start").and("leaf child main .. _start"),
        program("deep", "cc -O2 deep.c", "leaf dive dive dive .. dive").ends("truncated"),
        program("generated", "cc -O2 generated.c", "leaf [anon] call main .. _start"),
        program("generated-in-file", "cc -O2 -DIN_FILE generated.c", "leaf ? call main .. _start"),
    ]
}
