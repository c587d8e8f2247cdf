/** Burns CPU below as many methods as the first argument says, for as many seconds as the second. */
class Deep {
    static long descend(int depth, long until) {
        if (depth > 0) {
            return descend(depth - 1, until) + 1;
        }
        long total = 0;
        while (System.nanoTime() < until) {
            for (int step = 0; step < 1000; step++) {
                total += (long) step * step;
            }
        }
        return total;
    }

    public static void main(String[] arguments) {
        long seconds = Long.parseLong(arguments[1]);
        descend(Integer.parseInt(arguments[0]), System.nanoTime() + seconds * 1_000_000_000);
    }
}
