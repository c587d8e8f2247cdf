using System;
using System.Collections.Generic;
using System.IO;
using System.Reflection;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Text;
using System.Threading;
using System.Threading.Tasks;

// Burns CPU in methods called in different ways, each in one known chain, and accounts for its time. Uses only what is left of the libraries in trimmed programs.
static class Calls {
    const int Slice = 100;
    static long sink;

    // The compilers copy methods into their callers otherwise.
    const MethodImplOptions Kept = MethodImplOptions.NoInlining;
    // Those that cannot say so are kept by their caller.
    const MethodImplOptions Plain = Kept | MethodImplOptions.NoOptimization;

    struct Time {
        public long seconds, nanoseconds;
    }

    [DllImport("libc.so.6")]
    static extern int clock_gettime(int clock, out Time time);

    const int Real = 0, Cpu = 3;

    [MethodImpl(Kept)]
    static long now(int clock) {
        Time time;
        clock_gettime(clock, out time);
        return time.seconds * 1000000000 + time.nanoseconds;
    }

    // In innermost methods.
    [ThreadStatic]
    static long burned;

    [MethodImpl(Kept)]
    static void burn() { // burns
        long cpu = now(Cpu); // burns
        int end = Environment.TickCount + Slice; // burns
        long sum = 0; // burns
        while (Environment.TickCount - end < 0) { // burns
            for (int number = 0; number < 2000; number++) { // burns
                sum = sum * 31 + number; // burns
            } // burns
        } // burns
        sink = sum; // burns
        burned += now(Cpu) - cpu; // burns
    } // burns

    [MethodImpl(Kept)]
    static int inner() {
        burn(); // calls
        return 1;
    }

    [MethodImpl(Kept)]
    static int middle() {
        return inner() + 1; // calls
    }

    [MethodImpl(Kept)]
    static void by_call() {
        sink = middle(); // calls
    }

    [MethodImpl(Kept)]
    static int recurse(int depth) {
        if (depth == 0) {
            burn(); // calls
            return 0;
        }
        return recurse(depth - 1) + 1; // calls
    }

    [MethodImpl(Kept)]
    static void by_recursion() {
        sink = recurse(30); // calls
    }

    [MethodImpl(Plain)]
    static void by_lambda() {
        Action lambda = () => {
            burn(); // calls
            sink++;
        };
        lambda(); // calls
        sink++;
    }

    [MethodImpl(Kept)]
    static void by_delegate() {
        Func<int> callee = inner;
        sink = callee(); // calls
    }

    [MethodImpl(Kept)]
    static int order(int left, int right) {
        burn(); // calls
        return left - right;
    }

    static readonly Comparison<int> ordering = order;

    [MethodImpl(Kept)]
    static void by_sort() {
        Array.Sort(new int[] { 2, 1 }, ordering); // calls
        sink++;
    }

    interface Shape {
        int area();
    }

    class Square : Shape {
        [MethodImpl(Kept)]
        public int area() {
            burn(); // calls
            return 1;
        }
    }

    class Disc : Shape {
        [MethodImpl(Kept)]
        public int area() {
            burn(); // calls
            return 2;
        }
    }

    static readonly Shape[] shapes = { new Square(), new Disc() };

    [MethodImpl(Kept)]
    static void by_interface() {
        shape = !shape;
        sink = shapes[shape ? 0 : 1].area(); // calls
    }
    static bool shape;

    class Made {
        [MethodImpl(Kept)]
        public Made() {
            burn(); // calls
            sink++;
        }
    }

    [MethodImpl(Kept)]
    static void by_constructor() {
        sink = new Made().GetHashCode(); // calls
    }

    [MethodImpl(Kept)]
    static void by_exception() {
        try {
            throw new InvalidOperationException(); // calls the handler
        } catch (InvalidOperationException) {
            burn(); // calls
        }
    }

    [MethodImpl(Kept)]
    static void by_finally() {
        try {
            try {
                throw new InvalidOperationException(); // calls the handler
            } finally {
                burn(); // calls
            }
        } catch (InvalidOperationException) {
            sink++;
        }
    }

    [MethodImpl(Kept)]
    static bool filters() {
        burn(); // calls
        return sink != 0;
    }

    [MethodImpl(Kept)]
    static void by_filter() {
        try {
            throw new InvalidOperationException(); // calls the handler
        } catch (InvalidOperationException) when (filters()) { // calls
            sink++;
        }
    }

    [MethodImpl(Kept)]
    static T generic<T>(Func<T> callee) {
        T made = callee(); // calls
        sink++;
        return made;
    }

    [MethodImpl(Kept)]
    static string text() {
        burn(); // calls
        return "text";
    }

    // Instances of reference types share their code.
    [MethodImpl(Kept)]
    static void by_generics() {
        sink = generic<string>(text).Length + 1; // calls
    }

    [MethodImpl(Kept)]
    static void by_generic_values() {
        sink = generic<int>(inner) + 1; // calls
    }

    [MethodImpl(Kept)]
    static IEnumerable<int> items() {
        burn(); // calls
        yield return 1;
    }

    [MethodImpl(Plain)]
    static void by_iterator() {
        foreach (int item in items()) { sink = item; } // calls
    }

    // Methods that only call another one have no frame pointer once they are optimized.
    [MethodImpl(Kept)]
    static int thin_3() {
        return inner() + 1; // calls
    }

    [MethodImpl(Kept)]
    static int thin_2() {
        return thin_3() + 1; // calls
    }

    [MethodImpl(Kept)]
    static int thin_1() {
        return thin_2() + 1; // calls
    }

    [MethodImpl(Kept)]
    static void by_thin() {
        sink = thin_1(); // calls
    }

    unsafe struct Buffer {
        public fixed long numbers[2000];
    }

    // The prologue touches each page of the frame, and clears it.
    [MethodImpl(Kept)]
    static unsafe long large(int a, int b, int c, int d, int e, int f, int g, int h) {
        Buffer buffer;
        buffer.numbers[a] = b;
        burn(); // calls
        return a + b * c + d * e + f * g + h + buffer.numbers[c];
    }

    [MethodImpl(Kept)]
    static void by_large_frame() {
        sink = large(1, 2, 3, 4, 5, 6, 7, 8) + 1; // calls
    }

    [MethodImpl(Kept)]
    static unsafe int allocate(int count) {
        byte* buffer = stackalloc byte[count];
        buffer[0] = 1;
        burn(); // calls
        return buffer[1];
    }

    [MethodImpl(Kept)]
    static void by_stack_allocation() {
        sink = allocate(5000) + 1; // calls
    }

    [MethodImpl(Kept)]
    static async Task<int> later() {
        int made = await Task.FromResult(1);
        burn(); // calls
        return made;
    }

    [MethodImpl(Kept)]
    static void by_async() {
        sink = later().GetHashCode(); // calls
    }

    delegate int Compare(IntPtr left, IntPtr right);

    [DllImport("libc.so.6")]
    static extern void qsort(int[] numbers, IntPtr count, IntPtr size, Compare compare);

    static readonly Compare comparison = compare;

    [MethodImpl(Kept)]
    static int compare(IntPtr left, IntPtr right) {
        burn(); // calls
        return 1;
    }

    [MethodImpl(Kept)]
    static void by_native() {
        qsort(new int[] { 2, 1 }, (IntPtr)2, (IntPtr)4, comparison); // calls
        sink++;
    }

    [MethodImpl(Kept)]
    static void by_reflection() {
        var method = typeof(Calls).GetMethod("inner", BindingFlags.NonPublic | BindingFlags.Static);
        sink = method.Invoke(null, null).GetHashCode(); // calls
    }

    [MethodImpl(Kept)]
    static void by_größe() {
        burn(); // calls
        sink++;
    }

    // Before a chain.
    [ThreadStatic]
    static long start, cpu, before;

    [MethodImpl(Kept)]
    static void begin() {
        before = burned;
        start = now(Real);
        cpu = now(Cpu);
    }

    [MethodImpl(Kept)]
    static void end(FileStream clock, string way) {
        long used = now(Cpu) - cpu, stop = now(Real);
        if (clock == null) {
            return;
        }
        // Trimmed programs lack what joins more than these.
        string line = way;
        foreach (long number in new long[] { start, stop, used, burned - before }) {
            line = line + " " + number.ToString();
        }
        byte[] bytes = Encoding.UTF8.GetBytes(line + "\n");
        clock.Write(bytes, 0, bytes.Length);
        clock.Flush();
    }

    [MethodImpl(Kept)]
    static void run(int seconds, FileStream clock) {
        int started = Environment.TickCount;
        while (Environment.TickCount - started < seconds * 1000) {
            begin();
            by_call(); // calls
            end(clock, "by_call");
            begin();
            by_recursion(); // calls
            end(clock, "by_recursion");
            begin();
            by_lambda(); // calls
            end(clock, "by_lambda");
            begin();
            by_delegate(); // calls
            end(clock, "by_delegate");
            begin();
            by_sort(); // calls
            end(clock, "by_sort");
            begin();
            by_interface(); // calls
            end(clock, "by_interface");
            begin();
            by_constructor(); // calls
            end(clock, "by_constructor");
            begin();
            by_exception(); // calls
            end(clock, "by_exception");
            begin();
            by_finally(); // calls
            end(clock, "by_finally");
            begin();
            by_filter(); // calls
            end(clock, "by_filter");
            begin();
            by_generics(); // calls
            end(clock, "by_generics");
            begin();
            by_generic_values(); // calls
            end(clock, "by_generic_values");
            begin();
            by_iterator(); // calls
            end(clock, "by_iterator");
            begin();
            by_thin(); // calls
            end(clock, "by_thin");
            begin();
            by_large_frame(); // calls
            end(clock, "by_large_frame");
            begin();
            by_stack_allocation(); // calls
            end(clock, "by_stack_allocation");
            begin();
            by_async(); // calls
            end(clock, "by_async");
            begin();
            by_native(); // calls
            end(clock, "by_native");
            begin();
            by_reflection(); // calls
            end(clock, "by_reflection");
            begin();
            by_größe(); // calls
            end(clock, "by_größe");
        }
    }

    // One argument: burns once. Otherwise: for how many seconds, a file for the account of the first thread, more threads.
    static int Main(string[] arguments) {
        int seconds = int.Parse(arguments[0]);
        if (arguments.Length == 1) {
            by_call(); // calls
            return 0;
        }
        FileStream clock = File.Create(arguments[1]);
        for (int left = int.Parse(arguments[2]); left > 0; left--) {
            new Thread(() => run(seconds, null)).Start(); // calls
        }
        run(seconds, clock); // calls
        return 0;
    }
}
