import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.Arrays;
import java.util.Collections;
import java.util.concurrent.Callable;

/** Burns CPU in methods called in different ways, each in one known chain, and accounts for its time. */
public class Calls {
    static final long SLICE = 20_000_000;
    static volatile long sink;
    static int stride = 1;
    static final ThreadMXBean threads = ManagementFactory.getThreadMXBean();
    // In innermost methods.
    static long burned;

    static void burn() { // burns
        long cpu = threads.getCurrentThreadCpuTime(); // burns
        long end = System.nanoTime() + SLICE; // burns
        long sum = 0; // burns
        // C2 omits the safepoints of counted loops, and with them the debug information of the code there. burns
        int step = stride; // burns
        while (System.nanoTime() < end) { // burns
            for (int number = 0; number < 2000; number += step) { // burns
                sum = sum * 31 + number; // burns
            } // burns
        } // burns
        sink = sum; // burns
        burned += threads.getCurrentThreadCpuTime() - cpu; // burns
    } // burns

    static void inner() {
        burn(); // calls
    }

    static void middle() {
        inner(); // calls
    }

    static void by_call() {
        middle(); // calls
    }

    static int recurse(int depth) {
        if (depth == 0) {
            burn(); // calls
            return 0;
        }
        return recurse(depth - 1) + 1; // calls
    }

    static void by_recursion() {
        sink = recurse(30); // calls
    }

    static void by_lambda() {
        Runnable lambda = () -> burn(); // calls
        lambda.run(); // calls
    }

    static void by_sort() {
        Integer[] numbers = {2, 1};
        Arrays.sort(numbers, (left, right) -> { // calls
            burn(); // calls
            return left - right;
        });
    }

    static void by_reflection() throws Exception {
        Calls.class.getDeclaredMethod("inner").invoke(null); // calls
    }

    interface Shape {
        void area();

        default void outline() {
            area(); // calls
        }
    }

    static class Square implements Shape {
        public void area() {
            burn(); // calls
        }
    }

    static void by_interface() {
        Shape shape = new Square();
        shape.outline(); // calls
    }

    static class Made {
        Made() {
            burn(); // calls
        }
    }

    static void by_constructor() {
        new Made(); // calls
    }

    static void by_stream() {
        Collections.singletonList(1).stream().map(number -> { // calls
            burn(); // calls
            return number;
        }).forEach(number -> { }); // calls
    }

    static void by_exception() {
        try {
            throw new IllegalStateException();
        } catch (IllegalStateException exception) {
            burn(); // calls
        }
    }

    static <T> T generic(Callable<T> callable) throws Exception {
        return callable.call(); // calls
    }

    static int counted() {
        burn(); // calls
        return 1;
    }

    static void by_generics() throws Exception {
        generic(Calls::counted); // calls
    }

    static synchronized void by_synchronized() {
        burn(); // calls
    }

    static void by_größe() {
        burn(); // calls
    }

    // JDK 8 only knows the milliseconds since 1970: what to add to the time since some start.
    static final long EPOCH = epoch();

    static long epoch() {
        long latest = Long.MIN_VALUE;
        // Another process may run between the two clocks.
        for (int tick = 0; tick < 20; tick++) {
            long before = System.currentTimeMillis();
            long now = before;
            while (now == before) {
                now = System.currentTimeMillis();
            }
            latest = Math.max(latest, now * 1_000_000 - System.nanoTime());
        }
        return latest;
    }

    static long now() {
        return EPOCH + System.nanoTime();
    }

    // The start and the CPU time before a chain.
    static long start;
    static long cpu;
    static long before;
    static PrintStream clock;

    static void begin() {
        before = burned;
        start = now();
        cpu = threads.getCurrentThreadCpuTime();
    }

    static void end(String way) {
        long used = threads.getCurrentThreadCpuTime() - cpu;
        long stop = now();
        clock.println(way + " " + start + " " + stop + " " + used + " " + (burned - before));
    }

    public static void main(String[] arguments) throws Exception {
        String path = System.getenv("PROFCOL_TEST_CLOCK");
        clock = new PrintStream(path == null ? "/dev/null" : path, "UTF-8");
        long end = System.nanoTime() + Long.parseLong(arguments[0]) * 1_000_000_000;
        while (System.nanoTime() < end) {
            begin();
            by_call(); // calls
            end("by_call");
            begin();
            by_recursion(); // calls
            end("by_recursion");
            begin();
            by_lambda(); // calls
            end("by_lambda");
            begin();
            by_sort(); // calls
            end("by_sort");
            begin();
            by_reflection(); // calls
            end("by_reflection");
            begin();
            by_interface(); // calls
            end("by_interface");
            begin();
            by_constructor(); // calls
            end("by_constructor");
            begin();
            by_stream(); // calls
            end("by_stream");
            begin();
            by_exception(); // calls
            end("by_exception");
            begin();
            by_generics(); // calls
            end("by_generics");
            begin();
            by_synchronized(); // calls
            end("by_synchronized");
            begin();
            by_größe(); // calls
            end("by_größe");
        }
    }
}
