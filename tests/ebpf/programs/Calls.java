import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Callable;

/** Burns CPU in methods called in different ways, each in one known chain. */
public class Calls {
    static final long SLICE = 20_000_000;
    static volatile long sink;
    static int stride = 1;

    static void burn() {
        long end = System.nanoTime() + SLICE;
        long sum = 0;
        // C2 omits the safepoints of counted loops, and with them the debug information of the code there.
        int step = stride;
        while (System.nanoTime() < end) {
            for (int number = 0; number < 2000; number += step) {
                sum = sum * 31 + number;
            }
        }
        sink = sum;
    }

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
        List.of(1).stream().map(number -> { // calls
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

    public static void main(String[] arguments) throws Exception {
        // Startup is complete: from here on only this program runs.
        new java.io.File(arguments[1]).createNewFile();
        long end = System.nanoTime() + Long.parseLong(arguments[0]) * 1_000_000_000;
        while (System.nanoTime() < end) {
            by_call(); // calls
            by_recursion(); // calls
            by_lambda(); // calls
            by_sort(); // calls
            by_reflection(); // calls
            by_interface(); // calls
            by_constructor(); // calls
            by_stream(); // calls
            by_exception(); // calls
            by_generics(); // calls
            by_synchronized(); // calls
            by_größe(); // calls
        }
    }
}
