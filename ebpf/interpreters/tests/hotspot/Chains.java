import java.lang.reflect.Method;
import java.security.AccessController;
import java.security.PrivilegedAction;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.function.IntUnaryOperator;
import java.util.stream.IntStream;

/**
 * Runs chains of calls for ever. Before, it prints each chain as it knows it: `chain`, then class, method and line of each frame,
 * innermost first. A frame that says it is at `mark` is not printed.
 */
public class Chains {
    static final TreeSet<String> known = new TreeSet<>();
    static boolean recording = true;
    static volatile long sink;

    /** Each function of a chain calls it, so that its chain is known. */
    static void mark() {
        if (recording) {
            record();
        }
    }

    static void record() {
        StringBuilder line = new StringBuilder("chain");
        StackWalker.getInstance(StackWalker.Option.SHOW_HIDDEN_FRAMES).forEach(frame -> {
            String method = frame.getMethodName();
            if (!method.equals("record") && !method.equals("mark")) {
                line.append(' ').append(frame.getClassName()).append('.').append(method)
                    .append(':').append(Math.max(0, frame.getLineNumber()));
            }
        });
        synchronized (known) {
            known.add(line.toString());
        }
    }

    interface Shape {
        long area(int size);
    }

    static class Square implements Shape {
        public long area(int size) {
            mark();
            return work(size) * size;
        }
    }

    static class Circle implements Shape {
        public long area(int size) {
            mark();
            return work(size) * 3;
        }
    }

    static class Box<T extends Shape> {
        final T shape;

        Box(T shape) {
            this.shape = shape;
        }

        long volume(int size) {
            mark();
            return shape.area(size)
                + shape.area(size + 1);
        }
    }

    static final List<Box<? extends Shape>> boxes = List.of(new Box<>(new Square()), new Box<>(new Circle()));

    /** Small enough to be inlined, with a loop, so that it is seen. */
    static long work(int size) {
        mark();
        int rounds = recording ? 2 : 200;
        long sum = 0;
        for (int i = 0; i < rounds; i++) {
            sum += step(sum, i + size);
        }
        return sum;
    }

    static long step(long sum, int i) {
        mark();
        return (sum ^ i) * 31 + (i >> 2);
    }

    static long recursion(int depth) {
        mark();
        if (depth == 0) {
            return bottom();
        }
        return recursion(depth - 1) + depth;
    }

    static long bottom() {
        mark();
        long sum = 0;
        for (Box<? extends Shape> box : boxes) {
            sum += box.volume((int) sum & 15);
        }
        return sum;
    }

    static long lambdas(int size) {
        mark();
        IntUnaryOperator operator = i -> (int) work(i + size);
        long sum = 0;
        for (int i = 0; i < 5; i++) {
            sum += operator.applyAsInt(i);
        }
        return sum;
    }

    static long streams(int size) {
        mark();
        return IntStream.range(0, 20).map(i -> (int) work(i)).filter(i -> above(i, size)).sum();
    }

    static boolean above(int i, int size) {
        mark();
        return i > size;
    }

    static long exceptions(int depth) {
        mark();
        try {
            return thrower(depth);
        } catch (IllegalStateException exception) {
            return work(depth);
        }
    }

    static long thrower(int depth) {
        mark();
        if (depth > 3) {
            throw new IllegalStateException("deep");
        }
        return thrower(depth + 1) + work(depth);
    }

    static final Comparator<Integer> ORDER = (left, right) -> {
        mark();
        sink += work(left) - work(right);
        return Integer.compare(left, right);
    };

    static long sorting(int size) {
        mark();
        Integer[] numbers = new Integer[12];
        for (int i = 0; i < numbers.length; i++) {
            numbers[i] = i * 7919 % 13 + size % 3;
        }
        Arrays.sort(numbers, ORDER);
        return numbers[0];
    }

    static long privileged(int size) {
        mark();
        return AccessController.doPrivileged((PrivilegedAction<Long>) () -> work(size));
    }

    public static long reflected(int size) {
        mark();
        return work(size);
    }

    static final Method REFLECTED;

    static {
        try {
            REFLECTED = Chains.class.getMethod("reflected", int.class);
        } catch (ReflectiveOperationException exception) {
            throw new AssertionError(exception);
        }
    }

    static long reflection(int size) {
        mark();
        try {
            return (Long) REFLECTED.invoke(null, size);
        } catch (ReflectiveOperationException exception) {
            throw new AssertionError(exception);
        }
    }

    static final Object LOCK = new Object();

    static synchronized long locked(int size) {
        mark();
        synchronized (LOCK) {
            return work(size);
        }
    }

    static long maps(int size) {
        mark();
        Map<Integer, Long> map = new HashMap<>();
        for (int i = 0; i < 10; i++) {
            map.computeIfAbsent(i + size, key -> work(key));
        }
        return map.size();
    }

    static long all(int round) {
        mark();
        long sum = recursion(12);
        sum += lambdas(round & 7);
        sum += streams(round & 7);
        sum += exceptions(0);
        sum += sorting(round);
        sum += privileged(round & 7);
        sum += reflection(round & 7);
        sum += locked(round & 7);
        sum += maps(round & 7);
        return sum;
    }

    static void rounds(int count) {
        mark();
        for (int round = 0; round < count; round++) {
            sink += all(round);
        }
    }

    static final CountDownLatch recorded = new CountDownLatch(Integer.getInteger("threads", 2));
    static final CountDownLatch printed = new CountDownLatch(1);

    static void await(CountDownLatch latch) {
        try {
            latch.await();
        } catch (InterruptedException exception) {
            throw new AssertionError(exception);
        }
    }

    static void run(int number) {
        mark();
        for (;;) {
            rounds(recording ? 24 : 1 << 30);
            recorded.countDown();
            await(printed);
        }
    }

    public static void main(String[] arguments) throws Exception {
        boolean isVirtual = Boolean.getBoolean("virtual");
        int threads = Integer.getInteger("threads", 2);
        for (int number = 0; number < threads; number++) {
            int own = number;
            Runnable body = () -> run(own);
            if (isVirtual) {
                Thread.class.getMethod("startVirtualThread", Runnable.class).invoke(null, body);
            } else {
                new Thread(body, "chains").start();
            }
        }
        await(recorded);
        recording = false;
        synchronized (known) {
            known.forEach(System.out::println);
        }
        System.out.println("ready");
        System.out.flush();
        printed.countDown();
        // Virtual threads do not keep the process.
        Thread.currentThread().join();
    }
}
